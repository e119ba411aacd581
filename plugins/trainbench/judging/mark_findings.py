"""Findings on the marks of nodes: marked, freed, or not marked and why."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime

from trainbench.core.verdicts import Finding, Level
from trainbench.judging.node_marks import Mark, MarkRefusal

MARKED, FREED, NOT_MARKED = "node_marked", "node_freed", "node_not_marked"
OF_MARKS = frozenset({MARKED, FREED, NOT_MARKED})
UNDO = "trainbench nodes free"
NO_MARK = "no mark"


def marked(node: str, shape: str, mark: Mark, still: str | None) -> Finding:
    """`still`: why it is not freed; None: it is red."""
    return Finding(
        level=Level.WARNING,
        category=MARKED,
        nodes=(node,),
        measured=shape,
        expected=NO_MARK,
        summary=f"is marked with {shape} since {_moment(mark.at)}, so that other work keeps away: {mark.reason}"
        + (f"; it stays so, because {still}" if still else ""),
        resolution=f"repair it: a run that finds it well frees it; `{UNDO} {node}` undoes the mark at once",
    )


def foreign(node: str, shape: str) -> Finding:
    return Finding(
        level=Level.INFO,
        category=MARKED,
        nodes=(node,),
        measured=shape,
        expected=NO_MARK,
        summary=f"is marked with {shape}, which this installation did not set and leaves alone",
        resolution=f"ask who set it; `{UNDO} {node}` takes it off",
    )


def freed(node: str, shape: str, mark: Mark) -> Finding:
    return Finding(
        level=Level.INFO,
        category=FREED,
        nodes=(node,),
        measured=NO_MARK,
        expected=NO_MARK,
        summary=f"takes other work again: it is well, and {shape} of {_moment(mark.at)} was removed",
        resolution="it takes other work again: nothing to do",
    )


def removed(node: str) -> Finding:
    return Finding(
        level=Level.INFO,
        category=NOT_MARKED,
        nodes=(node,),
        measured=NO_MARK,
        expected="a mark",
        summary="was marked by this run, and somebody has removed the mark since",
        resolution="nothing to do: it is marked again only if a later run confirms that it is red",
    )


def not_marked(refusals: Iterable[MarkRefusal]) -> tuple[Finding, ...]:
    """One for each reason, with all its nodes."""
    nodes: dict[tuple[str, str], list[str]] = {}
    for refusal in refusals:
        nodes.setdefault((refusal.reason, refusal.next_step), []).append(refusal.node)
    return tuple(_not_marked(of, reason, next_step) for (reason, next_step), of in nodes.items())


def _not_marked(nodes: Sequence[str], reason: str, next_step: str) -> Finding:
    verb = "is" if len(nodes) == 1 else "are"
    return Finding(
        level=Level.WARNING,
        category=NOT_MARKED,
        nodes=tuple(nodes),
        measured=NO_MARK,
        expected="a mark",
        summary=f"{verb} red and not marked: {reason}",
        resolution=next_step,
    )


def unread(campaign_id: str, reason: str, next_step: str) -> Finding:
    """The marks could not be read, so none was set or removed."""
    return Finding(
        level=Level.WARNING,
        category=NOT_MARKED,
        item=campaign_id,
        measured="unknown",
        expected="the nodes' marks",
        summary=f"no node was marked or freed: {reason}",
        resolution=next_step,
    )


def with_marks(findings: Iterable[Finding], shapes: dict[str, str]) -> tuple[Finding, ...]:
    """The findings, each error on a marked node with the mark and its undoing as the first part of the next step.
    `shapes`: node -> what keeps work away from it.
    """
    return tuple(_with_mark(finding, shapes) for finding in findings)


def _with_mark(finding: Finding, shapes: dict[str, str]) -> Finding:
    if finding.level is not Level.ERROR or len(finding.nodes) != 1 or finding.nodes[0] not in shapes:
        return finding
    (node,) = finding.nodes
    next_step = f"it is marked with {shapes[node]} (undo: `{UNDO} {node}`); {finding.resolution}"
    return finding.model_copy(update={"resolution": next_step})


def _moment(at: datetime) -> str:
    return f"{at:%d %b %Y %H:%M} UTC"
