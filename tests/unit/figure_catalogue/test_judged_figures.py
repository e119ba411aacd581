"""The figures of the verdict, by hand."""

from __future__ import annotations

import math

import pytest

from tests.builders.judged_nights import judged_night, runs
from trainbench.core.verdicts import Against
from trainbench.judging.expectations import Expected, by_peers, compare_rate, measured
from trainbench.judging.node_runs import Key


def test_the_deviation_by_hand() -> None:
    """Rounds of 8, 9 and 10 against 10: their median is 10 % below."""
    own = measured([math.log(rate) for rate in (8.0, 9.0, 10.0)], (), 0, None, 4)
    assert compare_rate(own, Expected(10.0, "peers"), Against.PEERS, 5.0, None).deviation == pytest.approx(-10.0)


def test_the_median_of_the_peers_by_hand() -> None:
    """A node is no peer of itself: of 7 beside 9, 10 and 12 the expectation is 10."""
    values = {Key(f"node-{i}", None): rate for i, rate in enumerate((7.0, 9.0, 10.0, 12.0))}
    expected = by_peers(values, (), 1)(Key("node-0", None))
    assert expected is not None
    assert expected.value == 10.0


def test_the_spread_by_hand() -> None:
    """8 and 10 around a median of 10: 20 %."""
    results = [run for i, rate in enumerate((8.0, 10.0, 10.0, 10.0), 1) for run in runs(f"node-{i}", rate)]
    (group,) = judged_night(results).groups
    assert group.spread_pct == pytest.approx(20.0, abs=0.1)
