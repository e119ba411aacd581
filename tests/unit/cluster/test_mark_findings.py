"""The acts on nodes in words: on the report, the alert and the note."""

from __future__ import annotations

from datetime import UTC, datetime

from tests.builders.nights import night
from trainbench.alerting.run_summary import alerts, note
from trainbench.cluster import node_marks
from trainbench.cluster.node_marks import Mark, MarkRefusal
from trainbench.core.verdicts import Level, Why

TAINT = "the taint trainbench.io/breach:NoSchedule"
MARK = Mark(
    instance="trainbench",
    campaign_id="night-1",
    at=datetime(2026, 11, 12, 2, 10, tzinfo=UTC),
    groups=("work-1",),
    reason="samples/s −10.0 %, limit ±5 %",
)


def test_a_mark_says_since_when_why_and_how_it_is_undone() -> None:
    new = node_marks.marked("node-3", TAINT, MARK, None)
    old = node_marks.marked("node-3", TAINT, MARK, "it was not measured")

    assert new.headline == (
        f"node-3 is marked with {TAINT} since 12 Nov 2026 02:10 UTC, so that other work keeps away: samples/s −10.0 %, "
        "limit ±5 %"
    )
    assert old.headline == f"{new.headline}; it stays so, because it was not measured"
    assert new.resolution == (
        "repair it: a run that finds it well frees it; `trainbench nodes free node-3` undoes the mark at once"
    )


def test_nodes_that_are_not_marked_for_one_reason_are_one_finding() -> None:
    refusals = [
        MarkRefusal("node-1", "no room", "look"),
        MarkRefusal("node-2", "gone", "look"),
        MarkRefusal("node-9", "no room", "look"),
    ]
    first, second = node_marks.not_marked(refusals)

    assert first.headline == "node-1 and node-9 are red and not marked: no room"
    assert second.headline == "node-2 is red and not marked: gone"


def test_alert_and_note_of_a_red_node_name_the_mark_and_its_undoing_first() -> None:
    """Not those of another node, and not a warning about several."""
    campaign = night(1, {"node-1": 10.0, "node-3": 9.0, "node-4": 9.0}, {"node-3": Why.SLOW, "node-4": Why.SLOW})
    shapes = {"node-3": TAINT}
    findings = (*node_marks.with_marks(campaign.findings, shapes), node_marks.marked("node-3", TAINT, MARK, None))
    raised = alerts(campaign.model_copy(update={"findings": findings}))
    undo = f"it is marked with {TAINT} (undo: `trainbench nodes free node-3`); look at the fans of node-3"

    assert [(alert.nodes, alert.level, alert.resolution) for alert in raised[:2]] == [
        (("node-3",), Level.ERROR, undo), (("node-4",), Level.ERROR, "look at the fans of node-4"),
    ]  # fmt: skip
    assert raised[2].category == node_marks.MARKED
    assert "nodes free node-3" in note(campaign, raised, "node_consistency", "r", None)
