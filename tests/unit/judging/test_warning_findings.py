"""Which findings warn of a node, and once of each kind."""

from __future__ import annotations

from typing import Any

from tests.builders.campaigns import make_campaign
from tests.builders.verdicts import make_group, make_node
from trainbench.core.verdicts import Finding, Level, RateChange, State
from trainbench.judging.warning_findings import WarningKind, changes_of, red_or_drilled, warnings_of


def finding(category: str, *nodes: str, level: Level = Level.WARNING, **fields: Any) -> Finding:
    words = dict.fromkeys(("measured", "expected", "summary", "resolution"), "")
    return Finding.model_validate({"level": level, "category": category, "nodes": nodes} | words | fields)


NODES = make_group(
    [
        make_node("well"), make_node("other"), make_node("red", state=State.BREACH),
        make_node("lost", state=State.FAILED), make_node("drilled", is_drill=True),
    ],
    "group",
)  # fmt: skip


def test_people_are_warned_once_of_each_kind_and_not_of_what_is_red_or_drilled() -> None:
    """The first of several findings of a kind counts; information is no warning, and an unknown category is none."""
    first = finding("watched", "well", "red", "drilled", "lost")
    findings = (
        first, finding("history_slower", "well"), finding("unsteady", "other"), finding("clock_skew", "other"),
        finding("lost_gpus", "other", level=Level.INFO), finding("undecided", "well"),
    )  # fmt: skip
    campaign = make_campaign([], [NODES], findings=findings)

    assert red_or_drilled(campaign) == {"red", "lost", "drilled"}
    assert warnings_of(campaign) == {
        ("well", WarningKind.SLOW): first,
        ("other", WarningKind.UNSTEADY): findings[2],
        ("well", WarningKind.UNDECIDED): findings[5],
    }


def test_of_each_work_the_largest_loss_of_the_node_itself_counts() -> None:
    """Work a: 10 % and 5 % less, work b: 2 %. Another node's 50 % and an unsteady one's change are not of it."""

    def lost(node: str, work: str, after: float) -> RateChange:
        return RateChange(node=node, fingerprint=work, before=10.0, after=after, limit_pct=1.5)

    findings = (
        finding("history_slower", "well", changes=(lost("well", "a", 9.5), lost("other", "a", 5.0))),
        finding("watched", "well", changes=(lost("well", "a", 9.0), lost("well", "b", 9.8))),
        finding("watched", "well", changes=(lost("well", "a", 9.7),)),
        finding("unsteady", "well", changes=(lost("well", "a", 1.0),)),
    )
    changes = changes_of(make_campaign([], [NODES], findings=findings), "well")

    assert [(change.fingerprint, change.after) for change in changes] == [("a", 9.0), ("b", 9.8)]
