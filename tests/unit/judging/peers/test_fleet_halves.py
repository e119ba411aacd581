"""A slow majority: the nodes' own histories decide who changed; without them the finding says it is unknown."""

from __future__ import annotations

import pytest

from bench_image.contract.result import RunResult
from tests.builders import make_result
from tests.builders.fleets import by_name, fleet
from tests.builders.verdicts import make_group, make_metric, make_node
from trainbench.core.verdicts import GroupVerdict, Side, State, Tolerances
from trainbench.judging.over_time.baseline_deviation import judge_history
from trainbench.judging.peers.confirmation import confirm
from trainbench.judging.peers.fleet_halves import unchanged_nodes
from trainbench.judging.peers.node_verdicts import judge_groups, nodes_to_confirm

LIMITS = Tolerances()
ALL_AT_10 = {f"node-{i}": 10.0 for i in range(1, 6)}


def judged(now: list[RunResult], past: dict[str, float]) -> GroupVerdict:
    """With the rule of the night: against peers, then against those that are as before. `past`: of ten runs."""
    (group,) = judge_groups(now, [], LIMITS)
    history = [
        judge_history(run, [past[run.spec.identity.node]] * 10, LIMITS) for run in now if run.spec.identity.node in past
    ]
    (again,) = judge_groups(now, [], LIMITS, None, unchanged_nodes(group, history))
    return again


def test_three_of_five_that_fell_are_red_and_the_two_that_did_not_are_well() -> None:
    """Nodes 1 to 3 fell from 10 to 9; nodes 4 and 5 are at 10 as before. Among peers the two read +11.1 %."""
    group = judged(fleet(9.0, 9.0, 9.0, 10.0, 10.0), ALL_AT_10)
    nodes = by_name(group)
    assert [node.state for node in group.nodes] == [State.BREACH] * 3 + [State.OK] * 2
    assert nodes["node-1"].metrics[0].deviation == pytest.approx(-10.0)
    assert (
        "compared with node-4 and node-5, as fast as before, because 3 of 5 nodes became slower"
        in nodes["node-1"].reason
    )
    assert "as fast as in its own past, while node-1, node-2 and node-3 became slower" in nodes["node-4"].reason
    assert nodes_to_confirm([group]) == ("node-1", "node-2", "node-3")


def test_the_only_node_that_did_not_fall_is_the_reference_of_all() -> None:
    group = judged(fleet(9.0, 9.0, 9.0, 10.0), ALL_AT_10)
    assert [node.state for node in group.nodes] == [State.BREACH] * 3 + [State.OK]


def test_half_and_half_is_decided_by_the_pasts() -> None:
    group = judged(fleet(9.0, 9.0, 10.0, 10.0), ALL_AT_10)
    assert [node.state for node in group.nodes] == [State.BREACH] * 2 + [State.OK] * 2


def test_nodes_that_became_fast_are_still_the_odd_ones() -> None:
    """Nodes 4 and 5 rose from 9 to 10, the others are as before: the first verdict stands."""
    past = dict.fromkeys(("node-1", "node-2", "node-3", "node-4", "node-5"), 9.0)
    group = judged(fleet(9.0, 9.0, 9.0, 10.0, 10.0), past)
    assert [node.state for node in group.nodes] == [State.OK] * 3 + [State.BREACH] * 2


def test_a_minority_that_fell_is_judged_by_its_peers_as_ever() -> None:
    results = fleet(9.0, 10.0, 10.0, 10.0)
    group = judged(results, ALL_AT_10)
    assert group == judge_groups(results, [], LIMITS)[0]


def test_without_a_past_the_report_says_that_the_reference_may_be_the_bad_side() -> None:
    nodes = by_name(judged(fleet(9.0, 9.0, 9.0, 10.0, 10.0), {}))
    assert [nodes[f"node-{i}"].state for i in (4, 5)] == [State.BREACH] * 2
    assert "2 of 5 nodes read fast, so the reference may be the bad side" in nodes["node-4"].reason
    assert "bad side" not in nodes["node-1"].reason


@pytest.mark.parametrize(("num_fell", "is_reported"), [(2, True), (1, False)])
def test_at_least_half_of_the_others_must_have_fallen(num_fell: int, is_reported: bool) -> None:
    """Node-5 reads fast; of the four others two fell (half of them), or one."""
    fast = make_node("node-5", [make_metric(10.0, 9.0, state=State.BREACH, side=Side.FAST)], state=State.BREACH)
    others = [make_node(f"node-{i}", [make_metric(9.0, 9.0)]) for i in range(1, 5)]
    group = make_group([*others, fast], "group")
    rates = {node.node: 9.0 if i < num_fell else 10.0 for i, node in enumerate(group.nodes)}
    history = [
        judge_history(make_result(name, rate, group_id="group"), [10.0] * 10, LIMITS) for name, rate in rates.items()
    ]
    assert unchanged_nodes(group, history) == (
        frozenset({"node-3", "node-4", "node-5"}) if is_reported else frozenset()
    )


def test_a_re_run_that_clears_one_that_fell_does_not_clear_the_others() -> None:
    """Nodes 1 to 4 fell, node-5 did not. Node-1's re-run is at 10 again; nodes 2 to 4 stay at 9, though with node-1 at
    10 their peers' median is between 9 and 10.
    """
    group = judged(fleet(9.0, 9.0, 9.0, 9.0, 10.0), ALL_AT_10)
    again = [make_result(f"node-{i}", 10.0 if i == 1 else 9.0, round=2) for i in (1, 2, 3, 4)]
    (settled,) = confirm([group], again, LIMITS)
    assert [node.state for node in settled.nodes] == [State.NOTICE] + [State.BREACH] * 3 + [State.OK]
