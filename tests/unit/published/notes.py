"""Figures of the notes beside the result files (docs/results/*/README.md)."""

from __future__ import annotations

import statistics
from collections.abc import Iterator

from committed import committed
from tests.unit.published.measured import document, row
from trainbench.core.grouping import grouped

FIRST_HOUR = "first-hour-2026-11-28"
LAPTOP = ("make setup-demo", "make demo")


def hostile_inputs(folder: str) -> Iterator[str]:
    studies = [document(path) for path in committed(f"{folder}/*.json")]
    yield f"{sum(study['inputs'] for study in studies):,} damaged documents"
    yield f"{sum(study['cpu_s'] for study in studies):,} CPU seconds"


def first_hour() -> Iterator[str]:
    """Of each quickstart the median of its runs until the first verdict, and the longest."""
    hour = document(f"{FIRST_HOUR}/times.json")
    laptop = [step for step in hour["steps"] if step["step"] in LAPTOP]
    for name, steps in {"laptop": laptop, **hour["quickstarts"]}.items():
        runs = grouped((step["run"], step["wall_s"]) for step in steps)
        took_s = [sum(of) for of in runs.values()]
        yield row(name, f"{statistics.median(took_s):.0f}", f"{max(took_s):.0f}")
    loops_s = [step["ten_million_squares_s"] for steps in hour["quickstarts"].values() for step in steps]
    yield f"taking {min(loops_s)} to {max(loops_s)} s"
    for now in hour["with_quick_of_three_windows"]:
        before = [step["wall_s"] for step in hour["quickstarts"][now["quickstart"]] if step["step"] == now["step"]]
        yield f"took {now['wall_s']:.0f} s, {min(before):.0f} to {max(before):.0f} s before"
