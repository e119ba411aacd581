"""What is to be said on Airflow's home page: breaches that nobody acknowledged, and new warnings. One bounded read."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from sqlalchemy import Connection, and_, exists, select

from trainbench.alerting.breach_text import how_far
from trainbench.core.verdicts import Level, Metric, State
from trainbench.history.notice_tables import warnings
from trainbench.history.run_tables import breaches
from trainbench.history.summary_tables import acknowledgements

MAX_ROWS = 500
WARNING_DAYS = 3  # a weekend; later a warning stands on the reports only


@dataclass(frozen=True, kw_only=True, slots=True)
class Said:
    level: Level
    node: str
    what: str
    cause: str | None
    since: datetime
    dag_id: str
    dag_run_id: str | None
    breach_id: int | None  # None: a warning


def said(connection: Connection, now: datetime) -> tuple[Said, ...]:
    """Of all DAGs: breaches, then warnings; the newest first. A drill's breach is never open."""
    return (*_breaches(connection), *_warnings(connection, now))


def _breaches(connection: Connection) -> list[Said]:
    seen = exists().where(
        acknowledgements.c.breach_id == breaches.c.id,
        acknowledgements.c.node == breaches.c.node,
        acknowledgements.c.group_id == breaches.c.group_id,
    )
    order = (breaches.c.opened_at.desc(), breaches.c.id.desc())
    query = select(breaches).where(breaches.c.closed_at.is_(None), ~seen).order_by(*order).limit(MAX_ROWS)
    return [
        Said(
            level=Level.ERROR,
            node=row.node,
            what=how_far(State(row.state), Metric(row.metric) if row.metric else None, row.deviation),
            cause=row.cause,
            since=row.opened_at,
            dag_id=row.dag_id or "",
            dag_run_id=row.dag_run_id,
            breach_id=row.id,
        )
        for row in connection.execute(query)
    ]


def _warnings(connection: Connection, now: datetime) -> list[Said]:
    """Not of nodes that have an open breach, acknowledged or not: those are looked at already."""
    red = exists().where(breaches.c.node == warnings.c.node, breaches.c.closed_at.is_(None))
    is_new = and_(warnings.c.closed_at.is_(None), warnings.c.opened_at >= now - timedelta(days=WARNING_DAYS))
    query = select(warnings).where(is_new, ~red).order_by(warnings.c.opened_at.desc(), warnings.c.id.desc())
    once = {(row.campaign_id, row.subject, row.summary): row for row in connection.execute(query.limit(MAX_ROWS))}
    return [
        Said(
            level=Level.WARNING,
            node=row.subject,  # one finding about several nodes is one banner
            what=row.summary,
            cause=None,
            since=row.opened_at,
            dag_id=row.dag_id,
            dag_run_id=row.dag_run_id,
            breach_id=None,
        )
        for row in once.values()
    ]
