"""A run twice, a GPU under two names, several machines under one; other machines and GPUs than before."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from bench_image.contract.parse import parse_result
from bench_image.contract.result import RunResult
from committed import committed
from tests.builders import make_failed, make_result, on_gpus
from trainbench.core.verdicts import Level
from trainbench.judging.machines import find, identity_findings, replaced_gpu_findings
from trainbench.judging.node_runs import by_group, latest_results
from trainbench.judging.past import NodeRecord
from trainbench.planning.nodes import GpuNode
from trainbench.results.setups import Setup


def later(result: RunResult) -> RunResult:
    return result.model_copy(update={"finished_at": result.finished_at + timedelta(minutes=5)})


def test_a_run_with_two_results_counts_once_and_is_reported() -> None:
    """node-1 at 9.5 and, later, at 8.0: the later one is judged, in whichever order they come."""
    fleet = [make_result(f"node-{i}", 9.5) for i in (1, 2, 3, 4)]
    results = [*fleet, later(make_result("node-1", 8.0))]
    for order in (results, results[::-1]):
        ((first, *_),) = by_group(order, []).values()
        assert [run.performance.samples_per_second for run in first.runs] == [8.0]
    (finding,) = identity_findings(results)
    assert (finding.category, finding.subject) == ("duplicate_run", results[0].spec.identity.run_id)
    assert finding.summary == "has 2 results; the one that finished last is judged"


def test_of_two_that_finished_at_once_their_order_does_not_decide() -> None:
    pair = [make_result(samples_per_s=9.5), make_result(samples_per_s=8.0)]
    assert latest_results(pair) == latest_results(pair[::-1])


def test_a_failed_run_that_came_back_well_later_is_well() -> None:
    good = later(make_result("node-1"))
    assert latest_results([make_failed("node-1"), good]) == [good]


def test_rounds_and_re_runs_are_no_duplicates() -> None:
    results = [make_result("node-1", round=r) for r in (1, 2, 3)]
    assert latest_results(results) == results
    assert identity_findings(results) == ()


def test_a_node_that_was_renamed_meanwhile_is_one_machine_under_two_names() -> None:
    moved = make_result("node-10").model_copy(update={"context": make_result("node-2").context})
    (finding,) = identity_findings([make_result("node-1"), make_result("node-2"), moved])
    assert (finding.category, finding.subject) == ("same_gpu", "node-10")
    assert finding.measured == "GPU-node-2-0 on node-2 and node-10"
    assert finding.summary == "has the same GPU as node-2: one machine under 2 names, compared with itself"


def on(node: str, *uuids: str, round_: int = 1) -> RunResult:
    """A run of `node` on these GPUs."""
    work = {"strategy": "independent", "gpus_per_node": len(uuids)} if len(uuids) > 1 else {}
    return on_gpus(make_result(node, round=round_, **work), *uuids)


def test_the_published_study_ran_on_five_machines_under_one_name() -> None:
    """[J6]: 37 runs named h200-4 come from five disjoint sets of GPUs, and nobody said so."""
    texts = committed("campaigns/h200-strategies-2026-11-21/runs/*/result.json").values()
    results = [parse_result(text.encode()) for text in texts]
    (finding,) = identity_findings(results)

    assert len(results) == 37
    assert (finding.category, finding.subject) == ("several_machines", "h200-4")
    assert finding.summary.startswith("ran on 5 sets of GPUs that have none in common: several machines under one name")


def test_runs_that_share_a_gpu_are_of_one_machine_in_whatever_order_they_come() -> None:
    runs = [on("node-1", "a", "b"), on("node-1", "c", "d", round_=2), on("node-1", "b", "c", round_=3)]

    assert [identity_findings(order) for order in (runs, runs[::-1])] == [(), ()]


def test_two_sets_without_a_common_gpu_are_two_machines() -> None:
    (finding,) = identity_findings([on("node-1", "a", "b"), on("node-1", "c", "d", round_=2)])

    assert finding.measured == "a + b and c + d"


def test_other_gpus_of_a_node_that_has_so_many_are_no_other_machine() -> None:
    """A pod of one GPU gets another one each time."""
    runs = [on("node-1", uuid, round_=number) for number, uuid in enumerate(("a", "b", "c"), start=1)]

    assert identity_findings(runs, [GpuNode(name="node-1", num_gpus=7, num_gpus_lost=1)]) == ()
    assert identity_findings(runs, [GpuNode(name="node-1", num_gpus=2, num_gpus_lost=1)]) == ()  # exactly as many
    assert [f.subject for f in identity_findings(runs, [GpuNode(name="node-1", num_gpus=2)])] == ["node-1"]
    assert [f.subject for f in identity_findings(runs, [GpuNode(name="node-1")])] == ["node-1"]


NOW = datetime(2026, 11, 22, 2, 0, tzinfo=UTC)


def point(days_ago: int, gpus: str, node: str = "node-3", work: str = "work-1") -> NodeRecord:
    """`gpus`: a letter for each."""
    return NodeRecord(
        campaign_id=f"night-{days_ago}",
        at=NOW - timedelta(days=days_ago),
        node=node,
        fingerprint=work,
        gpu_name="NVIDIA H200",
        samples_per_second=9.5,
        memory_gb=7.1,
        temperature_c=60.0,
        setup=Setup(gpu_uuids=frozenset(gpus)),
    )


def test_another_machine_under_the_name_of_a_node_is_reported_with_the_date() -> None:
    """[J6]: history joined both without a word."""
    (finding,) = replaced_gpu_findings([point(0, "efgh")], [point(2, "abcd"), point(1, "abcd")], NOW)

    assert (finding.level, finding.category, finding.subject) == (Level.WARNING, "other_machine", "node-3")
    assert finding.summary.startswith("has other GPUs than on 21 Nov 2026, none of them the same")
    assert (finding.measured, finding.expected) == ("e, f, g and h", "a, b, c and d, as on 21 Nov 2026")


def test_one_swapped_gpu_is_a_notice() -> None:
    (finding,) = replaced_gpu_findings([point(0, "abce")], [point(1, "abcd")], NOW)

    assert (finding.level, finding.category) == (Level.INFO, "swapped_gpu")
    assert finding.summary == "has 1 GPU that it did not have on 21 Nov 2026"
    assert (finding.measured, finding.expected) == ("e", "d, as on 21 Nov 2026")


def test_a_gpu_that_the_node_no_longer_has_is_a_notice() -> None:
    (finding,) = replaced_gpu_findings([point(0, "abc")], [point(1, "abcd")], NOW, [GpuNode(name="node-3", num_gpus=3)])

    assert (finding.category, finding.summary) == ("swapped_gpu", "lacks d")


@pytest.mark.parametrize(
    ("now", "before", "size"),
    [
        ("abcd", "abcd", None),
        ("ab", "abcd", None),  # fewer of the same
        ("abcd", "ab", None),
        ("c", "a", 8),  # another GPU of the same node
        ("abce", "abcd", 8),
        ("", "abcd", None),  # not known
        ("abcd", "", None),
    ],
)
def test_what_may_be_the_same_machine_is_no_finding(now: str, before: str, size: int | None) -> None:
    assert (
        replaced_gpu_findings([point(0, now)], [point(1, before)], NOW, [GpuNode(name="node-3", num_gpus=size)]) == ()
    )


def test_it_is_reported_for_a_week() -> None:
    """On the eighth night its new GPUs are its own."""
    past = [point(days, "abcd" if days >= 8 else "efgh") for days in range(20, 0, -1)]
    last_week = [point(days, "abcd" if days >= 7 else "efgh") for days in range(20, 0, -1)]

    assert replaced_gpu_findings([point(0, "efgh")], past, NOW) == ()
    assert [finding.expected[-11:] for finding in replaced_gpu_findings([point(0, "efgh")], last_week, NOW)] == [
        "15 Nov 2026"
    ]


def test_the_gpus_of_all_works_of_a_night_are_its_gpus() -> None:
    """A single GPU for one work, all of them for another."""
    now = [point(0, "b"), point(0, "abcd", work="work-2")]
    before = [point(1, "a"), point(1, "abcd", work="work-2")]

    assert replaced_gpu_findings(now, before, NOW) == ()


def test_a_node_that_ran_beside_the_gone_one_is_no_rename_of_it() -> None:
    """Its GPUs were moved into a node that was there already."""
    before = point(1, "abcd", node="gone")
    assert [(rename.node, rename.was) for rename in find([point(0, "abcd")], [before])] == [("node-3", "gone")]
    assert find([point(0, "abcd")], [point(2, "efgh"), before]) == ()
