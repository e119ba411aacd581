"""A drill: the node that was slowed on purpose must be found slow; else the run is red and says why."""

from __future__ import annotations

from typing import Any

import pytest

from bench_image.contract.spec import Drill
from tests.builders import make_failed, make_result
from tests.builders.verdicts import make_group, make_node
from trainbench.core.verdicts import Level, NodeVerdict, State, Why
from trainbench.judging.checks.drills import undetected_drill_findings

DRILL = Drill(slowdown_pct=20)


def drilled(*nodes: NodeVerdict) -> list[str]:
    """The headlines where each node verdict is that of one work."""
    groups = [make_group([make_node("node-1"), node], f"g{i}") for i, node in enumerate(nodes)]
    results = [make_result("node-1"), make_result("node-3", drill=DRILL)]
    return [finding.headline for finding in undetected_drill_findings(groups, results)]


def node_3(rate: float | None = 9.69, why: Why = Why.DRILL, **fields: Any) -> NodeVerdict:
    return make_node("node-3", rate, peers=10.0, why=why, is_drill=True, **fields)


def test_a_drill_that_is_found_is_no_finding() -> None:
    assert drilled(node_3(8.0, Why.SLOW)) == []


@pytest.mark.parametrize("node", [node_3(), node_3(why=Why.NOISY, state=State.NOT_CHECKED)])
def test_a_drill_that_is_not_found_is_red_and_says_why(node: NodeVerdict) -> None:
    """9.69 against 10 samples/s: -3.1 %."""
    assert drilled(node) == [
        "DRILL: node-3 was slowed on purpose, and the check did not detect it: slowed by 20 %, measured \u22123.1 %"
    ]


def test_a_node_that_is_slow_and_not_drilled_is_another_finding() -> None:
    """The state says whether a verdict is that of a drill."""
    assert len(drilled(node_3(8.0, Why.SLOW, state=State.RED))) == 1


@pytest.mark.parametrize(
    ("why", "advice", "state"),
    [
        (Why.BUSY, "run the drill again when the node is free", "not checked: busy"),
        (Why.FAILED, "repair the node, then drill it again", "red: failed"),
    ],
)
def test_a_drill_on_a_node_that_was_busy_or_failed_is_no_success(why: Why, advice: str, state: str) -> None:
    groups = [make_group([make_node("node-3", None, why=why, reason="no room on the node")], "g")]
    (finding,) = undetected_drill_findings(groups, [make_failed("node-3", drill=DRILL)])

    assert (finding.level, finding.subject, finding.resolution) == (Level.ERROR, "node-3", advice)
    assert finding.measured == f"slowed by 20 %, {state}: no room on the node"


def test_of_two_works_that_miss_a_drill_for_two_reasons_the_drill_is_repeated() -> None:
    verdicts = [make_node("node-3", None, why=why) for why in (Why.BUSY, Why.FAILED)]
    groups = [make_group([verdict], f"g{i}") for i, verdict in enumerate(verdicts)]
    (finding,) = undetected_drill_findings(groups, [make_failed("node-3", drill=DRILL)])
    assert finding.resolution.startswith("drill it again with more rounds")


def test_of_two_works_one_that_finds_the_drill_is_enough() -> None:
    """`independent` sees the slow GPU, `ddp` is not compared with anybody."""
    assert drilled(node_3(8.0, Why.SLOW), node_3(None, Why.NOTHING_TO_COMPARE, state=State.NOT_CHECKED)) == []


def test_of_two_works_that_miss_a_drill_the_slower_is_named() -> None:
    (headline,) = drilled(node_3(9.9), node_3(9.7))
    assert headline.endswith("measured \u22123.0 %")
