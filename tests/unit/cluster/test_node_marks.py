"""Who is marked, who is freed, and who is left alone: by table."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import pytest

from tests.builders import STARTED_AT
from tests.builders.campaigns import make_campaign
from tests.builders.verdicts import make_comparison, make_group, make_node
from trainbench.cluster.node_marks import (
    Decision,
    ListedNode,
    Mark,
    confirmed_reds,
    decide_marks,
    most_marked,
    nodes_to_free,
    why_marked,
)
from trainbench.core.verdicts import Metric, NodeVerdict, State, Why
from trainbench.results.campaign import Campaign

SHAPE = "the taint trainbench.io/breach:NoSchedule"
LONG_AGO = STARTED_AT - timedelta(days=400)


def verdict(node: str, rate: float = 9.0, **fields: Any) -> NodeVerdict:
    """Slow against peers of 10 samples/s, and confirmed, unless the fields say otherwise."""
    confirmed = make_comparison(rate, 10.0, rounds=(10 * rate - 100,) * 3)
    return make_node(node, rate, peers=10.0, **{"why": Why.SLOW, "comparisons": (confirmed,)} | fields)


def ok(node: str, **fields: Any) -> NodeVerdict:
    return make_node(node, 10.0, peers=10.0, **fields)


def night(*nodes: NodeVerdict, more: Sequence[NodeVerdict] = (), **fields: Any) -> Campaign:
    """`more`: verdicts at a second work."""
    groups = [make_group(nodes, "work-1"), *([make_group(more, "work-2")] if more else [])]
    return make_campaign([], groups, campaign_id=fields.pop("campaign_id", "night-2"), **fields)


def mark(*groups: str, **fields: Any) -> Mark:
    known = {"instance": "trainbench", "campaign_id": "night-1", "at": LONG_AGO, "reason": "samples/s -10.0 %"}
    return Mark(groups=groups or ("work-1",), **known | fields)


def listed(*names: str, **fields: Any) -> dict[str, ListedNode]:
    return {name: ListedNode(node=name, created_at=LONG_AGO, **fields) for name in names}


def marked(*names: str, **fields: Any) -> dict[str, ListedNode]:
    return listed(*names, **{"shape": SHAPE, "is_as_set": True, "mark": mark()} | fields)


def decided(campaign: Campaign, nodes: dict[str, ListedNode], most: int = 1) -> Decision:
    return decide_marks(campaign, nodes, "trainbench", most)


def names_to_mark(decision: Decision) -> list[str]:
    return [each.node for each, _ in decision.to_mark]


@pytest.mark.parametrize(
    ("fields", "is_confirmed"),
    [
        ({}, True),
        ({"is_drill": True}, False),
        ({"comparisons": (make_comparison(9.0, 10.0),)}, False),  # no re-run gave a figure
        ({"decided_by": None}, False),
        *(({"state": each}, False) for each in State if each is not State.RED),
        *(({"why": each}, False) for each in Why if each not in (Why.SLOW, Why.HOT, Why.HEAVY)),
        ({"why": Why.HOT, "state": State.RED, "comparisons": ()}, True),
        ({"why": Why.HEAVY, "state": State.RED, "comparisons": ()}, True),
        ({"why": Why.HOT, "comparisons": ()}, False),
    ],
)
def test_only_a_node_that_is_confirmed_to_be_slow_or_red_for_heat_or_memory_is_marked(
    fields: dict[str, Any], is_confirmed: bool
) -> None:
    decision = decided(night(verdict("node-1", **fields)), listed("node-1"))

    assert names_to_mark(decision) == (["node-1"] if is_confirmed else [])
    assert (decision.refused, decision.removed) == ((), ())


@pytest.mark.parametrize(
    ("campaign", "reason"),
    [
        (night(ok("node-2")), "it was not measured"),
        (night(verdict("node-1")), "it is not well"),
        (night(ok("node-2"), more=[ok("node-1")]), "1 work that it was marked at was not measured"),
        (night(ok("node-1", why=Why.BEHIND)), "not every verdict on it is well"),
        (night(ok("node-1")), None),
    ],
)
def test_why_a_node_stays_marked(campaign: Campaign, reason: str | None) -> None:
    assert why_marked(campaign, "node-1", mark()) == reason


def test_the_mark_says_by_whom_when_at_which_works_and_why() -> None:
    campaign = night(verdict("node-1"), more=[verdict("node-1", 8.0)])
    ((_, made),) = decided(campaign, listed("node-1")).to_mark

    assert made == Mark(
        instance="trainbench",
        campaign_id="night-2",
        at=campaign.finished_at,
        groups=("work-1", "work-2"),
        reason="samples/s −10.0 % against the median of 3 peers",
    )


@pytest.mark.parametrize(
    ("num_nodes", "max_pct", "most"), [(4, 10, 0), (9, 10, 0), (10, 10, 1), (39, 10, 3), (40, 10, 4), (4, 100, 4)]
)
def test_the_share_of_the_fleet_is_rounded_down(num_nodes: int, max_pct: int, most: int) -> None:
    assert most_marked(num_nodes, max_pct) == most


def test_where_the_share_is_used_up_the_slowest_nodes_are_marked_and_the_others_refused() -> None:
    campaign = night(verdict("node-1", 9.0), verdict("node-2", 7.0), verdict("node-10", 8.0))
    nodes = listed("node-1", "node-2", "node-10") | marked("node-3")
    decision = decided(campaign, nodes, most=3)

    assert list(confirmed_reds(campaign)) == ["node-2", "node-10", "node-1"]
    assert names_to_mark(decision) == ["node-2", "node-10"]
    (refusal,) = decision.refused
    assert (refusal.node, refusal.reason) == (
        "node-1", "3 nodes may be marked at the same time, and as many are (TRAINBENCH_KEEP_AWAY_MAX_PCT)",
    )  # fmt: skip
    (none,) = decided(night(verdict("node-1")), listed("node-1"), most=0).refused
    assert "less than one node" in none.reason


def test_a_mark_of_others_counts_and_is_left_alone() -> None:
    nodes = listed("node-1") | listed("node-2", shape=SHAPE)
    decision = decided(night(verdict("node-1"), verdict("node-2")), nodes, most=1)

    assert names_to_mark(decision) == []
    assert [refusal.node for refusal in decision.refused] == ["node-1"]
    assert nodes_to_free(night(ok("node-2")), nodes) == ()


@pytest.mark.parametrize(
    ("nodes", "reason"),
    [
        ({}, "the cluster does not list exactly one node of that name"),
        (
            {"node-1": ListedNode(node="node-1", created_at=STARTED_AT + timedelta(seconds=1))},
            "another machine has that name since the run began",
        ),
    ],
)
def test_a_node_that_is_gone_or_was_replaced_is_not_marked(nodes: dict[str, ListedNode], reason: str) -> None:
    decision = decided(night(verdict("node-1")), nodes)

    assert names_to_mark(decision) == []
    assert [refusal.reason for refusal in decision.refused] == [reason]


def test_a_marked_node_that_is_in_breach_again_needs_no_act_and_no_room() -> None:
    decision = decided(night(verdict("node-1")), marked("node-1"), most=0)

    assert decision == Decision((), (), ())


@pytest.mark.parametrize("fields", [{"mark": mark("work-2")}, {"is_as_set": False}])
def test_a_mark_of_another_work_or_shape_is_written_anew_and_keeps_its_date(fields: dict[str, Any]) -> None:
    ((_, made),) = decided(night(verdict("node-1")), marked("node-1", **fields), most=0).to_mark

    assert "work-1" in made.groups
    assert (made.at, made.campaign_id) == (LONG_AGO, "night-2")


@pytest.mark.parametrize("kept", ["mark", "freed"])
def test_who_removes_a_mark_by_hand_is_heeded_until_a_later_night(kept: str) -> None:
    """The task of that night runs again: it knows its own act from the node's annotation."""
    nodes: dict[str, ListedNode] = listed("node-1", **{kept: mark(campaign_id="night-2")})
    assert decided(night(verdict("node-1")), nodes) == Decision((), (), ("node-1",))

    later = night(verdict("node-1"), campaign_id="night-3")
    assert names_to_mark(decided(later, nodes)) == ["node-1"]


@pytest.mark.parametrize(
    ("campaign", "is_freed"),
    [
        (night(ok("node-1")), True),
        (night(ok("node-1"), more=[ok("node-1")]), True),
        (night(ok("node-1"), more=[verdict("node-1")]), False),
        (night(ok("node-1", is_drill=True)), False),
        *((night(ok("node-1", state=each)), False) for each in State if each is not State.WELL),
    ],
)
def test_a_node_is_freed_when_it_is_ok_at_every_work_that_it_was_marked_at(campaign: Campaign, is_freed: bool) -> None:
    assert [each.node for each in nodes_to_free(campaign, marked("node-1"))] == (["node-1"] if is_freed else [])


def test_a_node_too_hot_is_marked_and_its_rate_does_not_matter() -> None:
    hot = make_comparison(85.0, 60.0, metric=Metric.TEMPERATURE_C)
    campaign = night(verdict("node-1", why=Why.HOT, state=State.RED, comparisons=(hot,)), verdict("node-2"))

    assert list(confirmed_reds(campaign)) == ["node-2", "node-1"]
