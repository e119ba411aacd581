"""What a unit is compared with, and how far chance reaches."""

from __future__ import annotations

import math
import statistics

import pytest

from trainbench.core.verdicts import Against, Metric
from trainbench.judging.expectations import (
    Expected,
    Measured,
    by_peers,
    chance_of,
    compare_other,
    compare_rate,
    measured,
)
from trainbench.judging.node_runs import GpuPlace, Key
from trainbench.judging.noise import Noise, chance_quantile


def nodes(*rates: float) -> dict[Key, float]:
    return {Key(f"node-{i}"): rate for i, rate in enumerate(rates, 1)}


def gpus(**of_nodes: tuple[float, ...]) -> dict[Key, float]:
    return {Key(node, GpuPlace(i, None)): rate for node, rates in of_nodes.items() for i, rate in enumerate(rates)}


NODES = nodes(7.0, 9.0, 10.0, 11.0)
NODE_1, NODE_2, NODE_3, NODE_4 = NODES
GPU_0 = Key("a", GpuPlace(0, None))


@pytest.mark.parametrize(
    ("values", "key", "no_example", "found"),
    [
        (NODES, NODE_1, (), (10.0, "the median of 3 peers")),
        (NODES, NODE_3, (), (9.0, "the median of 3 peers")),
        # a drilled node is no example while another one is left
        (NODES, NODE_4, (NODE_1,), (9.5, "the median of 2 peers")),
        (NODES, NODE_4, (NODE_1, NODE_2), (10.0, "its only peer node-3")),
        (NODES, NODE_4, (NODE_1, NODE_2, NODE_3), (9.0, "the median of 3 peers")),
        # each other node counts once, by its median: 10 and 8; by GPU it would be 10
        (gpus(a=(7.0, 10.0), b=(10.0, 10.0, 10.0, 10.0), c=(8.0,)), GPU_0, (), (9.0, "the median of 2 peers")),
        # on one or two nodes each GPU counts
        (gpus(a=(7.0, 10.0, 11.0)), GPU_0, (), (10.5, "the median of 2 other GPUs")),
        (nodes(9.0, 10.0), NODE_1, (), (10.0, "its only peer node-2")),
        (nodes(9.0), NODE_1, (), None),
        (nodes(9.0, 10.0), NODE_1, (NODE_2,), None),
        (nodes(9.0, 10.0), NODE_2, (NODE_2,), (9.0, "its only peer node-1")),
    ],
)
def test_a_unit_is_compared_with_the_median_of_the_others(
    values: dict[Key, float], key: Key, no_example: tuple[Key, ...], found: tuple[float, str] | None
) -> None:
    expected = by_peers(values, no_example, 1)(key)
    assert (expected and (expected.value, expected.source)) == found


def test_re_runs_vary_by_their_own_error_and_the_controls() -> None:
    """One planned run: 1. A re-run with two controls: 1 + 2 * 1/2 = 2, mean of 1, 2, 2 = 5/3. Median of three: pi/6."""
    own = measured([0.0], [0.1, 0.2], 2, Noise(0.05, 10**7), 4)
    assert own.rounds == (0.0, 0.1, 0.2)
    assert own.variance == pytest.approx(5 / 3 * math.pi / 6)
    assert own.value == pytest.approx(math.exp(0.1))
    assert measured([0.0, 0.4], [], 0, None, 4) == Measured((0.2,), 0.2, 0.5)


@pytest.mark.parametrize(
    ("rounds", "mean"),
    [
        ((-0.1, -0.04), -0.07),
        ((0.0, 0.01, 0.047), 0.019),
        ((0.0, 0.01, 0.05), 0.005),
        ((-0.02, 0.01, 0.01), 0.01),
        ((-0.1, 0.0, 0.2), 0.0),
    ],
)
def test_a_round_that_chance_does_not_explain_was_disturbed(rounds: tuple[float, ...], mean: float) -> None:
    """Noise 1 % and four units: chance is 2.806 %, with two controls 2.806 * sqrt(2) = 3.97 % for a re-run. Of two
    rounds nobody knows which one was disturbed, although only the first is beyond its chance.
    """
    first, *again = rounds
    assert measured([first], again, 2, Noise(0.01, 10**7), 4).mean == pytest.approx(mean)
    assert measured([first], again, 2, None, 4).mean == statistics.median(rounds)


@pytest.mark.parametrize(("slower", "is_off"), [(9.0, False), (9.23, False), (9.24, True), (10.0, True)])
def test_a_rate_is_off_where_it_is_slower_than_each_of_two_peers(slower: float, is_off: bool) -> None:
    """9 against 10 is -10 %. Beside the slower one it has to be 2.5 % slower: 9 / 9.23 is -2.49 %, 9 / 9.24 -2.6 %."""
    own = Measured((math.log(9.0),), math.log(9.0), 1.0)
    expected = Expected(10.0, "the median of 2 peers", slower=slower)
    found = compare_rate(own, expected, Against.PEERS, 5.0, None)
    assert (found.is_off, found.source.endswith(", one of which is as slow")) == (is_off, not is_off)


def test_a_rate_is_off_beyond_the_limit_and_chance_in_each_round() -> None:
    def off(*rounds: float, chance: float | None = None) -> bool:
        logs = tuple(map(math.log, rounds))
        own = Measured(logs, statistics.median(logs), 1.0)
        return compare_rate(own, Expected(10.0, "x"), Against.PEERS, 5.0, chance).is_off

    assert off(9.4)
    assert not off(9.5)  # exactly the limit
    assert not off(10.6)  # faster is never off
    assert off(9.4, 9.3, 9.4)
    assert not off(9.0, 9.0, 9.8)  # one of three rounds is within half of the limit
    assert not off(9.4, chance=-math.log(0.93))  # chance reaches 7 %
    assert off(9.2, chance=-math.log(0.93))


def test_chance_by_hand() -> None:
    """1 % noise, variances 1 and 0.44: quantile * 1 % * 1.2. With own noise of 3 %: hypot of 3 % and 0.6633 %."""
    own, peers, pool = Measured((0.0,), 0.0, 1.0), Expected(10.0, "x", 0.44), Noise(0.01, 10**7)
    quantile = chance_quantile(10**7, 4)
    assert chance_of(own, peers, pool, pool, 4) == pytest.approx(quantile * 0.012)
    wide = chance_of(own, peers, pool, Noise(0.03, 10**7), 4)
    assert wide == pytest.approx(quantile * math.hypot(0.03, 0.01 * 0.44**0.5), rel=1e-6)
    assert chance_of(own, peers, None, None, 4) is chance_of(own, peers, None, pool, 4) is None


@pytest.mark.parametrize(("value", "off"), [(71.0, False), (71.1, True), (40.0, False)])
def test_only_hotter_is_bad(value: float, off: bool) -> None:
    hot = compare_other(Metric.TEMPERATURE_C, value, Expected(61.0, "x"), Against.PEERS, 10.0)
    assert hot.is_off is off
    assert hot.is_over is (value == 40.0)


@pytest.mark.parametrize(("value", "is_over"), [(13.5, False), (14.5, True), (5.0, False)])
def test_what_chance_hides_of_a_slower_node_it_hides_of_a_faster_one(value: float, is_over: bool) -> None:
    """Chance reaches 30 % down to 7 of 10, so up to 10 / 0.7 = 14.3."""
    own = Measured((math.log(value),), math.log(value), 1.0)
    assert compare_rate(own, Expected(10.0, "x"), Against.PEERS, 5.0, -math.log(0.7)).is_over is is_over
