"""Splits a series of values into levels, or fits a drift. Statistics only, for any quantity.

**Levels.** The series is cut so that `sum |value - median of its level| / scale + PENALTY * ln(n) * (cuts)` is least,
each level at least LEAST values long: optimal partitioning (Jackson et al., IEEE Signal Processing Letters 12, 2005)
with the absolute deviation as cost, which a single bad night does not mislead (Truong, Oudre, Vayatis, Signal
Processing 167, 2020, section 4.1). Then cuts between levels that lie closer together than the caller's limit are
removed, and the others are placed anew. On the second night of a new level, the last night of the old level counts with
it, so such a change is dated on the third night, unless that night lies SURE standard deviations from the old level.

**Scale.** 1.4826 * the median absolute difference of neighbours / sqrt(2), which a step does not widen; at least
`limit / mads`, so that a very quiet series does not report its own noise.

**Drift.** The slope is the median of the slopes of all pairs (Theil 1950, Sen 1968). A line costs one cut's penalty; it
is a drift where it explains the series better than levels do and its change exceeds the limit.

Simulated (tests/unit/judging/over_time/test_change_points.py): of 1,000 equal series of 6 to 30 nights none changed at
0.3 % noise, up to 5 at 1 to 10 %. A 6 % step after 20 nights is detected on its third night, a 2 % step in 8 of 10.
"""

from __future__ import annotations

import bisect
import math
import statistics
from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

from trainbench.judging.over_time.baseline_deviation import MAD_TO_SD

LEAST = 3  # values of a level, so that two bad nights are no change
LEAST_FOR_DRIFT = 10
PENALTY = 2.0
FEW = 6  # widens the noise of n values by 1 + FEW / n: fitted by the simulation below
SURE = 3  # standard deviations between the old level and a night that counts as the first of a new one


class LevelStep(NamedTuple):
    """`at`: index of the first value of the level that lasts to the end."""

    at: int
    before: float  # median of the level before
    after: float
    num_before: int
    limit_pct: float  # percent of `before`; the change is larger

    @property
    def change_pct(self) -> float:
        return 100 * (self.after / self.before - 1)


class Drift(NamedTuple):
    """The change of the line through the series between its first and its last moment."""

    first: float
    last: float
    limit_pct: float  # percent of `first`; the change is larger

    @property
    def change_pct(self) -> float:
        return 100 * (self.last / self.first - 1)


def last_change(
    times: Sequence[float], values: Sequence[float], limit_pct: float, mads: float
) -> LevelStep | Drift | None:
    """The last step of a series of positive values, in the order of `times`; or its drift, or neither.

    A change counts when it is larger than `limit_pct` and than `mads` times the noise about the levels.
    """
    if len(values) < 2 * LEAST or max(values) <= min(values) * (1 + limit_pct / 100):
        return None
    # 1. Levels by optimal partitioning; each cut costs a penalty that grows with the logarithm of the series.
    scale = _scale(values, limit_pct, mads)
    penalty = PENALTY * scale * math.log(len(values))
    cuts, cost = _levels(values, penalty)
    # 2. One line through the whole series: as a model it has as many parameters as one cut, and costs one penalty.
    if len(values) >= LEAST_FOR_DRIFT:
        first, slope = _line(times, values)
        residuals = [abs(value - first - slope * (at - times[0])) for at, value in zip(times, values, strict=True)]
        if sum(residuals) + penalty < cost:  # a line explains the series better than levels do
            return _drift(first, first + slope * (times[-1] - times[0]), residuals, limit_pct, mads)
    # 3. Levels explain the series better: the last one counts, if it differs enough.
    return _last_step(values, cuts, limit_pct, mads)


def step_at(values: Sequence[float], at: int, limit_pct: float, mads: float) -> LevelStep | None:
    """The step at an index that is known beforehand, such as the night of an update; one value after it is enough.

    Without a search over all indices, chance produces fewer steps than in `last_change`.
    """
    before, after = values[:at], values[at:]
    level = statistics.median(before)
    limit = _limit(level, _noise((before, after)), limit_pct, mads)
    step = LevelStep(at, level, statistics.median(after), at, limit)
    return step if abs(step.change_pct) > step.limit_pct else None


def _scale(values: Sequence[float], limit_pct: float, mads: float) -> float:
    steps = [abs(b - a) for a, b in pairwise(values)]
    quiet = statistics.median(values) * limit_pct / 100 / mads
    return max(MAD_TO_SD * statistics.median(steps) / math.sqrt(2), quiet)


def _levels(values: Sequence[float], penalty: float) -> tuple[list[int], float]:
    """(start of each level except the first, their cost with penalties); dynamic programming, O(n^2) values.

    best[end] = min over start of best[start] + cost(start..end) + penalty: the Bellman equation of Jackson et al.
    """
    n = len(values)
    costs = [_costs(values[start:]) for start in range(n)]
    best = [0.0] + [math.inf] * n
    begins = [0] * (n + 1)
    for end in range(LEAST, n + 1):
        for start in (0, *range(LEAST, end - LEAST + 1)):
            cost = best[start] + costs[start][end - start] + (penalty if start else 0.0)
            if cost < best[end]:
                best[end], begins[end] = cost, start
    # Trace back from the end along the best starts.
    cuts, end = [], n
    while begins[end]:
        end = begins[end]
        cuts.append(end)
    return cuts[::-1], best[n]


def _costs(values: Sequence[float]) -> list[float]:
    """Sums of absolute deviations from the median, for each prefix of the values."""
    ordered: list[float] = []
    costs = [0.0]
    for value in values:
        bisect.insort(ordered, value)
        half = len(ordered) // 2
        costs.append(sum(ordered[len(ordered) - half :]) - sum(ordered[:half]))
    return costs


def _last_step(values: Sequence[float], cuts: list[int], limit_pct: float, mads: float) -> LevelStep | None:
    """The last step after levels that differ too little are merged, the smallest difference first."""
    while cuts:
        # Differences between neighbouring levels, as multiples of their limit.
        edges = [0, *cuts, len(values)]
        parts = [values[a:b] for a, b in pairwise(edges)]
        medians, noise = [statistics.median(part) for part in parts], _noise(parts)
        over = [
            100 * abs(after / before - 1) / _limit(before, noise, limit_pct, mads)
            for before, after in pairwise(medians)
        ]
        # All exceed it: the last one is the change. Otherwise drop the smallest and place the other cuts anew.
        least = min(range(len(over)), key=over.__getitem__)
        if over[least] > 1:
            at, before, after = cuts[-1], parts[-2], parts[-1]
            step = LevelStep(at, medians[-2], medians[-1], len(before), _limit(medians[-2], noise, limit_pct, mads))
            return step if _lasts(step, before, after, noise, limit_pct / mads) else None
        cuts = _placed(values, [*cuts[:least], *cuts[least + 1 :]])
    return None


def _noise(parts: Sequence[Sequence[float]]) -> float:
    """Standard deviation about the levels, from the median absolute deviation of all values."""
    medians = [statistics.median(part) for part in parts]
    left = [abs(value - median) for part, median in zip(parts, medians, strict=True) for value in part]
    # One value of each level is its median: counting it would make the noise too small, as few values still do.
    return (1 + FEW / len(left)) * MAD_TO_SD * statistics.median(sorted(left)[len(parts) :])


def _placed(values: Sequence[float], cuts: Sequence[int]) -> list[int]:
    """The cuts, each moved to where its two levels fit best: a removed cut had attracted values."""
    edges = [0, *cuts, len(values)]
    for place in range(1, len(edges) - 1):
        begin = edges[place - 1]
        edges[place] = begin + _best_cut(values[begin : edges[place + 1]])
    return edges[1:-1]


def _best_cut(values: Sequence[float]) -> int:
    before, after = _costs(values), _costs(values[::-1])
    return min(range(LEAST, len(values) - LEAST + 1), key=lambda at: before[at] + after[len(values) - at])


def _lasts(step: LevelStep, before: Sequence[float], after: Sequence[float], noise: float, quiet_pct: float) -> bool:
    """Whether LEAST values have left the old level.

    On the second night of a new level, the shortest allowed level includes the last night of the old one. A night
    between both levels counts as the first of the change.
    """
    first = after[0]
    if len(after) > LEAST or abs(first - step.after) < abs(first - step.before):
        return True
    own = MAD_TO_SD * statistics.median(abs(value - step.before) for value in before)
    return abs(first - step.before) > max(SURE * max(own, noise), step.before * quiet_pct / 100)


def _limit(level: float, noise: float, limit_pct: float, mads: float) -> float:
    """Percent of the level."""
    return max(limit_pct, 100 * mads * noise / level)


def _drift(first: float, last: float, residuals: Sequence[float], limit_pct: float, mads: float) -> Drift | None:
    """From `first` to `last` on the line; `residuals`: distances of the values from it."""
    if first <= 0:
        return None
    drift = Drift(first, last, _limit(first, MAD_TO_SD * statistics.median(residuals), limit_pct, mads))
    return drift if abs(drift.change_pct) > drift.limit_pct else None


def _line(times: Sequence[float], values: Sequence[float]) -> tuple[float, float]:
    """Value at the first moment, and slope: medians of the residuals and of all pairs' slopes (Theil-Sen)."""
    from scipy.stats import theilslopes

    fit = theilslopes(values, [at - times[0] for at in times], method="joint")
    return float(fit.intercept), float(fit.slope)
