"""Checks that the figures of one measurement agree with each other, e.g. a rate with its own windows."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence

from bench_image.contract.result_sections import Performance

TOLERANCE = 0.01  # the figures come from the same seconds, up to rounding and slow clocks


def contradictions(performance: Performance, samples_per_step: int | None) -> Iterator[str]:
    """Yields a sentence for each contradiction. `samples_per_step`: over the ranks of these figures; None: unknown."""
    windows = performance.windows
    if not windows:
        return
    # Steps and wall time are the sums over the windows.
    steps, wall_s = sum(window.num_steps for window in windows), sum(window.wall_s for window in windows)
    if performance.measured_steps != steps:
        yield f"performance.measured_steps is {performance.measured_steps}, its windows have {steps} steps"
    if not _agree(performance.measured_wall_s, wall_s):
        yield f"performance.measured_wall_s is {performance.measured_wall_s:g} s, its windows took {wall_s:g} s"
    counted = _window_seconds(performance)
    if counted is None:
        yield f"performance.step_times_s holds {len(performance.step_times_s)} steps, its windows have {steps}"
        return
    # The rate of the run is that of all windows together.
    counted_s = sum(counted)
    samples = sum(window.samples_per_second * seconds for window, seconds in zip(windows, counted, strict=True))
    if not _agree(performance.samples_per_second, samples / counted_s):
        yield (
            f"performance.samples_per_second is {performance.samples_per_second:g}, its windows did "
            f"{samples:g} samples in {counted_s:g} s: {samples / counted_s:g}/s; they may differ by "
            f"{100 * TOLERANCE:g} %"
        )
    # The rate of each window follows from its steps.
    for index, (window, seconds) in enumerate(zip(windows, counted, strict=True) if samples_per_step else ()):
        done = window.num_steps * (samples_per_step or 0) / seconds
        if not _agree(window.samples_per_second, done):
            yield (
                f"performance.windows.{index}.samples_per_second is {window.samples_per_second:g}, but "
                f"{window.num_steps} steps of {samples_per_step} samples in {seconds:g} s are {done:g}/s"
            )


def sum_of(performance: Performance, ranks: Sequence[Performance]) -> Iterator[str]:
    """Yields a sentence if the rate of a run of independent ranks is not the sum of their rates.

    It is not checked where ranks have different numbers of windows. The run's windows are those of one rank, so they do
    not add up to its rate where the ranks slow down at different times.
    """
    rates = [rank.samples_per_second or 0.0 for rank in ranks]
    if {len(rank.windows) for rank in ranks} != {len(performance.windows)}:
        return
    if not _agree(performance.samples_per_second, sum(rates)):
        yield (
            f"performance.samples_per_second is {performance.samples_per_second:g}, its ranks add up to "
            f"{sum(rates):g}; they may differ by {100 * TOLERANCE:g} %"
        )


def _window_seconds(performance: Performance) -> list[float] | None:
    """Seconds of each window by the run's clock; None where the number of step times is not that of the steps.

    CPU time is measured per step, so a window has the sum of its step times.
    """
    windows = performance.windows
    if performance.clock == "wall":
        return [window.wall_s for window in windows]
    ends = list(itertools.accumulate(window.num_steps for window in windows))
    if len(performance.step_times_s) != ends[-1]:
        return None
    return [
        math.fsum(performance.step_times_s[end - window.num_steps : end])
        for window, end in zip(windows, ends, strict=True)
    ]


def _agree(value: float | None, other: float) -> bool:
    """Whether the values agree within TOLERANCE. None agrees: `missing` has its reason."""
    return value is None or abs(value - other) <= TOLERANCE * other
