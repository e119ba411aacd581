"""A run twice, and a GPU under two names."""

from __future__ import annotations

from datetime import timedelta

from bench_control.judging import identity
from bench_control.judging.node_runs import latest
from bench_control.judging.variance import judge
from bench_control.words.verdicts import State, Tolerances
from bench_image.contract import RunResult
from tests.builders import make_failed, make_result


def later(result: RunResult) -> RunResult:
    return result.model_copy(update={"finished_at": result.finished_at + timedelta(minutes=5)})


def test_a_run_that_came_back_twice_counts_once_and_is_told() -> None:
    """node-1 at 9.5 and, later, at 8.0: the later one is judged, in whichever order they come."""
    fleet = [make_result(f"node-{i}", 9.5) for i in (1, 2, 3, 4)]
    results = [*fleet, later(make_result("node-1", 8.0))]
    for order in (results, results[::-1]):
        (group,) = judge(order, [], Tolerances())
        assert (group.nodes[0].num_runs, group.nodes[0].state) == (1, State.BREACH)
        assert group.nodes[0].metrics[0].value == 8.0
    (finding,) = identity.findings(results)
    assert (finding.category, finding.subject) == ("duplicate_run", results[0].spec.run_id)
    assert finding.summary == "came back 2 times; the one that finished last is judged"


def test_of_two_that_finished_at_once_their_order_does_not_decide() -> None:
    pair = [make_result(samples_per_s=9.5), make_result(samples_per_s=8.0)]
    assert latest(pair) == latest(pair[::-1])


def test_a_failed_run_that_came_back_well_later_is_well() -> None:
    good = later(make_result("node-1"))
    assert latest([make_failed("node-1"), good]) == [good]


def test_rounds_and_re_runs_are_no_duplicates() -> None:
    results = [make_result("node-1", round=r) for r in (1, 2, 3)]
    assert latest(results) == results
    assert identity.findings(results) == ()


def test_a_node_that_was_renamed_meanwhile_is_one_machine_under_two_names() -> None:
    moved = make_result("node-10").model_copy(update={"context": make_result("node-2").context})
    (finding,) = identity.findings([make_result("node-1"), make_result("node-2"), moved])
    assert (finding.category, finding.subject) == ("same_gpu", "node-10")
    assert finding.measured == "GPU-node-2-0 on node-2 and node-10"
    assert finding.summary == "has the same GPU as node-2: one machine under 2 names, compared with itself"
