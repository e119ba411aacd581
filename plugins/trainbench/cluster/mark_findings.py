"""Findings on the marks of nodes: marked, freed, or not marked and why."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any

from trainbench.cluster.node_marks import Mark, MarkRefusal
from trainbench.core.grouping import grouped
from trainbench.core.verdicts import FREED, MARKED, NOT_MARKED, Finding, Level

UNDO = "trainbench nodes free"
NO_MARK = "no mark"


def _finding(category: str, nodes: Sequence[str], summary: str, resolution: str, **more: Any) -> Finding:
    texts = {"level": Level.WARNING, "measured": NO_MARK, "expected": NO_MARK} | more
    return Finding(category=category, nodes=tuple(nodes), summary=summary, resolution=resolution, **texts)


def marked(node: str, shape: str, mark: Mark, still: str | None) -> Finding:
    """`still`: why it is not freed; None: it is red."""
    summary = f"is marked with {shape} since {_moment(mark.at)}, so that other work keeps away: {mark.reason}"
    summary += f"; it stays so, because {still}" if still else ""
    resolution = f"repair it: a run that finds it well frees it; `{UNDO} {node}` undoes the mark at once"
    return _finding(MARKED, [node], summary, resolution, measured=shape)


def foreign(node: str, shape: str) -> Finding:
    summary = f"is marked with {shape}, which this installation did not set and leaves alone"
    resolution = f"ask who set it; `{UNDO} {node}` takes it off"
    return _finding(MARKED, [node], summary, resolution, measured=shape, level=Level.INFO)


def freed(node: str, shape: str, mark: Mark) -> Finding:
    summary = f"takes other work again: it is well, and {shape} of {_moment(mark.at)} was removed"
    return _finding(FREED, [node], summary, "it takes other work again: nothing to do", level=Level.INFO)


def removed(node: str) -> Finding:
    summary = "was marked by this run, and somebody has removed the mark since"
    resolution = "nothing to do: it is marked again only if a later run confirms that it is red"
    return _finding(NOT_MARKED, [node], summary, resolution, expected="a mark", level=Level.INFO)


def not_marked(refusals: Iterable[MarkRefusal]) -> tuple[Finding, ...]:
    """One for each reason, with all its nodes."""
    alike = grouped(((refusal.reason, refusal.next_step), refusal.node) for refusal in refusals)
    return tuple(
        _finding(
            NOT_MARKED,
            nodes,
            f"{'is' if len(nodes) == 1 else 'are'} red and not marked: {reason}",
            next_step,
            expected="a mark",
        )
        for (reason, next_step), nodes in alike.items()
    )


def unread(campaign_id: str, reason: str, next_step: str) -> Finding:
    """The marks could not be read, so none was set or removed."""
    figures = {"item": campaign_id, "measured": "unknown", "expected": "the nodes' marks"}
    return _finding(NOT_MARKED, (), f"no node was marked or freed: {reason}", next_step, **figures)


def with_marks(findings: Iterable[Finding], shapes: dict[str, str]) -> tuple[Finding, ...]:
    """The findings, each error on a marked node with the mark and its undoing as the first part of the next step.
    `shapes`: node -> what keeps work away from it.
    """
    told = []
    for finding in findings:
        node = finding.nodes[0] if len(finding.nodes) == 1 else None
        if finding.level is Level.ERROR and node in shapes:
            next_step = f"it is marked with {shapes[node]} (undo: `{UNDO} {node}`); {finding.resolution}"
            finding = finding.model_copy(update={"resolution": next_step})
        told.append(finding)
    return tuple(told)


def _moment(at: datetime) -> str:
    return f"{at:%d %b %Y %H:%M} UTC"
