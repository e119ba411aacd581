"""A node with other GPUs than it had: another machine, or one that was swapped."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from trainbench.core.verdicts import Level
from trainbench.judging.machines import find, replaced_gpu_findings
from trainbench.judging.past import NodeRecord
from trainbench.planning.nodes import GpuNode
from trainbench.results.setups import Setup

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
