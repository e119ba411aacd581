"""The advice on limits, at its borders: figures that lie exactly on one."""

from __future__ import annotations

from typing import Any

import pytest

from tests.unit.comparison.test_noise_floor import floor_of
from trainbench.comparison import noise_floor
from trainbench.comparison.noise_floor import Floor, Spread
from trainbench.core.verdicts import Metric


class Fixed(Floor):
    """Chance reaches `chance[rounds]` percent, whatever the nodes."""

    chance: dict[int, float]

    def detectable_pct(self, rounds: int, peers: int | None, *, actual: bool = False) -> float | None:
        return self.chance[rounds]


def fixed(chance: dict[int, float], **fields: Any) -> Floor:
    return Fixed.model_validate(floor_of(0.3, **fields).model_dump() | {"chance": chance})


def spread(sd_pct: float) -> Spread:
    return Spread(sd_pct=sd_pct, low_pct=sd_pct / 2, high_pct=sd_pct * 2, degrees_of_freedom=9)


def test_a_limit_that_chance_just_reaches_is_sensible() -> None:
    assert "is sensible" in noise_floor._throughput(fixed({1: 5.0}), 5.0)
    assert "is too tight" in noise_floor._throughput(fixed({1: 5.1, 2: 5.0, 3: 4.0, 5: 3.0}), 5.0)


def test_the_fewest_rounds_that_just_do_are_advised() -> None:
    """With two rounds chance reaches the limit of 5 % exactly, which is enough."""
    assert "take 2 rounds, or raise it" in noise_floor._throughput(fixed({1: 5.1, 2: 5.0, 3: 4.0, 5: 3.0}), 5.0)


@pytest.mark.parametrize(("chance", "is_roomy"), [(1.6, True), (1.5, False), (1.7, False)])
def test_a_lower_limit_is_offered_where_chance_reaches_less_than_a_third_of_it(chance: float, is_roomy: bool) -> None:
    """3 x 1.6 = 4.8 is below 4.9; 3 x 1.5 = 4.5 is not below 4.5; 3 x 1.7 = 5.1 is above 5."""
    limit = {1.6: 4.9, 1.5: 4.5, 1.7: 5.0}[chance]
    assert ("would do as well" in noise_floor._throughput(fixed({1: chance}), limit)) is is_roomy


def test_a_spread_exactly_at_the_limit_is_tight_and_not_too_tight() -> None:
    floor = floor_of(0.1, largest={Metric.MEMORY_GB: 2.0})
    assert "is tight: the run furthest" in (noise_floor._advice_spread(floor, Metric.MEMORY_GB, 2.0) or "")
    over = floor_of(0.1, largest={Metric.MEMORY_GB: 2.01})
    assert "is too tight" in (noise_floor._advice_spread(over, Metric.MEMORY_GB, 2.0) or "")


@pytest.mark.parametrize(("seen", "word"), [(2.0, "sensible"), (2.1, "tight")])
def test_a_spread_of_more_than_half_the_limit_is_tight(seen: float, word: str) -> None:
    floor = floor_of(0.1, largest={Metric.MEMORY_GB: seen})
    assert f"is {word}: " in (noise_floor._advice_spread(floor, Metric.MEMORY_GB, 2.0 / noise_floor.TIGHT) or "")


def test_pods_differ_more_only_when_twice_as_much_as_windows() -> None:
    """0.2 is twice 0.1, and not more."""
    at = floor_of(0.2, between=spread(0.2), within=spread(0.1))
    above = floor_of(0.2, between=spread(0.21), within=spread(0.1))
    assert not any("Pods differ more" in sentence for sentence in noise_floor._sources(at))
    assert any("Pods differ more" in sentence for sentence in noise_floor._sources(above))


def test_the_history_s_limit_that_chance_just_reaches_is_sensible() -> None:
    assert "is sensible" in (noise_floor._past(fixed({1: 1.5})) or "")


def test_fewer_than_three_nodes_are_advised_as_if_they_were_four() -> None:
    """Of two nodes none can be judged, so nothing could be said of their limits."""
    assert [noise_floor.num_nodes(floor_of(0.3, nodes)) for nodes in (1, 2, 3, 8)] == [4, 4, 3, 8]


def test_pods_that_differ_exactly_as_much_as_windows_differ_no_more() -> None:
    def differs(between_pct: float) -> bool:
        floor = floor_of(between_pct, between=spread(between_pct), within=spread(0.1))
        return any("Pods differ no more than the windows" in sentence for sentence in noise_floor._sources(floor))

    assert [differs(pct) for pct in (0.05, 0.1, 0.11)] == [True, True, False]
