"""A drill: the node that was slowed on purpose must be in breach for its speed; else the run is red and says why."""

from __future__ import annotations

import pytest

from bench_image.contract.spec import Drill
from tests.builders import make_failed, make_result
from tests.builders.verdicts import make_group, make_metric, make_node
from trainbench.core.verdicts import Level, Metric, MetricVerdict, NodeVerdict, Side, State
from trainbench.judging.checks.drills import undetected_drill_findings, undetected_drills

DRILL = Drill(slowdown_pct=20)


def rate_of(
    value: float, state: State, side: Side | None = None, metric: Metric = Metric.SAMPLES_PER_SECOND
) -> MetricVerdict:
    return make_metric(value, 10.0, metric=metric, state=state, side=side)


def drilled(node: NodeVerdict) -> list[str]:
    results = [make_result("node-1"), make_result("node-3", drill=DRILL)]
    return [
        f.headline
        for f in undetected_drills(undetected_drill_findings([make_group([make_node("node-1"), node], "g")], results))
    ]


def test_a_drill_that_is_found_is_no_finding() -> None:
    assert drilled(make_node("node-3", [rate_of(8.0, State.BREACH, Side.SLOW)], state=State.BREACH)) == []


@pytest.mark.parametrize("state", [State.OK, State.NOTICE, State.INSUFFICIENT])
def test_a_drill_that_is_not_found_is_red_and_says_why(state: State) -> None:
    """9.69 against 10 samples/s: -3.1 %."""
    node = make_node("node-3", [rate_of(9.69, state)], state=state)

    assert drilled(node) == [
        "DRILL: node-3 was slowed on purpose, and the check did not detect it: "
        f"slowed by 20 %, measured \u22123.1 %, verdict {state.value}"
    ]


def test_a_breach_for_another_reason_than_speed_finds_no_drill() -> None:
    hot = rate_of(90.0, State.BREACH, Side.HIGH, Metric.TEMPERATURE_C)
    node = make_node("node-3", [rate_of(9.9, State.OK), hot], state=State.BREACH)

    assert drilled(node) == [
        "DRILL: node-3 was slowed on purpose, and the check did not detect it: "
        "slowed by 20 %, measured \u22121.0 %, verdict breach"
    ]


@pytest.mark.parametrize(
    ("state", "advice"),
    [(State.BUSY, "run the drill again when the node is free"), (State.FAILED, "repair the node, then drill it again")],
)
def test_a_drill_on_a_node_that_was_busy_or_failed_is_no_success(state: State, advice: str) -> None:
    groups = [make_group([make_node("node-3", state=state, reason="no room on the node")], "g")]
    (finding,) = undetected_drill_findings(groups, [make_failed("node-3", drill=DRILL)])

    assert (finding.level, finding.subject, finding.resolution) == (Level.ERROR, "node-3", advice)
    assert finding.measured == f"slowed by 20 %, not measured, verdict {state.value}: no room on the node"


def test_of_two_works_one_that_finds_the_drill_is_enough() -> None:
    """`independent` sees the slow GPU, `ddp` is not compared with anybody."""
    groups = [
        make_group([make_node("node-3", [rate_of(8.0, State.BREACH, Side.SLOW)], state=State.BREACH)], "independent"),
        make_group([make_node("node-3", state=State.INSUFFICIENT)], "ddp"),
    ]

    assert undetected_drill_findings(groups, [make_result("node-3", drill=DRILL)]) == ()


def test_of_two_works_that_miss_a_drill_the_slower_is_named() -> None:
    nodes = [make_node("node-3", [rate_of(rate, State.OK)]) for rate in (9.9, 9.7)]
    groups = [make_group([node], f"g{i}") for i, node in enumerate(nodes)]
    (finding,) = undetected_drill_findings(groups, [make_result("node-3", drill=DRILL)])
    assert "measured \u22123.0 %" in finding.measured
