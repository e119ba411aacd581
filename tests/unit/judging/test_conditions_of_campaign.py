"""Why a node is not ok, in few words."""

from __future__ import annotations

from typing import Any

import pytest

from tests.builders import make_result
from tests.builders.campaigns import make_campaign
from tests.builders.verdicts import make_group, make_metric, make_node
from trainbench.core.verdicts import Confirmation, Metric, NodeVerdict, Side, State, Tolerances
from trainbench.judging.conditions_of_campaign import _unsteady, _watched, conditions, reason_of
from trainbench.judging.node_condition import Condition, NodeCondition
from trainbench.judging.over_time.baseline_deviation import judge_history
from trainbench.results.campaign import Campaign

PEERS = (make_node("peer-1"), make_node("peer-2"))


def test_a_breach_is_described_by_its_figures_and_anything_else_by_its_reason() -> None:
    slow = make_metric(9.0, 10.0, state=State.BREACH)
    breach = make_node("node-1", [slow], state=State.BREACH, reason="long words", confirm_deviation_pct=-9.0,
                       confirmation=Confirmation.CONFIRMED)  # fmt: skip
    assert reason_of(breach) == "samples/s \u221210.0 %, limit \u00b15 %, confirmed by a re-run with \u22129.0 %"
    assert reason_of(breach.model_copy(update={"state": State.FAILED})) == "long words"
    unmeasured = make_metric(None, 10.0, state=State.BREACH)
    assert reason_of(breach.model_copy(update={"metrics": (slow, unmeasured)})) == "long words"
    assert reason_of(breach.model_copy(update={"metrics": ()})) == "long words"


def test_a_watched_node_is_described_by_its_rate_and_any_other_by_its_reason() -> None:
    slow = make_metric(9.7, 10.0)
    watched = make_node("node-1", [slow], is_watched=True, reason="long words")
    assert _watched(watched) == "samples/s \u22123.0 %, limit \u00b15 %"
    assert _watched(watched.model_copy(update={"is_watched": False})) == "long words"
    assert _watched(watched.model_copy(update={"metrics": ()})) == "long words"


def test_an_unsteady_node_is_described_by_its_scatter() -> None:
    node = make_node("node-1", reason="long words", is_unsteady=True, unsteady_factor=12.4)
    assert _unsteady(node) == "it scatters 12 times as much as its peers"
    assert _unsteady(node.model_copy(update={"unsteady_factor": None})) == "long words"


def test_only_a_node_in_breach_has_a_breach() -> None:
    figures = [make_metric(9.0, 10.0, state=State.BREACH), make_metric(10.3, 10.0, metric=Metric.TEMPERATURE_C)]
    breach = make_node("node-1", figures, state=State.BREACH)
    assert reason_of(breach) == "samples/s \u221210.0 %, limit \u00b15 %"


def night(*verdicts: NodeVerdict, **fields: Any) -> Campaign:
    """One group for each verdict, each with the same two peers that are well."""
    groups = [make_group([verdict, *PEERS], f"group-{n}") for n, verdict in enumerate(verdicts, start=1)]
    return make_campaign([], groups, **fields)


def actual(*verdicts: NodeVerdict, **fields: Any) -> NodeCondition:
    first, *rest = conditions(night(*verdicts, **fields))
    assert [node.condition for node in rest] == [Condition.WELL] * 2
    return first


OK = make_node("node-1", reason="all is well")
SLOW = make_metric(8.0, 10.0, state=State.BREACH, side=Side.SLOW)


@pytest.mark.parametrize(
    ("other", "condition", "reason"),
    [
        (make_node("node-1", state=State.FAILED, reason="no image"), Condition.FAILED, "no image"),
        (make_node("node-1", state=State.BREACH, reason="slow"), Condition.BREACH, "slow"),
        (make_node("node-1", is_drill=True), Condition.DRILL, "not detected"),
        (
            make_node("node-1", [SLOW], state=State.BREACH, is_drill=True),
            Condition.DRILL,
            "detected: samples/s −20.0 %, limit",
        ),
        (
            make_node("node-1", is_unsteady=True, unsteady_factor=7.0),
            Condition.UNSTEADY,
            "it scatters 7 times as much ",
        ),
        (make_node("node-1", state=State.NOTICE, reason="once"), Condition.WATCHED, "once"),
        (make_node("node-1", [make_metric(9.7, 10.0)], is_watched=True), Condition.WATCHED, "samples/s −3.0 %, limit"),
        (make_node("node-1", state=State.INSUFFICIENT, reason="noise of 9 %"), Condition.UNDECIDED, "noise of 9 %"),
        (make_node("node-1", state=State.BUSY, reason="3 of 8 GPUs free"), Condition.BUSY, "3 of 8 GPUs free"),
    ],
)
@pytest.mark.parametrize("is_first", [True, False])
def test_of_two_works_the_worse_one_gives_the_condition_and_its_reason(
    other: NodeVerdict, condition: Condition, reason: str, is_first: bool
) -> None:
    """The other work went well, and its words are no reason for anything."""
    node = actual(*((other, OK) if is_first else (OK, other)))
    assert (node.node, node.condition) == ("node-1", condition)
    assert node.reason.startswith(reason)


def test_a_drilled_breach_is_no_breach_and_a_drilled_failure_is_one() -> None:
    failed = make_node("node-1", state=State.FAILED, is_drill=True, reason="no image")
    assert actual(failed).condition is Condition.FAILED


def test_a_node_behind_its_own_past_says_by_how_much() -> None:
    past = judge_history(make_result("node-1", 9.0), [10.0] * 10, Tolerances())
    well = judge_history(make_result("peer-1", 10.0), [10.0] * 10, Tolerances())
    node = actual(OK, history=(past, well))
    assert (node.condition, node.reason) == (Condition.BEHIND, "−10.0 %")


def test_a_work_that_one_node_did_alone_has_no_say_where_others_did_another() -> None:
    alone = make_group([make_node("node-1", state=State.INSUFFICIENT, reason="no peer")], "alone")
    judged = make_group([OK, *PEERS], "judged")
    (node, *_) = conditions(make_campaign([], [alone, judged]))
    assert node.condition is Condition.WELL
    (node, *_) = conditions(make_campaign([], [alone, make_group(PEERS, "judged")]))
    assert (node.condition, node.reason) == (Condition.UNDECIDED, "no peer did the same work")
