"""Do the figures of one measurement agree with each other? A rate that its own windows contradict was not measured."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from bench_image.contract import Performance

TOLERANCE = 0.01  # they come from the same seconds; only rounding and slow clocks lie between them


def contradictions(performance: Performance, samples_per_step: int | None) -> Iterator[str]:
    """One sentence for each. `samples_per_step`: of all ranks that the figures are of; None where it is not known."""
    windows = performance.windows
    if not windows:
        return
    steps, wall_s = sum(window.num_steps for window in windows), sum(window.wall_s for window in windows)
    if performance.measured_steps != steps:
        yield f"performance.measured_steps is {performance.measured_steps}, its windows have {steps} steps"
    if not _agree(performance.measured_wall_s, wall_s):
        yield f"performance.measured_wall_s is {performance.measured_wall_s:g} s, its windows took {wall_s:g} s"
    samples = sum(window.samples_per_second * window.wall_s for window in windows)
    if not _agree(performance.samples_per_second, samples / wall_s):
        yield (
            f"performance.samples_per_second is {performance.samples_per_second:g}, its windows did "
            f"{samples:g} samples in {wall_s:g} s: {samples / wall_s:g}/s; they may differ by {100 * TOLERANCE:g} %"
        )
    for index, window in enumerate(windows if samples_per_step else ()):
        done = window.num_steps * (samples_per_step or 0) / window.wall_s
        if not _agree(window.samples_per_second, done):
            yield (
                f"performance.windows.{index}.samples_per_second is {window.samples_per_second:g}, but "
                f"{window.num_steps} steps of {samples_per_step} samples in {window.wall_s:g} s are {done:g}/s"
            )


def sum_of(performance: Performance, ranks: Sequence[Performance]) -> Iterator[str]:
    """Whether a run of independent ranks says the sum of their rates; not told where one has fewer windows than others.

    Its windows are those of one rank, so they do not add up to it where the ranks slow down at different times.
    """
    rates = [rank.samples_per_second or 0.0 for rank in ranks]
    if {len(rank.windows) for rank in ranks} != {len(performance.windows)}:
        return
    if not _agree(performance.samples_per_second, sum(rates)):
        yield (
            f"performance.samples_per_second is {performance.samples_per_second:g}, its ranks add up to "
            f"{sum(rates):g}; they may differ by {100 * TOLERANCE:g} %"
        )


def _agree(value: float | None, other: float) -> bool:
    """What is null has its reason elsewhere."""
    return value is None or abs(value - other) <= TOLERANCE * other
