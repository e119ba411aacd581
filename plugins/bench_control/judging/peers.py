"""What a node is compared with: the values of its fleet -> the reference for one of them, and how certain that is."""

from __future__ import annotations

import statistics
from bisect import bisect_left
from collections.abc import Sequence

from bench_control.judging.noise import median_variance
from bench_control.words.verdicts import ReferenceMode

MIN_NODES = 3  # with two, either may be the odd one
OWN_REFERENCE = (ReferenceMode.HISTORY, ReferenceMode.FIXED)  # throughput only; they need no peers


def usable(healthy: Sequence[float], drilled: Sequence[float]) -> list[float]:
    """The values that may be a reference, ascending. What was slowed on purpose is none while there are enough others.

    Else a drill and one slow node among four would make the two good ones look fast.
    """
    return sorted(healthy) if len(healthy) >= MIN_NODES else sorted([*healthy, *drilled])


def reference_for(value: float, ordered: Sequence[float], mode: ReferenceMode) -> float:
    """What `value` is compared with; `ordered` are the fleet's values, ascending, at least MIN_NODES of them."""
    if mode is ReferenceMode.MEAN:
        return statistics.fmean(ordered)
    if mode is ReferenceMode.MEDIAN:
        return statistics.median(ordered)
    return others_median(value, ordered)


def others_median(value: float, ordered: Sequence[float]) -> float:
    """The median of `ordered` without one `value` (if it is there at all); of several medians the nearest to `value`.

    Of an even number of values, everything between the two middle ones is a median. Their mean would blame the good:
    of 10, 10 and 9 samples/s each 10 would be compared with 9.5 and read +5.3 %. With the nearest one, a node of three
    is off only if it is off from both others, and a majority of good nodes is never red for the bad ones' sake.
    """
    i = bisect_left(ordered, value)
    is_there = i < len(ordered) and ordered[i] == value
    num_others = len(ordered) - is_there
    low, high = (
        ordered[k + 1 if is_there and k >= i else k]  # the k-th of the others
        for k in ((num_others - 1) // 2, num_others // 2)
    )
    return min(max(value, low), high)


def reference_variance(mode: ReferenceMode, runs_of_nodes: Sequence[int]) -> float:
    """Upper bound of the reference's variance in units of one run's: the node with the fewest runs stands for all.

    The nearest median is never further from the node than the usual one, for which the bound is.
    """
    if mode in OWN_REFERENCE or not runs_of_nodes:
        return 0.0
    of_node = median_variance(min(runs_of_nodes))
    if mode is ReferenceMode.LEAVE_ONE_OUT_MEDIAN:
        return median_variance(max(len(runs_of_nodes) - 1, 1)) * of_node
    return median_variance(len(runs_of_nodes)) * of_node
