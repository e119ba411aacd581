"""Figures of steps that the host launches kernel by kernel, from docs/results/host-launch-h200-2026-11-28."""

from __future__ import annotations

import statistics
from collections.abc import Iterator
from typing import Any

from tests.unit.published.measured import STRATEGIES, document, median_step_s, row

HOST = "host-launch-h200-2026-11-28"
OLD, TODAY = "4a35e66f", "d077aec3"
TWO_RANKS = "d915a0a5"  # the program of 29 November


def runs(machine: int, program: str, case: str) -> list[dict[str, Any]]:
    wanted = (machine, program, case)
    return [one for one in document(f"{HOST}/steps.json") if (one["machine"], one["program"], one["case"]) == wanted]


def step_ms(machine: int, program: str, case: str) -> str:
    """The median of all steps of all its runs."""
    steps = [s for one in runs(machine, program, case) for window in one["step_times_s"] for s in window]
    return f"{1e3 * statistics.median(steps):.1f}" if steps else ""


def before_ms(strategy: str, num_gpus: int) -> float:
    """Of 21 November, on other machines."""
    return 1e3 * median_step_s(f"{STRATEGIES}/tier-a-full-{strategy}-1x{num_gpus}-*")


def extra(program: str) -> dict[str, Any]:
    """What one run of zero2 looked at by torch's profiler: its steps are recorded."""
    (found,) = (one["extra"] for one in runs(1, program, "zero2") if "extra" in one)
    return dict(found)


def note() -> Iterator[str]:
    cells = [(machine, program) for machine in (1, 2) for program in (OLD, TODAY)]
    yield row("one GPU", f"{before_ms('single', 1):.1f}", *(step_ms(*cell, "single") for cell in cells))
    for strategy in ("zero2", "ddp"):
        before = f"{before_ms(strategy, 2):.1f} (2 ranks), {before_ms(strategy, 4):.1f} (4 ranks)"
        yield row(strategy, before, *(step_ms(*cell, strategy) for cell in cells))
    yield row("zero2, with the watch", "", *(step_ms(*cell, "watch") for cell in cells))
    yield kernels()
    old, today = (extra(program)["busy_ms_per_step"] for program in (OLD, TODAY))
    yield f"busy for {old:.1f} and {today:.1f} ms of it"
    yield f"takes {slower()} times as long for a step of one GPU"
    for strategy in ("zero2", "ddp"):
        yield row(strategy, *(windows_ms(program, strategy) for program in (OLD, TWO_RANKS)))
    yield f"{step_ms(3, OLD, 'zero2')} and {step_ms(3, TWO_RANKS, 'zero2')} ms"
    yield f"{step_ms(3, OLD, 'ddp')} and {step_ms(3, TWO_RANKS, 'ddp')} ms"


def windows_ms(program: str, strategy: str) -> str:
    """The median step of each window, run by run, of two ranks."""
    return "; ".join(", ".join(f"{ms:.1f}" for ms in one["median_ms"]) for one in runs(3, program, strategy))


def kernels() -> str:
    old, today = (extra(program)["kernels_per_step"] for program in (OLD, TODAY))
    return f"{old:,.0f} kernels with the old one and {today:,.0f} with today's"


def slower() -> str:
    """How much longer one program takes than on the machine of 21 November."""
    ratios = sorted(float(step_ms(machine, OLD, "single")) / before_ms("single", 1) for machine in (1, 2))
    return f"{ratios[0]:.2f} to {ratios[1]:.2f}"


def evidence() -> Iterator[str]:
    """As docs/internals/performance.md says it."""
    for program, whose in ((OLD, "that program"), (TODAY, "today's")):
        yield f"{step_ms(1, program, 'zero2')} and {step_ms(2, program, 'zero2')} ms a step with {whose}"
    yield f"takes {slower()} times as long there"
