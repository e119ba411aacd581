"""When a warning of a change is over."""

from __future__ import annotations

from typing import Any

import pytest

from tests.builders.campaigns import make_campaign
from tests.builders.verdicts import make_group, make_node
from trainbench.core.verdicts import Finding, Level, RateChange, State
from trainbench.judging.warning_findings import Kind, changes_of, is_back, is_worse, red_or_drilled, warnings_of


def change(after: float, limit_pct: float = 5.0) -> RateChange:
    return RateChange(node="node-1", fingerprint="f", before=10.0, after=after, limit_pct=limit_pct)


@pytest.mark.parametrize(("rate", "back"), [(10.0, True), (9.75, True), (9.74, False), (9.5, False), (10.4, True)])
def test_a_node_is_back_when_it_lost_less_than_half_of_what_counts(rate: float, back: bool) -> None:
    """What counts is 5 %: 9.75 of 10 is 2.5 % less, its half; 9.74 is more."""
    assert is_back(rate, change(9.0)) is back


@pytest.mark.parametrize(("after", "worse"), [(8.55, False), (8.54, True), (9.5, False)])
def test_a_node_is_worse_when_it_lost_as_much_again(after: float, worse: bool) -> None:
    """From 9.0, 5 % less are 8.55; 8.54 is more than that."""
    assert is_worse(change(after), change(9.0)) is worse


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
    first = finding("watch", "well", "red", "drilled", "lost")
    findings = (
        first, finding("history_slower", "well"), finding("unsteady", "other"), finding("clock_skew", "other"),
        finding("lost_gpus", "other", level=Level.INFO), finding("undecided", "well"),
    )  # fmt: skip
    campaign = make_campaign([], [NODES], findings=findings)

    assert red_or_drilled(campaign) == {"red", "lost", "drilled"}
    assert warnings_of(campaign) == {
        ("well", Kind.SLOW): first,
        ("other", Kind.UNSTEADY): findings[2],
        ("well", Kind.UNDECIDED): findings[5],
    }


def test_of_each_work_the_largest_loss_of_the_node_itself_counts() -> None:
    """Work a: 10 % and 5 % less, work b: 2 %. Another node's 50 % and an unsteady one's change are not of it."""

    def lost(node: str, work: str, after: float) -> RateChange:
        return RateChange(node=node, fingerprint=work, before=10.0, after=after, limit_pct=1.5)

    findings = (
        finding("history_slower", "well", changes=(lost("well", "a", 9.5), lost("other", "a", 5.0))),
        finding("watch", "well", changes=(lost("well", "a", 9.0), lost("well", "b", 9.8))),
        finding("watch", "well", changes=(lost("well", "a", 9.7),)),
        finding("unsteady", "well", changes=(lost("well", "a", 1.0),)),
    )
    changes = changes_of(make_campaign([], [NODES], findings=findings), "well")

    assert [(change.fingerprint, change.after) for change in changes] == [("a", 9.0), ("b", 9.8)]
