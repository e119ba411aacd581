"""A majority that fell: told the right way round where the nodes' own pasts know, and with doubt where nothing does."""

from __future__ import annotations

import pytest

from bench_control.judging.sides import as_before
from bench_control.judging.trend import judge_history
from bench_control.judging.variance import judge, nodes_to_confirm
from bench_control.words.verdicts import GroupVerdict, NodeVerdict, State, Tolerances
from bench_image.contract import RunResult
from tests.builders import make_result

LIMITS = Tolerances()


def fleet(*rates: float) -> list[RunResult]:
    return [make_result(f"node-{i}", rate) for i, rate in enumerate(rates, 1)]


def judged(now: list[RunResult], past: dict[str, float]) -> GroupVerdict:
    """With the rule of the night: against peers, then against those that are as before. `past`: of ten runs."""
    (group,) = judge(now, [], LIMITS)
    history = [judge_history(run, [past[run.spec.node]] * 10, LIMITS) for run in now if run.spec.node in past]
    (again,) = judge(now, [], LIMITS, None, as_before(group, history))
    return again


def by_name(group: GroupVerdict) -> dict[str, NodeVerdict]:
    return {node.node: node for node in group.nodes}


def test_three_of_five_that_fell_are_red_and_the_two_that_did_not_are_well() -> None:
    """Nodes 1 to 3 fell from 10 to 9; nodes 4 and 5 are at 10 as before. Among peers the two read +11.1 %."""
    group = judged(
        fleet(9.0, 9.0, 9.0, 10.0, 10.0), dict.fromkeys(("node-1", "node-2", "node-3", "node-4", "node-5"), 10.0)
    )
    nodes = by_name(group)
    assert [node.state for node in group.nodes] == [State.BREACH] * 3 + [State.OK] * 2
    assert nodes["node-1"].metrics[0].deviation == pytest.approx(-10.0)
    assert "compared with node-4 and node-5, as fast as before, for 3 of 5 nodes fell" in nodes["node-1"].reason
    assert "as fast as in its own past, while node-1, node-2 and node-3 fell" in nodes["node-4"].reason
    assert nodes_to_confirm([group]) == ("node-1", "node-2", "node-3")


def test_the_only_node_that_did_not_fall_is_the_reference_of_all() -> None:
    group = judged(fleet(9.0, 9.0, 9.0, 10.0), dict.fromkeys(("node-1", "node-2", "node-3", "node-4"), 10.0))
    assert [node.state for node in group.nodes] == [State.BREACH] * 3 + [State.OK]


def test_half_and_half_is_decided_by_the_pasts() -> None:
    group = judged(fleet(9.0, 9.0, 10.0, 10.0), dict.fromkeys(("node-1", "node-2", "node-3", "node-4"), 10.0))
    assert [node.state for node in group.nodes] == [State.BREACH] * 2 + [State.OK] * 2


def test_nodes_that_became_fast_are_still_the_odd_ones() -> None:
    """Nodes 4 and 5 rose from 9 to 10, the others are as before: the first verdict stands."""
    past = dict.fromkeys(("node-1", "node-2", "node-3", "node-4", "node-5"), 9.0)
    group = judged(fleet(9.0, 9.0, 9.0, 10.0, 10.0), past)
    assert [node.state for node in group.nodes] == [State.OK] * 3 + [State.BREACH] * 2


def test_a_minority_that_fell_is_judged_by_its_peers_as_ever() -> None:
    results = fleet(9.0, 10.0, 10.0, 10.0)
    group = judged(results, dict.fromkeys(("node-1", "node-2", "node-3", "node-4"), 10.0))
    assert group == judge(results, [], LIMITS)[0]


def test_without_a_past_the_report_says_that_the_reference_may_be_the_bad_side() -> None:
    nodes = by_name(judged(fleet(9.0, 9.0, 9.0, 10.0, 10.0), {}))
    assert [nodes[f"node-{i}"].state for i in (4, 5)] == [State.BREACH] * 2
    assert "2 of 5 nodes read fast, so the reference may be the bad side" in nodes["node-4"].reason
    assert "bad side" not in nodes["node-1"].reason
