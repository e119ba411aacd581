"""Figures of the notes beside the result files (docs/results/*/README.md)."""

from __future__ import annotations

import statistics
from collections.abc import Iterator

from committed import committed
from tests.unit.published.measured import STRATEGIES, document, folders, run
from tests.unit.published.tries import probes_by_size


def all_results() -> Iterator[str]:
    """The list of all results."""
    yield from machines()
    of_four_gpus = [run(folder) for folder in folders(f"{STRATEGIES}/*")]
    run_s = statistics.fmean(r.startup.total_s for r in of_four_gpus if r.spec.placement.world_size == 4)
    yield f"took {run_s:.0f} s on average, so the first 32 runs take about {32 * run_s / 60:.0f} minutes."


def machines() -> Iterator[str]:
    """The matmul probes of the strategy study's machines, by the number of their GPUs."""
    probes = probes_by_size()
    yield f"| all on 4 GPUs | 4 | 10:55 to 11:07 | {min(probes[4]):.0f} to {max(probes[4]):.0f} TFLOP/s |"
    slower = sorted(100 * (1 - four / alone) for four in probes[4] for alone in probes[1])
    yield f"a GPU of the 4-GPU machine multiplies {slower[0]:.0f} to {slower[-1]:.0f} % slower"


def hostile_inputs(folder: str) -> Iterator[str]:
    studies = [document(path) for path in committed(f"{folder}/*.json")]
    yield f"{sum(study['inputs'] for study in studies):,} damaged documents"
    yield f"{sum(study['cpu_s'] for study in studies):,} CPU seconds"
