"""The rates by which a run is compared: on a CPU those of each window's fast steps, which other programs hardly move.

A program beside a run takes its caches and the other half of its core, so that even the CPU time of equal steps differs
by a third, for seconds or for minutes. A window's lower quartile leaves out what is shorter than the window; what is
longer hits all nodes of a trial alike, because they measure window by window in turn: see `bench_image.parallel.
turnstile` and docs/results/demo-definite-2026-11-24.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from itertools import accumulate, pairwise

from bench_image.contract.options import Strategy
from bench_image.contract.result import RunResult
from bench_image.contract.result_sections import Clock, Performance
from bench_image.contract.step_stats import quantile
from trainbench.judging.noise import MIN_SD

BLOCKS = 5
FAST = 0.25  # quantile of a window's step times
# Equal processes on a CPU differ by 1.6 % from start to end, with wide tails, and no window within one of them shows it
# (docs/results/demo-definite-2026-11-24).
PROCESS_SD = 0.025


def window_rates(performance: Performance) -> tuple[float, ...]:
    """Samples/s of each window: on a CPU as if each step had taken the window's lower quartile."""
    rates = tuple(window.samples_per_second for window in performance.windows)
    borders = [0, *accumulate(window.num_steps for window in performance.windows)]
    if performance.clock is Clock.WALL or borders[-1] != len(performance.step_times_s):
        return rates
    windows = [performance.step_times_s[begin:end] for begin, end in pairwise(borders)]
    return tuple(
        rate * statistics.fmean(steps) / quantile(steps, FAST) for rate, steps in zip(rates, windows, strict=True)
    )


def judged_rate(result: RunResult) -> float | None:
    """The samples/s by which a run is judged and stored: of independent ranks those of the slowest, because the sum of
    eight hides a slow one. None unless each rank has a rate.
    """
    if result.spec.placement.strategy is not Strategy.INDEPENDENT or len(result.ranks) < 2:
        return _rate(result.performance)
    rates = [_rate(rank.performance) if rank.performance else None for rank in result.ranks]
    known = [rate for rate in rates if rate is not None]
    return min(known) if len(known) == len(rates) else None


def least_sd(result: RunResult) -> float:
    """The standard deviation, as a logarithm, by which equal runs differ at least."""
    return MIN_SD if result.performance.clock is Clock.WALL else PROCESS_SD


def _rate(performance: Performance) -> float | None:
    """The mean of the windows' rates on a CPU: a median would jump between a machine's fast and slow minutes."""
    if performance.clock is Clock.WALL or not performance.windows:
        return performance.samples_per_second
    return statistics.fmean(window_rates(performance))


def rates_in_turns(results: Sequence[RunResult]) -> tuple[tuple[float, ...], ...] | None:
    """The window rates of each run, without what a turn of the machine did to all of them; None for runs that did not
    take turns.

    Window k of a run is divided by the median of all runs' windows k, and multiplied by the median of these medians.
    """
    rates = [window_rates(result.performance) for result in results]
    if len(results) < 2 or not _took_turns(results) or len({len(each) for each in rates}) > 1:
        return None
    of_turns = [statistics.median(turn) for turn in zip(*rates, strict=True)]
    level = statistics.median(of_turns)
    return tuple(tuple(rate * level / of_turn for rate, of_turn in zip(each, of_turns, strict=True)) for each in rates)


def scatter_of_run(rates: Sequence[float]) -> tuple[float, ...]:
    """Values about the median of a run's windows that scatter as that median does, by the method of batch means.

    Neighbouring windows are alike, blocks of a fifth of the run hardly: the median of the run varies by a fifth of the
    variance of the blocks' medians, so each block's distance from it, as a logarithm, is divided by sqrt(5).
    """
    size = len(rates) // BLOCKS
    if not size:
        return ()
    middle = statistics.median(rates)
    blocks = [statistics.median(rates[i * size : (i + 1) * size]) for i in range(BLOCKS)]
    return tuple(middle * (block / middle) ** (1 / math.sqrt(BLOCKS)) for block in blocks)


def _took_turns(results: Sequence[RunResult]) -> bool:
    """Whether every run's first window began before any run's last one."""
    if not all(result.performance.windows and result.startup.turns_s for result in results):
        return False
    spans = [
        [result.started_at.timestamp() + window.started_s for window in result.performance.windows]
        for result in results
    ]
    return max(span[0] for span in spans) < min(span[-1] for span in spans)
