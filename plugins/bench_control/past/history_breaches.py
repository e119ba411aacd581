"""The breaches of the history: opened by a red node, closed when it is well again."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from sqlalchemy import Connection, Row, insert, or_, select, update

from bench_control.collecting.campaign import Campaign
from bench_control.past.history_summaries import Work
from bench_control.past.history_tables import breaches
from bench_control.words.verdicts import RED, Finding, Level, NodeVerdict, State

WELL = frozenset({State.OK, State.NOTICE})
_WORK = ("gpu_name", "model", "recipe", "strategy")


def update_breaches(connection: Connection, campaign: Campaign, works: Sequence[Work]) -> None:
    """A red node opens a breach unless one covers this moment; a node that is well closes the ones that do. `works`:
    the campaign's, with its verdicts.
    """
    at = campaign.finished_at
    not_over = select(breaches).where(or_(breaches.c.closed_at.is_(None), breaches.c.closed_at > at))
    rows = connection.execute(not_over.order_by(breaches.c.opened_at.desc())).all()
    earliest = {(row.node, row.group_id, row.is_drill): row for row in rows}
    work_of = {(work.group_id, node): work for work in works for node in work.verdicts}
    findings: dict[str, list[Finding]] = {}
    for finding in campaign.findings:
        findings.setdefault(finding.subject, []).append(finding)
    opened = []
    for group in campaign.groups:
        for verdict in group.nodes:
            keys = [(verdict.node, group.group_id, is_drill) for is_drill in (False, True)]
            if verdict.state in WELL and not verdict.is_watched:
                _close(connection, [earliest[key] for key in keys if key in earliest], campaign)
            elif verdict.state in RED:
                work = work_of[group.group_id, verdict.node]
                values = _values(campaign, work, verdict, _diagnosed(findings.get(verdict.node, ()), verdict))
                row = earliest.get(keys[verdict.is_drill])
                if row is None:
                    opened.append(values)
                elif row.campaign_id == campaign.campaign_id or row.opened_at > at:
                    # The same campaign again, or an older one recorded late: the breach began here.
                    began = {**values, "opened_at": min(row.opened_at, at)}
                    connection.execute(update(breaches).where(breaches.c.id == row.id).values(began))
    if opened:
        connection.execute(insert(breaches), opened)


def _close(connection: Connection, rows: Sequence[Row[Any]], campaign: Campaign) -> None:
    end = {"closed_at": campaign.finished_at, "closed_by_campaign_id": campaign.campaign_id}
    for row in rows:
        if row.opened_at <= campaign.finished_at:
            connection.execute(update(breaches).where(breaches.c.id == row.id).values(end))


def _values(campaign: Campaign, work: Work, verdict: NodeVerdict, finding: Finding | None) -> Mapping[str, Any]:
    red = next((metric for metric in verdict.metrics if metric.state is State.BREACH), None)
    return {
        "node": verdict.node,
        "group_id": work.group_id,
        "campaign_id": campaign.campaign_id,
        "dag_id": campaign.suite,
        "dag_run_id": campaign.dag_run_id,
        **{name: work.values[name] for name in _WORK},
        "state": verdict.state.value,
        "metric": red.metric.value if red else None,
        "deviation": red.deviation if red else None,
        "reason": verdict.reason,
        "cause": finding.summary if finding else None,
        "resolution": finding.resolution if finding else None,
        "is_drill": verdict.is_drill,
        "opened_at": campaign.finished_at,
    }


def _diagnosed(findings: Sequence[Finding], verdict: NodeVerdict) -> Finding | None:
    """What the diagnosis says of this verdict: its summary holds the reason. Else the first error told of the node."""
    told = [finding for finding in findings if verdict.reason and verdict.reason in finding.summary]
    return next(iter([*told, *(finding for finding in findings if finding.level is Level.ERROR)]), None)
