"""Reduces findings to warnings: at most one of each kind for a node."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum

from trainbench.core.verdicts import (
    ALARMS,
    DRILL_UNDETECTED,
    NO_FIGURE,
    OTHER_WORK,
    PART_FAILED,
    RED,
    Finding,
    Level,
    RateChange,
)
from trainbench.judging.checks.missing_nodes import ATTENDANCE, GONE
from trainbench.judging.diagnosis.diagnose import UNSTEADY
from trainbench.judging.mark_findings import MARKED, NOT_MARKED
from trainbench.judging.over_time import undecided_streaks
from trainbench.judging.over_time.baseline_deviation import HISTORY_SLOWER
from trainbench.judging.over_time.level_changes import SLOWER
from trainbench.judging.peers.slow_node_warnings import WATCHED
from trainbench.judging.rate_changes import change_pct
from trainbench.results.campaign import Campaign


class WarningKind(StrEnum):
    """Kinds of warnings, the worst first. The first four concern a whole run, not a node."""

    NO_FIGURE = NO_FIGURE
    PART_FAILED = PART_FAILED
    OTHER_WORK = OTHER_WORK
    DRILL_UNDETECTED = DRILL_UNDETECTED
    SLOW = "slow"  # against its own past, or watched against its peers
    UNSTEADY = "unsteady"
    UNDECIDED = "undecided"
    ABSENT = "absent_node"
    GONE = "gone_node"
    LOST_GPUS = "lost_gpus"
    UNMEASURED = "unmeasured_node"
    MARKED = MARKED
    NOT_MARKED = NOT_MARKED


KIND_OF: Mapping[str, WarningKind] = {
    **{category: WarningKind(category) for category in ALARMS},
    **dict.fromkeys((*sorted(SLOWER | {HISTORY_SLOWER}), WATCHED), WarningKind.SLOW),
    UNSTEADY: WarningKind.UNSTEADY,
    undecided_streaks.CATEGORY: WarningKind.UNDECIDED,
    **{category: WarningKind(category) for category in ATTENDANCE},
    MARKED: WarningKind.MARKED,
    NOT_MARKED: WarningKind.NOT_MARKED,
}
ACTS = frozenset({WarningKind.MARKED, WarningKind.NOT_MARKED})  # what was done about a breach: they stand beside it
ENDED: Mapping[WarningKind, str] = {
    WarningKind.NO_FIGURE: "a later run gave figures",
    WarningKind.PART_FAILED: "a later run was judged without a failure",
    WarningKind.OTHER_WORK: "a later run computed the same on all its nodes",
    WarningKind.DRILL_UNDETECTED: "its run is over",
    WarningKind.SLOW: "as fast again as before",
    WarningKind.UNSTEADY: "steady again",
    WarningKind.UNDECIDED: "judged again",
    WarningKind(GONE): "no longer missed",
    WarningKind.MARKED: "takes other work again",
    WarningKind.NOT_MARKED: "no longer in breach, or marked",
}
OVER = "this is over"


def warnings_of(campaign: Campaign) -> Mapping[tuple[str, WarningKind], Finding]:
    """(node, kind) -> the finding to warn of, the first of several. Red nodes, which have a breach, and drilled nodes
    are left out, except for what was done about the breach.
    """
    others = red_or_drilled(campaign)
    warnings: dict[tuple[str, WarningKind], Finding] = {}
    for finding in campaign.findings:
        if finding.category in KIND_OF and finding.level is Level.WARNING:
            for node in finding.nodes:
                if node not in others or KIND_OF[finding.category] in ACTS:
                    warnings.setdefault((node, KIND_OF[finding.category]), finding)
    return warnings


def alarm_findings(campaign: Campaign) -> Mapping[tuple[str, WarningKind], Finding]:
    """("", kind) -> the finding that turns the whole run red, the first of several."""
    return {("", KIND_OF[finding.category]): finding for finding in reversed(campaign.alarms)}


def changes_of(campaign: Campaign, node: str) -> tuple[RateChange, ...]:
    """The node's largest loss tonight at each work."""
    of_work: dict[str, RateChange] = {}
    for finding in campaign.findings:
        if KIND_OF.get(finding.category) is WarningKind.SLOW:
            for change in finding.changes:
                known = of_work.get(change.fingerprint, change)
                if change.node == node:
                    of_work[change.fingerprint] = min(change, known, key=change_pct)
    return tuple(of_work.values())


def red_or_drilled(campaign: Campaign) -> set[str]:
    return {node.node for node in campaign.nodes if node.state in RED or node.is_drill}
