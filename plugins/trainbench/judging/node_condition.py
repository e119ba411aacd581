"""The condition of each node and the headline of a fleet, for every report, exit code, alert, banner and page.

A node has one condition: the first of `_rules` that holds for its latest evidence. It is well only if its latest
verdict is ok and fresh. `TRAITS` holds the effect of each condition; docs/conditions.md shows them on each surface.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum
from typing import NamedTuple

from trainbench.core.formats import count, listing
from trainbench.core.grouping import grouped
from trainbench.core.natural_order import natural
from trainbench.core.verdicts import RED, State

FRESH = timedelta(hours=36)  # one nightly check may be left out; an older verdict does not describe the node today
UNDECIDED_STATES = frozenset({State.INSUFFICIENT, State.NO_BASELINE, State.NOT_JUDGED})
MAX_NAMED = 5  # nodes of one condition in a headline


class Condition(StrEnum):
    """Conditions, the worst first: of several that hold for a node, the first is its condition."""

    FAILED = "failed"
    MISSING = "missing"
    BREACH = "breach"
    ACKNOWLEDGED = "acknowledged"
    STALE = "stale"
    DRILL = "drill"
    BEHIND = "behind"
    UNSTEADY = "unsteady"
    WATCHED = "watched"
    UNDECIDED = "undecided"
    BUSY = "busy"
    WELL = "well"


class Reach(StrEnum):
    """The people that a condition reaches."""

    RED = "red"  # everybody: the run fails
    WARNING = "warning"  # people: alert, banner, notice; the run does not fail
    QUIET = "quiet"  # readers of the report or the Fleet page


class Trait(NamedTuple):
    """`one` and `several` follow the number of nodes: "1 of 4 nodes is in breach", "2 are in breach". `none`: begins
    the headline where all nodes share a condition for which "All 4 nodes ..." would read as the opposite.
    """

    reach: Reach
    one: str
    several: str
    meaning: str
    none: str | None = None


TRAITS: Mapping[Condition, Trait] = {
    Condition.FAILED: Trait(Reach.RED, "failed", "failed", "ran, but gave no valid result"),
    Condition.MISSING: Trait(Reach.RED, "is missing", "are missing", "expected, but gave no result"),
    Condition.BREACH: Trait(Reach.RED, "is in breach", "are in breach", "out of its limits; a re-run did not clear it"),
    Condition.ACKNOWLEDGED: Trait(
        Reach.QUIET, "is acknowledged", "are acknowledged", "has open breaches, and somebody acknowledged each of them"
    ),
    Condition.STALE: Trait(
        Reach.QUIET,
        "was not checked lately",
        "were not checked lately",
        "its latest verdict is older than TRAINBENCH_FRESH_H",
        "was checked lately",
    ),
    Condition.DRILL: Trait(
        Reach.QUIET,
        "was slowed on purpose",
        "were slowed on purpose",
        "the latest run slowed it on purpose, as a drill",
    ),
    Condition.BEHIND: Trait(
        Reach.WARNING, "fell behind its own past", "fell behind their own past", "slower than its own earlier runs"
    ),
    Condition.UNSTEADY: Trait(
        Reach.WARNING, "is unsteady", "are unsteady", "its measurements scatter far more than those of its peers"
    ),
    Condition.WATCHED: Trait(
        Reach.WARNING,
        "is watched",
        "are watched",
        "slow by more than half of the limit and by more than chance, or out of its limits once and not in the re-run",
    ),
    Condition.UNDECIDED: Trait(
        Reach.QUIET,
        "could not be judged",
        "could not be judged",
        "measured, but not judged: too few peers, too much noise, no past to compare with, or other work",
        "could be judged",
    ),
    Condition.BUSY: Trait(Reach.QUIET, "was busy", "were busy", "its GPUs were taken by other work"),
    Condition.WELL: Trait(Reach.QUIET, "is well", "are well", "its latest verdict is ok and fresh"),
}


@dataclass(frozen=True, kw_only=True)
class Evidence:
    """Facts about one node. `reasons`: condition -> a phrase with its reason."""

    node: str
    now: datetime
    judged_at: datetime | None  # time of its latest verdict; None: never
    states: frozenset[State] = frozenset()  # of its latest verdicts: one for each work of that campaign
    red_states: frozenset[State] = frozenset()  # red and not acknowledged, now or since an open breach
    red_since: datetime | None = None  # of the open breach, acknowledged or not
    is_acknowledged: bool = False  # it has open breaches, and each is acknowledged
    is_drill: bool = False  # its latest run slowed it on purpose
    is_behind: bool = False  # its own past
    is_unsteady: bool = False
    is_watched: bool = False
    decided_at: datetime | None = None  # its last verdict that was neither undecided nor busy
    fresh: timedelta = FRESH
    reasons: Mapping[Condition, str] = field(default_factory=dict)


class NodeCondition(NamedTuple):
    """`since`: time at which the breach opened, or of the last verdict; None: unknown, or this run. `reason`: a phrase,
    or "".
    """

    node: str
    condition: Condition
    since: datetime | None = None
    reason: str = ""

    @property
    def reach(self) -> Reach:
        return TRAITS[self.condition].reach

    def urgency(self) -> tuple[int, int]:
        """Sort key: red conditions first, then warnings, then the rest; within each the worse first."""
        return list(Reach).index(self.reach), list(Condition).index(self.condition)

    @property
    def phrase(self) -> str:
        """ "node-3 is in breach: samples/s -9.7 %"."""
        return f"{self.node} {TRAITS[self.condition].one}" + (f": {self.reason}" if self.reason else "")


class FleetSummary(NamedTuple):
    """`headline`: one sentence. `counts`: of the conditions that occur, the most urgent first."""

    headline: str
    counts: Mapping[Condition, int]

    @property
    def is_well(self) -> bool:
        return set(self.counts) == {Condition.WELL}

    @property
    def reach(self) -> Reach:
        """The farthest reach of all nodes' conditions."""
        present = {TRAITS[condition].reach for condition in self.counts}
        return next((reach for reach in Reach if reach in present), Reach.QUIET)


def condition_of(evidence: Evidence) -> NodeCondition:
    condition = next(condition for condition, holds in _rules(evidence) if holds)
    since = {
        Condition.FAILED: evidence.red_since,
        Condition.MISSING: evidence.red_since,
        Condition.BREACH: evidence.red_since,
        Condition.ACKNOWLEDGED: evidence.red_since,
        Condition.STALE: evidence.judged_at,
        Condition.UNDECIDED: evidence.decided_at,
        Condition.BUSY: evidence.decided_at,
    }.get(condition)
    return NodeCondition(evidence.node, condition, since, evidence.reasons.get(condition, ""))


def condition_now(
    node: str,
    latest: NodeCondition | None,
    *,
    now: datetime,
    fresh: timedelta = FRESH,
    red_states: frozenset[State] = frozenset(),
    red_since: datetime | None = None,
    is_acknowledged: bool = False,
    decided_at: datetime | None = None,
) -> NodeCondition:
    """The node's condition now: that of its latest campaign, corrected by open breaches and by its age. `latest.since`:
    end of that campaign. `latest` None: no campaign judged the node.
    """
    # The latest condition as the facts that it was made from, so that one set of rules decides both.
    was = latest.condition if latest else None
    if was in (Condition.FAILED, Condition.MISSING, Condition.BREACH) and not is_acknowledged:
        red_states |= {State(was)}
    states = {Condition.WELL: State.OK, Condition.BUSY: State.BUSY, Condition.UNDECIDED: State.INSUFFICIENT}
    return condition_of(
        Evidence(
            node=node,
            now=now,
            judged_at=latest.since if latest else None,
            states=frozenset({states[was]} if was in states else {State.OK}),
            red_states=red_states,
            red_since=red_since,
            is_acknowledged=is_acknowledged,
            is_drill=was is Condition.DRILL,
            is_behind=was is Condition.BEHIND,
            is_unsteady=was is Condition.UNSTEADY,
            is_watched=was is Condition.WATCHED,
            decided_at=decided_at,
            fresh=fresh,
            reasons={was: latest.reason} if latest and was else {},
        )
    )


def _rules(e: Evidence) -> Sequence[tuple[Condition, bool]]:
    """Each condition with whether it holds, in the order of `Condition`. Missing runs, noise or age never hide a red
    one.
    """
    is_stale = e.judged_at is None or e.now - e.judged_at > e.fresh
    return (
        (Condition.FAILED, State.FAILED in e.red_states),
        (Condition.MISSING, State.MISSING in e.red_states),
        (Condition.BREACH, State.BREACH in e.red_states),
        (Condition.ACKNOWLEDGED, e.is_acknowledged),
        (Condition.STALE, is_stale),
        (Condition.DRILL, e.is_drill),
        (Condition.BEHIND, e.is_behind),
        (Condition.UNSTEADY, e.is_unsteady),
        (Condition.WATCHED, e.is_watched or State.NOTICE in e.states),
        (Condition.UNDECIDED, bool(e.states & UNDECIDED_STATES) or not e.states or bool(e.states & RED)),
        (Condition.BUSY, State.BUSY in e.states),
        (Condition.WELL, True),
    )


def fleet_summary(conditions: Iterable[NodeCondition], most: int = MAX_NAMED) -> FleetSummary:
    """ "1 of 4 nodes is in breach: node-3 (samples/s -9.7 %); 3 are well." `most`: nodes to name for each
    condition; 0 names none. Nodes that are well are only counted.
    """
    nodes = sorted(conditions, key=lambda node: natural(node.node))
    present = grouped((node.condition, node) for node in sorted(nodes, key=NodeCondition.urgency))
    counts = Counter({condition: len(members) for condition, members in present.items()})
    if not nodes:
        return FleetSummary("No node was judged.", counts)
    parts = [
        _part(condition, members, len(nodes), is_first=not place, most=most)
        for place, (condition, members) in enumerate(present.items())
    ]
    return FleetSummary(f"{'; '.join(parts)}.", counts)


def _part(condition: Condition, members: Sequence[NodeCondition], total: int, *, is_first: bool, most: int) -> str:
    trait, number = TRAITS[condition], len(members)
    verb = trait.one if number == 1 else trait.several
    if number == total > 1:
        head = f"None of {total:,} nodes {trait.none}" if trait.none else f"All {total:,} nodes {verb}"
    else:
        head = f"{number:,} of {count(total, 'node')} {verb}" if is_first else f"{number:,} {verb}"
    if condition is Condition.WELL or not most:
        return head
    return f"{head}: {_named(members, most)}"


def _named(members: Sequence[NodeCondition], most: int) -> str:
    """Names with their reasons; a reason that all nodes share is written once."""
    shared = {node.reason for node in members}
    if len(shared) == 1:
        (reason,) = shared
        names = listing((node.node for node in members), most)
        return f"{names} ({reason})" if reason else names
    return listing((f"{node.node} ({node.reason})" if node.reason else node.node for node in members), most)
