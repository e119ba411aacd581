"""Figures of the notes beside the result files (docs/results/*/README.md)."""

from __future__ import annotations

from collections.abc import Iterator

from committed import committed
from tests.unit.published.measured import document
from tests.unit.published.tries import probes_by_size


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
