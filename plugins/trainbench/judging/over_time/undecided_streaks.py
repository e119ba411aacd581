"""Findings on nodes that could not be judged for several nights in a row."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import NamedTuple

from trainbench.core.formats import day
from trainbench.core.verdicts import RED, Finding, GroupVerdict, Level, State
from trainbench.judging.peers.node_verdicts import lone_groups

NIGHTS = 3  # in a row; fewer are not reported
CATEGORY = "undecided"
JUDGED = RED | {State.OK, State.NOTICE}


class Streak(NamedTuple):
    """Nights in a row, up to the last one, on which a node was measured and not judged."""

    since: datetime
    nights: int


def is_undecided(states: Iterable[State]) -> bool | None:
    """Whether one of a node's verdicts of a night is missing; None where the node was not measured, for example busy.
    A red node counts as judged.
    """
    of = set(states)
    if of & RED:
        return False
    return State.INSUFFICIENT in of if of & (JUDGED | {State.INSUFFICIENT}) else None


def streak(newest_first: Iterable[tuple[datetime, Iterable[State]]]) -> Streak | None:
    """The streak of one node, from (time, verdicts) of each night."""
    nights: list[datetime] = []
    for at, states in newest_first:
        undecided = is_undecided(states)
        if undecided is False:
            break
        nights += [at] if undecided else []
    return Streak(nights[-1], len(nights)) if nights else None


def undecided_findings(
    groups: Sequence[GroupVerdict], before: Mapping[str, Streak], at: datetime
) -> tuple[Finding, ...]:
    """`before`: the streaks up to the night before."""
    undecided = []
    for node, verdicts in states_of(groups).items():
        last = before.get(node, Streak(at, 0))
        if is_undecided(verdicts) and last.nights + 1 >= NIGHTS:
            undecided.append(_finding(node, Streak(last.since, last.nights + 1), verdicts[State.INSUFFICIENT]))
    return tuple(undecided)


def states_of(groups: Sequence[GroupVerdict]) -> Mapping[str, Mapping[State, str]]:
    """Node -> its states, each with its reason. Groups that ran on one node only count where no other group does."""
    lone = lone_groups(groups)
    peers: dict[str, dict[State, str]] = {}
    alone: dict[str, dict[State, str]] = {}
    for group in groups:
        of = alone if group in lone else peers
        for node in group.nodes:
            if not node.is_drill:
                of.setdefault(node.node, {}).setdefault(node.state, node.reason)
    return alone | peers


def _finding(node: str, lasting: Streak, reason: str) -> Finding:
    return Finding(
        level=Level.WARNING,
        category=CATEGORY,
        nodes=(node,),
        measured=f"no verdict on {lasting.nights} nights in a row",
        expected=f"a verdict within {NIGHTS} nights",
        summary=f"could not be judged since {day(lasting.since)}: {reason}",
        resolution="make it quieter, run more rounds, or check at least 3 nodes of its kind together",
    )
