"""The breaches of the history: a red node opens one; it closes when the node is well again or left the cluster.

A drill's breach ends with its run: it is kept, but never open.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any

from sqlalchemy import Connection, Row, func, insert, or_, select, update

from trainbench.core.grouping import grouped
from trainbench.core.verdicts import RED, Finding, Level, NodeVerdict, State
from trainbench.history.run_tables import breaches
from trainbench.history.summaries import WorkSummary
from trainbench.history.summary_tables import node_verdicts, works
from trainbench.history.warnings import is_old
from trainbench.judging.checks.missing_nodes import ABSENT, GONE_DAYS
from trainbench.results.campaign import Campaign

WELL = frozenset({State.OK, State.NOTICE})
WELL_AGAIN, REMOVED, OVER = "well again", "no longer in the cluster", "over with its run"
_WORK = ("gpu_name", "model", "recipe", "strategy")


def update_breaches(connection: Connection, campaign: Campaign, done: Sequence[WorkSummary]) -> None:
    """Open a breach for each red node without one at this time; close that of each node that is well. `done`: the
    campaign's works with their verdicts.

    A drill's breach ends with its campaign. A drill does not describe the node, so it closes no breach.
    """
    earliest = _not_over(connection, campaign)
    work_of = {(work.group_id, node): work for work in done for node in work.verdicts}
    findings = grouped((node, finding) for finding in campaign.findings for node in finding.nodes)
    opened = []
    for group in campaign.groups:
        for verdict in group.nodes:
            row = earliest.get((verdict.node, group.group_id, verdict.is_drill))
            if verdict.state in RED:
                work = work_of[group.group_id, verdict.node]
                diagnosed = _diagnosed(findings.get(verdict.node, ()), group.group_id)
                values = _values(campaign, work, verdict, diagnosed or _undiagnosed(verdict, group.group_id))
                if row is None:
                    opened.append({**values, **_end_of_drill(campaign, verdict)})
                elif row.campaign_id == campaign.campaign_id or row.opened_at > campaign.finished_at:
                    # The same campaign again, or an older one recorded late: the breach began here.
                    began = {**values, "opened_at": min(row.opened_at, campaign.finished_at)}
                    connection.execute(update(breaches).where(breaches.c.id == row.id).values(began))
            elif row is not None and verdict.state in WELL and not verdict.is_watched and not verdict.is_drill:
                _close(connection, [row], campaign, WELL_AGAIN)
    if opened:
        connection.execute(insert(breaches), opened)


def _not_over(connection: Connection, campaign: Campaign) -> Mapping[tuple[str, str, bool], Row[Any]]:
    """(node, group, is drill) -> the breach at this time, else the next one; of drills only this campaign's."""
    lasts = or_(breaches.c.closed_at.is_(None), breaches.c.closed_at > campaign.finished_at)
    own_drill = breaches.c.is_drill & (breaches.c.campaign_id == campaign.campaign_id)
    which = own_drill | (~breaches.c.is_drill & lasts)
    rows = connection.execute(select(breaches).where(which).order_by(breaches.c.opened_at.desc())).all()
    return {(row.node, row.group_id, row.is_drill): row for row in rows}


def close_removed(connection: Connection, campaign: Campaign) -> None:
    """Close the breaches of nodes that the cluster has not listed for GONE_DAYS. Only the newest campaign of the DAG
    that opened them may, and only if it covered the whole cluster.
    """
    if not campaign.judges_nodes or campaign.params.get("nodes") or is_old(connection, campaign):
        return
    listed = {verdict.node for verdict in campaign.nodes} | {node.name for node in campaign.known}
    listed |= {node for finding in campaign.findings if finding.category == ABSENT for node in finding.nodes}
    of_dag = (breaches.c.dag_id == campaign.suite) & breaches.c.closed_at.is_(None) & breaches.c.node.not_in(listed)
    judged_at = select(func.max(works.c.at)).join(node_verdicts, node_verdicts.c.work_id == works.c.id)
    for row in connection.execute(select(breaches).where(of_dag)).all():
        last = connection.execute(judged_at.where(node_verdicts.c.node == row.node)).scalar_one() or row.opened_at
        if last < campaign.finished_at - timedelta(days=GONE_DAYS):
            _close(connection, [row], campaign, REMOVED)


def _close(connection: Connection, rows: Sequence[Row[Any]], campaign: Campaign, ended: str) -> None:
    by = campaign.campaign_id
    end = {"closed_at": campaign.finished_at, "closed_by_campaign_id": by, "ended": ended}
    for row in rows:
        if row.opened_at <= campaign.finished_at:
            connection.execute(update(breaches).where(breaches.c.id == row.id).values(end))


def _values(campaign: Campaign, work: WorkSummary, verdict: NodeVerdict, finding: Finding) -> Mapping[str, Any]:
    return {
        "node": verdict.node,
        "group_id": work.group_id,
        "campaign_id": campaign.campaign_id,
        "dag_id": campaign.suite,
        "dag_run_id": campaign.dag_run_id,
        **{name: work.values[name] for name in _WORK},
        "state": verdict.state.value,
        "reason": verdict.reason,
        "finding": finding.model_dump_json(),
        "is_drill": verdict.is_drill,
        "opened_at": campaign.finished_at,
    }


def _end_of_drill(campaign: Campaign, verdict: NodeVerdict) -> Mapping[str, Any]:
    at, by, ended = (campaign.finished_at, campaign.campaign_id, OVER) if verdict.is_drill else (None, None, None)
    return {"closed_at": at, "closed_by_campaign_id": by, "ended": ended}


def _diagnosed(of_node: Sequence[Finding], group_id: str) -> Finding | None:
    """The diagnosis' error finding on the node at this work, else the node's first error finding."""
    errors = [finding for finding in of_node if finding.level is Level.ERROR]
    return next(iter(sorted(errors, key=lambda finding: finding.group_id != group_id)), None)


def _undiagnosed(verdict: NodeVerdict, group_id: str) -> Finding:
    """A finding made from the verdict alone, where the diagnosis failed."""
    return Finding(
        level=Level.ERROR,
        category=verdict.state.value,
        nodes=(verdict.node,),
        group_id=group_id,
        measured=verdict.state.value,
        expected=State.OK.value,
        evidence=tuple(metric for metric in verdict.metrics if metric.state is verdict.state),
        summary=f"is {verdict.state.value}: {verdict.reason}",
        resolution="open the report of the run",
        is_drill=verdict.is_drill,
    )
