"""The breaches and warnings for Airflow's home page: one bounded read."""

from __future__ import annotations

from datetime import datetime, timedelta

from sqlalchemy import Connection, and_, exists, select

from trainbench.history.breach import Breach, breach_of, select_breaches, warning_of
from trainbench.history.notice_tables import warnings
from trainbench.history.run_tables import breaches
from trainbench.history.summary_tables import acknowledgements

MAX_ROWS = 500
WARNING_DAYS = 3  # a weekend; older warnings stay in the reports only


def open_banners(connection: Connection, now: datetime) -> tuple[Breach, ...]:
    """Unacknowledged breaches of all DAGs, then new warnings; the newest first. A drill's breach is never open."""
    return (*_breaches(connection), *_warnings(connection, now))


def _breaches(connection: Connection) -> list[Breach]:
    nobody_saw = breaches.c.closed_at.is_(None) & acknowledgements.c.breach_id.is_(None)
    order = (breaches.c.opened_at.desc(), breaches.c.id.desc())
    return list(
        map(breach_of, connection.execute(select_breaches().where(nobody_saw).order_by(*order).limit(MAX_ROWS)))
    )


def _warnings(connection: Connection, now: datetime) -> list[Breach]:
    """Warnings, one for each finding, without nodes that have an open breach, which has its own banner."""
    red = exists().where(breaches.c.node == warnings.c.node, breaches.c.closed_at.is_(None))
    is_new = and_(warnings.c.closed_at.is_(None), warnings.c.opened_at >= now - timedelta(days=WARNING_DAYS))
    query = select(warnings).where(is_new, ~red).order_by(warnings.c.opened_at.desc(), warnings.c.id.desc())
    of_finding = {(row.campaign_id, row.finding): row for row in connection.execute(query.limit(MAX_ROWS))}
    return list(map(warning_of, of_finding.values()))
