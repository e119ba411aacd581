"""Figures of start-up: how long QLoRA 8 x 512 takes to its first measured step, before and after it was mended."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from bench_image.contract.result import RunResult
from tests.unit.published.measured import (
    START,
    THIRD,
    document,
    each,
    row,
    run,
)
from trainbench.figure_catalogue.run_figures import FIRST_STEP_S

BEFORE, TODAY = "before", "today"
RUNS = {
    (BEFORE, "cold"): [f"{THIRD}/results/machine{machine}-tuned-qlora-8x512-r1" for machine in (1, 3)],
    (TODAY, "cold"): [f"{START}/cold-{turn}" for turn in (1, 2)],
    (BEFORE, "warm"): [f"{THIRD}/results/machine{machine}-tuned-qlora-8x512-r2" for machine in (1, 3)],
    (TODAY, "warm"): [f"{START}/warm-{turn}" for turn in (1, 2)],
}


def page() -> Iterator[str]:
    """What docs/internals/performance.md says."""
    labels = {"cold": "nothing cached", "warm": "compiled code cached"}
    for when, cache in RUNS:
        others = [phases_s("launch", "build", "probe"), phases_s("import"), phases_s("warmup"), phases_s("compile")]
        cells = (both(when, cache, seconds) for seconds in [first_step_s, *others])
        yield row(f"{labels[cache]}, {when}", *cells)
    yield f"on torch 2.11 compiled {compiled('cold')[0]} graphs where 3 are enough"


def both(when: str, cache: str, seconds: Callable[[RunResult], float]) -> str:
    return each((seconds(run(folder)) for folder in RUNS[when, cache]), ".1f")


def first_step_s(result: RunResult) -> float:
    return FIRST_STEP_S.value(result) or 0.0


def phases_s(*phases: str) -> Callable[[RunResult], float]:
    return lambda result: sum(getattr(result.startup, f"{phase}_s") for phase in phases)


def compiled(start: str) -> tuple[int, int]:
    """The graphs that torch compiled, and its cuts of the code."""
    counters = document(f"{START}/{start}-compiled.json")
    return counters["stats"]["unique_graphs"], sum(counters["graph_break"].values())
