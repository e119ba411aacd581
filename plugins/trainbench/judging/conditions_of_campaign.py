"""The condition of each node of a campaign, as its report, exit code, note and alerts state it."""

from __future__ import annotations

from collections.abc import Mapping

from trainbench.core.formats import one_line, percent, signed
from trainbench.core.verdicts import RED, Confirmation, Metric, NodeVerdict, State
from trainbench.judging.checks.drills import is_detected
from trainbench.judging.deviations import NAMES, UNITS
from trainbench.judging.node_condition import UNDECIDED_STATES, Condition, Evidence, NodeCondition, condition_of
from trainbench.judging.over_time.level_changes import SLOWER
from trainbench.judging.peers.node_verdicts import lone_groups
from trainbench.results.campaign import Campaign

MAX_REASON = 120
_AGAIN = {
    Confirmation.CONFIRMED: "confirmed by a re-run",
    Confirmation.NOT_PLANNED: "no re-run was planned",
    Confirmation.PENDING: "re-run pending",
}


def conditions(campaign: Campaign) -> tuple[NodeCondition, ...]:
    """The condition of each judged node, in the order of the verdicts. A group that ran on one node only counts for
    nodes without another group.
    """
    lone = lone_groups(campaign.groups)
    verdicts: dict[str, list[NodeVerdict]] = {}
    for group in campaign.groups:
        is_lone = group in lone
        for node in group.nodes:
            verdicts.setdefault(node.node, []).extend(() if is_lone else (node,))
    behind = _behind(campaign)
    return tuple(condition_of(_evidence(campaign, node, of, behind.get(node))) for node, of in verdicts.items())


def reason_of(node: NodeVerdict) -> str:
    """Why a node is not ok, as a phrase: "samples/s -9.7 %, limit ±5 %, confirmed by a re-run with -9.0 %"."""
    off = [metric for metric in node.metrics if metric.state is State.BREACH]
    if node.state is not State.BREACH or any(metric.deviation is None for metric in off) or not off:
        return one_line(node.reason, MAX_REASON)
    parts = [
        f"{NAMES[m.metric]} {signed(m.deviation, unit)}, limit ±{m.limit:g}{unit}"
        for m, unit in ((metric, UNITS[metric.metric]) for metric in off)
        if m.deviation is not None
    ]
    if gpu := off[0].gpu:
        parts[0] = f"{gpu}: {parts[0]}"
    if again := _AGAIN.get(node.confirmation):
        parts.append(
            again + ("" if node.confirm_deviation_pct is None else f" with {percent(node.confirm_deviation_pct)}")
        )
    return ", ".join([*parts, *node.remarks])


def _behind(campaign: Campaign) -> Mapping[str, str]:
    """Node -> a phrase on how far it fell behind its own past."""
    behind = {
        node: ""  # the report has a sentence for each date
        for finding in campaign.findings
        if finding.category in SLOWER
        for node in finding.nodes
    }
    slower = (past for past in campaign.history if past.state is State.BREACH)
    return behind | {past.node: percent(past.deviation_pct) for past in slower}


def _evidence(campaign: Campaign, node: str, verdicts: list[NodeVerdict], behind: str | None) -> Evidence:
    states = frozenset(verdict.state for verdict in verdicts)
    is_drill = any(verdict.is_drill for verdict in verdicts)
    reasons = {
        Condition.FAILED: _reason(verdicts, State.FAILED),
        Condition.BREACH: _reason(verdicts, State.BREACH),
        Condition.DRILL: _drill(verdicts),
        Condition.BEHIND: behind or "",
        Condition.UNSTEADY: next((_unsteady(verdict) for verdict in verdicts if verdict.is_unsteady), ""),
        Condition.WATCHED: next((_watched(v) for v in verdicts if v.is_watched or v.state is State.NOTICE), ""),
        Condition.UNDECIDED: next(
            (reason_of(v) for v in verdicts if v.state in UNDECIDED_STATES), "no peer did the same work"
        ),
        Condition.BUSY: _reason(verdicts, State.BUSY),
    }
    return Evidence(
        node=node,
        now=campaign.finished_at,
        judged_at=campaign.finished_at,
        states=states,
        red_states=frozenset(
            v.state for v in verdicts if v.state in RED and not (v.is_drill and v.state is State.BREACH)
        ),
        is_drill=is_drill,
        is_behind=behind is not None,
        is_unsteady=any(verdict.is_unsteady for verdict in verdicts),
        is_watched=any(verdict.is_watched for verdict in verdicts),
        reasons=reasons,
    )


def _reason(verdicts: list[NodeVerdict], state: State) -> str:
    return next((reason_of(verdict) for verdict in verdicts if verdict.state is state), "")


def _drill(verdicts: list[NodeVerdict]) -> str:
    breach = next((verdict for verdict in verdicts if verdict.is_drill and is_detected(verdict)), None)
    return f"detected: {reason_of(breach)}" if breach else "not detected"


def _watched(node: NodeVerdict) -> str:
    rate = node.metric(Metric.SAMPLES_PER_SECOND)
    if not node.is_watched or rate is None or rate.deviation is None:
        return one_line(node.reason, MAX_REASON)
    return f"samples/s {percent(rate.deviation)}, limit ±{rate.limit:g} %"


def _unsteady(node: NodeVerdict) -> str:
    if node.unsteady_factor is None:
        return one_line(node.reason, MAX_REASON)
    return f"it scatters {node.unsteady_factor:.0f} times as much as its peers"
