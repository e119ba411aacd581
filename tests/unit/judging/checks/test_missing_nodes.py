"""Missing nodes: a node that nobody measures is named for as long as somebody may care."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from tests.builders.verdicts import make_node
from trainbench.core.verdicts import Level, Why
from trainbench.judging.checks.missing_nodes import absent_node_findings, gone_node_findings, unmeasured_node_findings
from trainbench.planning.nodes import AbsentNode, GpuNode

NOW = datetime(2026, 11, 21, 3, 0, tzinfo=UTC)


def test_a_node_that_should_be_there_is_a_warning_and_one_taken_out_is_information() -> None:
    absent = (
        AbsentNode(name="gpu-1", reason="not ready: kubelet stopped", expected=True),
        AbsentNode(name="gpu-2", reason="in quarantine: new-driver", expected=False),
    )
    lost, parked = absent_node_findings(absent, ())

    assert (lost.level, lost.subject, lost.why, parked.why) == (Level.WARNING, "gpu-1", Why.ABSENT, None)
    assert lost.summary == "was not measured: not ready: kubelet stopped"
    assert (parked.level, parked.resolution) == (Level.INFO, "nothing to do")


def test_a_node_that_offers_fewer_gpus_than_it_has_is_reported() -> None:
    whole, part = GpuNode(name="gpu-1", num_gpus=8), GpuNode(name="gpu-2", num_gpus=7, num_gpus_lost=1)
    (actual,) = absent_node_findings((), (whole, part))

    assert (actual.subject, actual.measured, actual.expected, actual.why) == (
        "gpu-2", "7 GPUs allocatable", "8 GPUs, its capacity", Why.ABSENT,
    )  # fmt: skip


def test_a_node_that_the_cluster_no_longer_lists_is_missed_for_a_week() -> None:
    week = timedelta(days=7)
    last = {
        "here": NOW, "yesterday": NOW - timedelta(days=1), "week-ago": NOW - week,
        "longer-ago": NOW - week - timedelta(seconds=1),
    }  # fmt: skip
    at_the_edge, actual = gone_node_findings(["here"], last, NOW)

    assert (at_the_edge.subject, actual.subject) == ("week-ago", "yesterday")
    assert (actual.measured, actual.why) == ("not in the cluster's list of nodes", Why.ABSENT)
    assert "2026-11-20" in actual.summary


def test_a_busy_node_is_reported_after_three_days_without_a_figure() -> None:
    last = {"a": NOW - timedelta(days=2), "b": NOW - timedelta(days=3), "well": NOW - timedelta(days=30)}
    nodes = [make_node(name, None, why=Why.BUSY) for name in ("a", "b", "never", "b")] + [make_node("well")]
    actual = list(unmeasured_node_findings(nodes, last, NOW))

    assert [(f.subject, f.level) for f in actual] == [("b", Level.WARNING), ("never", Level.INFO)]
    assert [f.why for f in actual] == [Why.ABSENT, None]
    assert actual[0].measured == "no valid run since 2026-11-18"
    assert actual[1].measured == "no valid run as far back as the history goes"


def test_a_node_that_lost_all_its_gpus_has_the_capacity_that_it_had() -> None:
    (actual,) = absent_node_findings((), (GpuNode(name="gpu-1", num_gpus=0, num_gpus_lost=8),))
    assert (actual.measured, actual.expected) == ("0 GPUs allocatable", "8 GPUs, its capacity")
