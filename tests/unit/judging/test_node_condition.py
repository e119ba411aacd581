"""One condition for each node: the first rule that holds, and a headline that never says more than is known."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from trainbench.core.verdicts import State
from trainbench.judging.node_condition import (
    FRESH,
    TRAITS,
    Condition,
    Evidence,
    NodeCondition,
    Reach,
    condition_now,
    condition_of,
    fleet_summary,
)

NOW = datetime(2026, 11, 22, 3, 0, tzinfo=UTC)
RULES: dict[Condition, dict[str, Any]] = {
    Condition.FAILED: {"red_states": frozenset({State.FAILED})},
    Condition.MISSING: {"red_states": frozenset({State.MISSING})},
    Condition.BREACH: {"red_states": frozenset({State.BREACH})},
    Condition.ACKNOWLEDGED: {"is_acknowledged": True},
    Condition.STALE: {"judged_at": NOW - FRESH - timedelta(seconds=1)},
    Condition.DRILL: {"is_drill": True},
    Condition.BEHIND: {"is_behind": True},
    Condition.UNSTEADY: {"is_unsteady": True},
    Condition.WATCHED: {"is_watched": True},
    Condition.UNDECIDED: {"states": frozenset({State.OK, State.INSUFFICIENT})},
    Condition.BUSY: {"states": frozenset({State.OK, State.BUSY})},
    Condition.WELL: {},
}


def evidence(**fields: Any) -> Evidence:
    return Evidence(**{"node": "node-1", "now": NOW, "judged_at": NOW, "states": frozenset({State.OK})} | fields)


def of(**fields: Any) -> Condition:
    return condition_of(evidence(**fields)).condition


def nodes(*conditions: Condition, reason: str = "") -> list[NodeCondition]:
    return [NodeCondition(f"node-{n}", condition, None, reason) for n, condition in enumerate(conditions, start=1)]


def test_every_condition_has_a_rule_and_a_trait() -> None:
    assert list(RULES) == list(TRAITS) == list(Condition)


@pytest.mark.parametrize("condition", Condition)
def test_a_condition_holds_by_itself(condition: Condition) -> None:
    assert of(**RULES[condition]) is condition


@pytest.mark.parametrize("place", range(len(Condition) - 1))
def test_of_two_the_worse_one_is_the_condition(place: int) -> None:
    """Each with the next; both rules hold. UNDECIDED and BUSY stand in the same field."""
    worse, better = list(Condition)[place : place + 2]
    both = {**RULES[better], **RULES[worse]}
    states = RULES[better].get("red_states", frozenset()) | RULES[worse].get("red_states", frozenset())
    assert of(**both, **({"red_states": states} if states and "red_states" not in both else {})) is worse


@pytest.mark.parametrize("state", [state for state in State if state is not State.OK])
def test_no_state_but_ok_is_well(state: State) -> None:
    assert of(states=frozenset({state})) is not Condition.WELL
    assert of(states=frozenset({State.OK, state})) is not Condition.WELL


def test_a_node_without_a_verdict_is_not_well() -> None:
    assert of(states=frozenset()) is Condition.UNDECIDED
    assert of(states=frozenset(), judged_at=None) is Condition.STALE


def test_an_ok_of_six_days_ago_is_not_well() -> None:
    """36 hours to the second are fresh, by default."""
    assert of(judged_at=NOW - timedelta(days=6)) is Condition.STALE
    assert of(judged_at=NOW - timedelta(hours=36)) is Condition.WELL
    assert of(judged_at=NOW - timedelta(days=6), fresh=timedelta(days=7)) is Condition.WELL


def test_an_open_breach_is_hidden_by_nothing_that_came_later() -> None:
    later: dict[str, Any] = {**RULES[Condition.BUSY], "judged_at": NOW - timedelta(days=30), "is_drill": True}
    result = condition_of(evidence(**later, red_states=frozenset({State.BREACH}), red_since=NOW - timedelta(days=40)))
    assert (result.condition, result.since) == (Condition.BREACH, NOW - timedelta(days=40))


def test_undecided_says_since_when() -> None:
    last = NOW - timedelta(days=9)
    assert condition_of(evidence(states=frozenset({State.INSUFFICIENT}), decided_at=last)).since == last


def test_all_are_well_only_if_each_is() -> None:
    assert fleet_summary(nodes(*[Condition.WELL] * 4)).headline == "All 4 nodes are well."
    for condition in Condition:
        summary = fleet_summary(nodes(condition, *[Condition.WELL] * 3))
        assert summary.is_well is (condition is Condition.WELL)
        assert summary.headline.startswith("All 4 nodes are well.") is summary.is_well


def test_a_headline_names_the_worst_first_and_counts_the_rest() -> None:
    fleet = nodes(Condition.WELL, Condition.WATCHED, Condition.BREACH, Condition.WELL)
    fleet[2] = fleet[2]._replace(reason="samples/s −9.7 %")
    assert fleet_summary(fleet).headline == (
        "1 of 4 nodes is in breach: node-3 (samples/s −9.7 %); 1 is watched: node-2; 2 are well."
    )
    assert fleet_summary(fleet, most=0).headline == "1 of 4 nodes is in breach; 1 is watched; 2 are well."


def test_what_is_quiet_hides_no_warning_in_a_headline() -> None:
    fleet = nodes(Condition.STALE, Condition.ACKNOWLEDGED, Condition.WATCHED, Condition.WELL)
    assert fleet_summary(fleet, most=0).headline == (
        "1 of 4 nodes is watched; 1 is acknowledged; 1 was not checked lately; 1 is well."
    )


def test_a_headline_of_one_condition() -> None:
    shared = nodes(*[Condition.UNDECIDED] * 2, reason="the pair differs by 50 %")
    assert fleet_summary(shared).headline == (
        "None of 2 nodes could be judged: node-1 and node-2 (the pair differs by 50 %)."
    )
    assert fleet_summary(nodes(*[Condition.BUSY] * 7)).headline == (
        "All 7 nodes were busy: node-1, node-2, node-3, node-4, node-5 and 2 more."
    )
    assert fleet_summary(nodes(Condition.WELL)).headline == "1 of 1 node is well."
    assert fleet_summary(()).headline == "No node was judged."


def test_a_summary_reaches_as_far_as_its_worst_node() -> None:
    reaches = [fleet_summary(nodes(c, Condition.WELL)).reach for c in (Condition.BREACH, Condition.WATCHED)]
    assert reaches == [Reach.RED, Reach.WARNING]
    assert fleet_summary(nodes(Condition.BUSY, Condition.DRILL)).reach is Reach.QUIET


# --- later, in the light of open breaches and of age


def later(latest: Condition | None, hours: float = 1.0, **known: Any) -> NodeCondition:
    """The node's condition now, when the campaign that found `latest` ended so many hours ago."""
    was = latest and NodeCondition("node-1", latest, NOW - timedelta(hours=hours), "a phrase")
    return condition_now("node-1", was, now=NOW, **known)


@pytest.mark.parametrize("latest", [condition for condition in Condition if condition is not Condition.ACKNOWLEDGED])
def test_an_hour_later_a_condition_is_what_it_was_with_its_reason(latest: Condition) -> None:
    """A stale one does not stay so: its campaign has ended an hour ago."""
    result = later(latest)
    expected = Condition.WELL if latest is Condition.STALE else latest
    assert (result.condition, result.reason) == (expected, "" if latest is Condition.STALE else "a phrase")


@pytest.mark.parametrize("latest", [None, Condition.WELL, Condition.BUSY, Condition.WATCHED, Condition.DRILL])
def test_what_is_older_than_fresh_is_stale_since_its_campaign_ended(latest: Condition | None) -> None:
    condition = later(latest, hours=37)
    assert (condition.condition, condition.since) == (Condition.STALE, NOW - timedelta(hours=37) if latest else None)


@pytest.mark.parametrize("latest", [Condition.FAILED, Condition.MISSING, Condition.BREACH])
def test_red_of_any_age_stays_red_until_somebody_acknowledges_it(latest: Condition) -> None:
    since = NOW - timedelta(days=3)
    old = later(latest, hours=500, red_since=since)
    assert (old.condition, old.since) == (latest, since)
    seen = later(latest, hours=1, red_since=since, is_acknowledged=True)
    assert (seen.condition, seen.since, seen.reason) == (Condition.ACKNOWLEDGED, since, "")


def test_an_open_breach_counts_after_a_night_that_could_not_close_it() -> None:
    """Busy tonight, in breach since last week: in breach, and the reason that it was busy is none for that."""
    since = NOW - timedelta(days=7)
    condition = later(Condition.BUSY, red_states=frozenset({State.BREACH}), red_since=since)
    assert condition == NodeCondition("node-1", Condition.BREACH, since, "")


def test_undecided_and_busy_say_when_the_node_was_judged_last() -> None:
    judged = NOW - timedelta(days=2)
    assert later(Condition.UNDECIDED, decided_at=judged).since == judged
    assert later(Condition.BUSY, decided_at=judged).since == judged
    assert later(Condition.WELL, decided_at=judged).since is None


def test_names_are_in_natural_order_and_one_reason_stands_once() -> None:
    fleet = [NodeCondition(f"node-{n}", Condition.WATCHED, None, "slow") for n in (10, 2)]
    assert fleet_summary(fleet).headline == "All 2 nodes are watched: node-2 and node-10 (slow)."
    fleet[0] = fleet[0]._replace(reason="")
    assert fleet_summary(fleet).headline == "All 2 nodes are watched: node-2 (slow) and node-10."


def test_no_node_is_neither_well_nor_a_warning() -> None:
    nothing = fleet_summary(())
    assert (nothing.is_well, nothing.reach) == (False, Reach.QUIET)


def test_what_is_red_is_more_urgent_than_a_warning_and_that_than_the_rest() -> None:
    """An acknowledged breach is worse than a watched node, and less urgent: nobody need act on it."""
    urgent = sorted(nodes(*Condition), key=NodeCondition.urgency)
    assert [node.condition for node in urgent] == [
        Condition.FAILED, Condition.MISSING, Condition.BREACH, Condition.BEHIND, Condition.UNSTEADY, Condition.WATCHED,
        Condition.ACKNOWLEDGED, Condition.STALE, Condition.DRILL, Condition.UNDECIDED, Condition.BUSY, Condition.WELL,
    ]  # fmt: skip
    assert urgent[3].phrase == "node-7 fell behind its own past"
    assert urgent[3]._replace(reason="−3 %").phrase == "node-7 fell behind its own past: −3 %"
