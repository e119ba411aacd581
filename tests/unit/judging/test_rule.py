"""The rule: what peers, past and level say together, and everything else that makes a state."""

from __future__ import annotations

from typing import Any

import pytest

from trainbench.core.verdicts import Against, Comparison, Metric, State, Tolerances, Why
from trainbench.judging.rule import Facts, decide, is_suspect

RATE = Metric.SAMPLES_PER_SECOND
LIMITS = {Against.PEERS: 5.0, Against.PAST: 1.5, Against.LEVEL: 4.0}


def rate(against: Against, deviation: float, *again: float, chance: float | None = 0.5) -> Comparison:
    off = deviation < -max(LIMITS[against], chance or 0)
    return Comparison(
        metric=RATE,
        against=against,
        value=10 + deviation / 10,
        expected=10.0,
        source="x",
        deviation=deviation,
        limit=LIMITS[against],
        chance=chance,
        rounds=(deviation, *again),
        is_off=off,
    )


def why(peers: float | None = None, past: float | None = None, level: float | None = None, **facts: Any) -> Why:
    given = {Against.PEERS: peers, Against.PAST: past, Against.LEVEL: level}
    compared = tuple(rate(against, off) for against, off in given.items() if off is not None)
    again = {"asked": tuple(c.against for c in compared if is_suspect([c]))}
    return decide(Facts(compared, Tolerances(), **again | facts)).why


@pytest.mark.parametrize(
    ("peers", "past", "level", "expected"),
    [
        (-8.0, -8.0, None, Why.SLOW),
        (-8.0, None, None, Why.SLOW),
        (-8.0, 0.0, None, Why.SLOW),  # as it always was
        (0.0, -8.0, None, Why.BEHIND),  # here alone
        (8.0, 0.0, None, Why.WELL),  # the others are slow
        (0.0, 0.0, -9.0, Why.BEHIND),
        (0.0, 0.0, 0.0, Why.WELL),
        (-3.0, None, None, Why.BEHIND),  # beyond half of the limit
        (-2.5, None, None, Why.WELL),
        (0.0, -1.0, None, Why.BEHIND),  # half of 1.5 %
        (None, -8.0, 0.0, Why.SLOW),  # nobody to compare with: the past decides
        (None, 0.0, -9.0, Why.BEHIND),
        (None, None, -9.0, Why.SLOW),
        (None, None, 0.0, Why.WELL),
        (None, None, None, Why.NOTHING_TO_COMPARE),
    ],
)
def test_the_table(peers: float | None, past: float | None, level: float | None, expected: Why) -> None:
    assert why(peers, past, level) is expected


@pytest.mark.parametrize(
    ("peers", "past", "level", "expected"),
    [
        (0.1, None, None, Why.WELL),
        (-9.0, None, None, Why.PAIR),
        (9.0, None, None, Why.PAIR),
        (-9.0, -9.0, None, Why.SLOW),
        (9.0, 0.0, None, Why.WELL),
        (-9.0, None, -9.0, Why.SLOW),
        (-9.0, 0.0, -9.0, Why.BEHIND),
        (0.0, 0.0, -9.0, Why.BEHIND),
        (-4.94, None, None, Why.BEHIND),
        (-5.0, None, None, Why.BEHIND),  # exactly the limit
        (5.2, None, None, Why.WELL),  # the faster one of the same two: 1 / 1.052 is -4.94 %
        (5.3, None, None, Why.PAIR),  # -5.03 %
    ],
)
def test_with_one_peer(peers: float, past: float | None, level: float | None, expected: Why) -> None:
    assert why(peers, past, level, only_peer=True) is expected


def test_of_two_nodes_that_became_slower_together_none_is_blamed() -> None:
    """Unless they differ: then the past decides. Of 9 and 8.555 samples/s one is 4.94 % below the other, that one 5.2 %
    above it: both changed.
    """
    assert why(-4.94, -14.4, only_peer=True, fleet_changed=True) is Why.CHANGED
    assert why(5.2, -10.0, only_peer=True, fleet_changed=True) is Why.CHANGED
    assert why(-5.0, -10.0, only_peer=True, fleet_changed=True) is Why.CHANGED  # exactly the limit
    assert why(-0.1, -2.5, only_peer=True, fleet_changed=True) is Why.CHANGED
    assert why(-9.0, -11.0, only_peer=True, fleet_changed=True) is Why.SLOW


def test_an_accepted_level_excuses_what_the_node_always_was_and_nothing_else() -> None:
    assert why(-8.0, 0.0, has_accepted_level=True) is Why.WELL
    assert why(-8.0, -8.0, has_accepted_level=True) is Why.SLOW


def test_of_a_shared_gpu_no_fault_is_told_but_that_it_is_shared() -> None:
    for peers, past in ((-17.0, None), (-4.0, None), (0.0, -2.0)):
        assert why(peers, past, shared="1 other process") is Why.SHARED
    assert why(-1.0, shared="1 other process") is Why.WELL
    assert why(0.0, shared="1 other process", unsteady="it scatters") is Why.SHARED


def test_heat_and_memory_ask_for_a_look_or_are_red_by_setting() -> None:
    def hot(**limits: Any) -> State:
        off = rate(Against.PEERS, 0.0).model_copy(update={"metric": Metric.TEMPERATURE_C, "is_off": True})
        return decide(Facts((rate(Against.PEERS, 0.0), off), Tolerances(**limits))).state

    assert hot() is State.LOOK
    assert hot(also_red=(Metric.TEMPERATURE_C,)) is State.RED
    assert hot(also_red=(Metric.MEMORY_GB,)) is State.LOOK


BLIND = 10.1  # percent: chance hides twice the limit


@pytest.mark.parametrize(
    ("peers", "past", "level", "expected"),
    [
        (10.0, None, None, Why.WELL),
        (BLIND, None, None, Why.NOISY),
        (BLIND, 1.0, None, Why.WELL),
        (BLIND, BLIND, 1.0, Why.WELL),
        (20.0, BLIND, 30.0, Why.NOISY),
        (None, BLIND, 1.0, Why.WELL),
    ],
)
def test_a_node_is_well_by_the_first_expectation_whose_noise_shows_twice_the_limit(
    peers: float | None, past: float | None, level: float | None, expected: Why
) -> None:
    """The arguments are what chance shows."""
    given = zip(Against, (peers, past, level), strict=True)
    compared = tuple(rate(against, 0.0, chance=chance) for against, chance in given if chance is not None)
    decision = decide(Facts(compared, Tolerances()))
    assert decision.why is expected
    if expected is Why.NOISY:
        assert decision.reason == "only a slowdown of 10.1 % would differ from chance, the limit is 5 %"


@pytest.mark.parametrize(
    ("compared", "only_peer", "why", "reason"),
    [
        # of two nodes alike the past says that one is well
        ((rate(Against.PEERS, 0.0), rate(Against.PAST, -0.5)), True, Why.WELL, "9.95 samples/s, 99.5 % of x (10.0)"),
        # a noisy past that shows the node slow decides before the level
        ((rate(Against.PAST, -12.0, chance=BLIND), rate(Against.LEVEL, 0.0)), False, Why.SLOW,
         "samples/s \u221212.0 % against x, limit 1.5 %, chance 10.1 %"),
        # one that sees nothing says nothing of a node that is slow beside its peers: neither that it was always so
        ((rate(Against.PEERS, -8.0), rate(Against.PAST, 0.0, chance=BLIND)), False, Why.SLOW,
         "samples/s \u22128.0 % against x, limit 5 %"),
        # it was always so, or is since it changed; each re-run is told
        ((rate(Against.PEERS, -8.0), rate(Against.PAST, 0.0)), False, Why.SLOW,
         "samples/s \u22128.0 % against x, limit 5 %; as it always was "
         "(samples/s 0.0 % against x, limit 1.5 %): accept its level if that is meant"),
        ((rate(Against.PEERS, -8.0, -8.1, -7.9), rate(Against.PAST, -8.0)), False, Why.SLOW,
         "samples/s \u22128.0 % against x, limit 5 %; \u22128.0 % first, then \u22128.1 % and \u22127.9 %; "
         "samples/s \u22128.0 % against x, limit 1.5 %"),
        # the level is what a person knows; beside a peer it is the past
        ((rate(Against.PAST, 0.0), rate(Against.LEVEL, -1.0)), False, Why.WELL,
         "9.90 samples/s, 99.0 % of x (10.0, band 96 to 104 %)"),
        ((rate(Against.PEERS, 0.0), rate(Against.PAST, 0.0), rate(Against.LEVEL, -1.0)), True, Why.WELL,
         "10.0 samples/s, 100.0 % of x (10.0)"),
    ],
)  # fmt: skip
def test_by_what_a_node_is_judged(compared: tuple[Comparison, ...], only_peer: bool, why: Why, reason: str) -> None:
    decision = decide(Facts(compared, Tolerances(), only_peer=only_peer))
    assert (decision.why, decision.reason) == (why, reason)


@pytest.mark.parametrize(
    ("level", "expected"), [(None, Why.PAIR), (0.0, Why.WELL), (-12.0, Why.SLOW)], ids=["pair", "well", "slow"]
)
def test_of_two_nodes_that_differ_a_past_that_sees_nothing_leaves_the_decision_to_the_level(
    level: float | None, expected: Why
) -> None:
    compared = [rate(Against.PEERS, 12.0), rate(Against.PAST, 0.0, chance=BLIND)]
    compared += [] if level is None else [rate(Against.LEVEL, level)]
    assert decide(Facts(tuple(compared), Tolerances(), only_peer=True)).why is expected


def test_scatter_far_outside_is_unsteady_where_nothing_is_worse() -> None:
    assert why(0.0, unsteady="scatters by 9 %") is Why.UNSTEADY
    assert why(-8.0, unsteady="scatters by 9 %") is Why.SLOW


def test_a_drill_is_a_drill_detected_or_not() -> None:
    slow = decide(Facts((rate(Against.PEERS, -75.0),), Tolerances(), is_drill=True))
    assert (slow.state, slow.why) == (State.DRILL, Why.SLOW)
    missed = decide(Facts((rate(Against.PEERS, 0.0),), Tolerances(), is_drill=True))
    assert (missed.state, missed.why) == (State.DRILL, Why.DRILL)


@pytest.mark.parametrize(
    ("deviation", "facts", "why", "is_unanswered"),
    [
        (-8.0, {}, Why.SLOW, False),
        (0.0, {}, Why.ONCE, False),
        (-4.5, {}, Why.BEHIND, False),  # as slow in its re-runs: not once
        (-8.0, {"no_rerun": "evicted"}, Why.SLOW, True),
        (-4.5, {"no_rerun": "evicted"}, Why.BEHIND, True),  # nearly at the limit
    ],
)
def test_what_the_re_runs_say(deviation: float, facts: dict[str, Any], why: Why, is_unanswered: bool) -> None:
    given = {"asked": (Against.PEERS,)} | facts
    decision = decide(Facts((rate(Against.PEERS, deviation),), Tolerances(), **given))
    assert decision.why is why
    assert decision.reason.endswith("; evicted") is is_unanswered


@pytest.mark.parametrize(
    ("deviation", "chance", "suspect"), [(-4.0, 0.5, False), (-4.1, 0.5, True), (-4.1, 4.2, False)]
)
def test_re_runs_begin_at_four_fifths_of_the_limit(deviation: float, chance: float, suspect: bool) -> None:
    assert is_suspect([rate(Against.PEERS, deviation, chance=chance)]) is suspect
