"""What each unit should have made tonight: by its peers, by its own past, by the known level of its GPU.

A unit is a node, or one GPU of a node that measured each of its GPUs by itself.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import cache
from typing import NamedTuple

from trainbench.core.formats import count
from trainbench.core.grouping import grouped
from trainbench.core.verdicts import Against, Comparison, Metric
from trainbench.judging.node_runs import Key
from trainbench.judging.noise import Noise, deviation_pct, median_variance, to_pct

# Of limit and chance: each round alone, and beside each of two peers, must be slower than that, so that neither two
# chances nor one wrong peer make a breach.
ALONE_SHARE = 0.5


class Measured(NamedTuple):
    """The samples/s of one unit, as logarithms. `rounds`: the median of its planned rounds, then each re-run, less what
    the control nodes changed since. `mean`: of the rounds that chance explains. `variance`: in units of one run's.
    """

    rounds: tuple[float, ...]
    mean: float
    variance: float

    @property
    def value(self) -> float:
        return round(math.exp(self.mean), 9)  # so that 10 stays 10


class Expected(NamedTuple):
    """`value`: of the metric. `variance`: of its logarithm, in units of one run's variance."""

    value: float
    source: str
    variance: float = 0.0
    is_of_one: bool = False  # the only peer
    slower: float | None = None  # of two peers, of which nobody knows which one is typical


def measured(
    first: Sequence[float], again: Sequence[float], num_controls: int, noise: Noise | None, num_units: int
) -> Measured:
    """From logarithms of single runs. Each re-run has its own error and that of the controls' change.

    A round that lies further from the median of all than chance among `num_units` was disturbed, and does not count: of
    three or more, since of two nobody knows which one was.
    """
    of_first, planned = median_variance(len(first)), statistics.median(first)
    if not again:
        return Measured((planned,), planned, of_first)
    of_again = 1 + (2 * median_variance(num_controls) if num_controls else 0.0)
    rounds, variances = (planned, *again), (of_first, *[of_again] * len(again))
    middle = statistics.median(rounds)
    usual = [
        log
        for log, variance in zip(rounds, variances, strict=True)
        if noise and len(rounds) > 2 and abs(log - middle) <= noise.chance(variance, num_units)
    ]
    variance = statistics.fmean(variances) * median_variance(len(rounds))
    return Measured(rounds, statistics.fmean(usual or [middle]), variance)


def by_peers(
    values: Mapping[Key, float], no_example: Collection[Key], runs_of_one: int
) -> Callable[[Key], Expected | None]:
    """A function from a unit to the median of its peers. `values`: unit -> its figure; `no_example`: units that are no
    reference while another one is left: drilled, shared and unsteady ones, and those that are impossibly fast.

    Each other node counts once, by the median of its GPUs. With fewer than two other nodes each GPU counts, those of
    the same node too. None: no peer at all, or one only that is no reference.
    """
    examples = {key: value for key, value in values.items() if key not in no_example}

    @cache  # the GPUs of a node have the same peers
    def medians(node: str, *, of_examples: bool) -> Sequence[float]:
        some = examples if of_examples else values
        others = grouped((key.node, value) for key, value in some.items() if key.node != node)
        return sorted(map(statistics.median, others.values()))

    def expected(key: Key) -> Expected | None:
        of_examples = len(examples) > (key in examples)
        if not of_examples and len(values) == 2:
            return None
        some, peers, noun = examples if of_examples else values, medians(key.node, of_examples=of_examples), "peer"
        if len(peers) < 2:  # each GPU counts, those of the same node too
            single = {other: value for other, value in some.items() if other != key}
            peers, noun = sorted(single.values()), "other GPU" if len(single) > len(peers) else "peer"
            if not single:
                return None
            if len(single) == 1:
                (only,) = single
                name = f"GPU {only.gpu.index}" if only.gpu and only.node == key.node else only.node
                return Expected(single[only], f"its only peer {name}", median_variance(runs_of_one), is_of_one=True)
        return Expected(
            statistics.median(peers),
            f"the median of {count(len(peers), noun)}",
            median_variance(len(peers)) * median_variance(runs_of_one),
            slower=peers[0] if len(peers) == 2 else None,
        )

    return expected


def compare_rate(
    own: Measured, expected: Expected, against: Against, limit_pct: float, chance: float | None
) -> Comparison:
    """`chance`: the largest deviation that chance shows, as a logarithm; None: no noise is known. The rate is off where
    each round alone is slower, and slower than each of two peers: of two that differ nobody knows which one is right.
    """
    chance_pct = None if chance is None else to_pct(chance)
    rounds = tuple(deviation_pct(math.exp(rate), expected.value) for rate in own.rounds)
    deviation = deviation_pct(own.value, expected.value)
    least = max(limit_pct, chance_pct or 0.0)
    is_off = deviation < -least and all(alone < -ALONE_SHARE * least for alone in rounds)
    is_as_slow = expected.slower is not None and deviation_pct(own.value, expected.slower) >= -ALONE_SHARE * least
    return Comparison(
        metric=Metric.SAMPLES_PER_SECOND,
        against=against,
        value=own.value,
        expected=expected.value,
        source=f"{expected.source}, one of which is as slow" if is_off and is_as_slow else expected.source,
        deviation=deviation,
        limit=limit_pct,
        chance=chance_pct,
        rounds=rounds,
        is_off=is_off and not is_as_slow,
    )


def chance_of(
    own: Measured, expected: Expected, pool: Noise | None, noise: Noise | None, num_units: int
) -> float | None:
    """The largest deviation from `expected` by chance, as a logarithm.

    `noise`: by which the unit is judged, that of the fleet (`pool`) or its own.
    """
    if pool is None or noise is None:
        return None
    if noise is pool:
        return pool.chance(own.variance + expected.variance, num_units)
    return math.hypot(noise.chance(own.variance, num_units), pool.chance(expected.variance, num_units))


def compare_other(metric: Metric, value: float, expected: Expected, against: Against, limit: float) -> Comparison:
    """Memory in percent, temperature in degrees C: only more is bad. They are no matter of chance."""
    hot = metric is Metric.TEMPERATURE_C
    deviation = round(value - expected.value, 9) if hot else deviation_pct(value, expected.value)
    return Comparison(
        metric=metric,
        against=against,
        value=value,
        expected=expected.value,
        source=expected.source,
        deviation=deviation,
        limit=limit,
        is_off=deviation > limit,
    )
