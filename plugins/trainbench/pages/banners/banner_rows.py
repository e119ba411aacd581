"""The notices for Airflow's home page: one bounded read."""

from __future__ import annotations

from datetime import datetime, timedelta

from sqlalchemy import Connection

from trainbench.core.verdicts import State, Why
from trainbench.history.notice_tables import acknowledgements, notices
from trainbench.history.notices import Notice, notice_of, select_notices

MAX_ROWS = 500
LOOK_DAYS = 3  # a weekend; older ones that are not red stay on the pages only


def open_banners(connection: Connection, now: datetime) -> tuple[Notice, ...]:
    """Open notices of all DAGs that nobody acknowledged: red ones, then new others, one for each finding; the newest
    first.
    """
    is_red = notices.c.state == State.RED.value
    is_shown = is_red | (notices.c.opened_at >= now - timedelta(days=LOOK_DAYS))
    nobody_saw = notices.c.closed_at.is_(None) & acknowledgements.c.notice_id.is_(None)
    order = (is_red.desc(), notices.c.opened_at.desc(), notices.c.id.desc())
    query = select_notices().where(nobody_saw, is_shown).order_by(*order).limit(MAX_ROWS)
    of_finding: dict[object, Notice] = {}
    for notice in map(notice_of, connection.execute(query)):
        of_finding.setdefault(_subject(notice), notice)
    return tuple(of_finding.values())


def _subject(notice: Notice) -> object:
    """Equal for notices that one banner tells of."""
    if notice.why is Why.CHANGED:
        return notice.why, notice.campaign_id
    return (notice.campaign_id, notice.finding.nodes, notice.finding.summary) if not notice.is_red else notice.id
