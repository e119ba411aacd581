"""Notices in the history."""

from __future__ import annotations

from typing import Any

from sqlalchemy import ColumnElement, Connection, and_, func, select

from trainbench.core.verdicts import State
from trainbench.history.notices import Notice, notice_of, select_notices
from trainbench.history.tables import acknowledgements, notices
from trainbench.pages.reads.filters import Scope
from trainbench.pages.reads.rows import Notices

MAX_NOTICES = 500
MAX_ID = 2**31 - 1
_IS_RED = notices.c.state.in_([State.RED.value, State.DRILL.value])


def open_notices(connection: Connection, scope: Scope) -> Notices:
    """Open notices, unacknowledged ones first, then red ones, then the oldest. The filters' time does not hide any."""
    order = (acknowledgements.c.notice_id.is_not(None), _IS_RED.desc(), notices.c.opened_at, notices.c.id)
    return _notices(connection, scope.notices & notices.c.closed_at.is_(None), *order)


def closed_notices(connection: Connection, scope: Scope, most: int | None = None) -> Notices:
    """At most `most` notices closed within the filters' time, the last one first."""
    closed = and_(notices.c.closed_at.is_not(None), *scope.within(notices.c.closed_at))
    order = (notices.c.closed_at.desc(), notices.c.id.desc())
    return _notices(connection, scope.notices & closed, *order, most=most)


def notices_of(connection: Connection, scope: Scope, node: str) -> tuple[Notice, ...]:
    """The notices of one node, open or closed, the last opened first."""
    of_node = scope.notices & (notices.c.node == node)
    return _notices(connection, of_node, notices.c.opened_at.desc(), notices.c.id.desc()).rows


def notice_by_id(connection: Connection, scope: Scope, notice_id: int) -> Notice | None:
    if not 0 < notice_id <= MAX_ID:
        return None
    rows = _notices(connection, scope.notices & (notices.c.id == notice_id), notices.c.id).rows
    return rows[0] if rows else None


def _notices(connection: Connection, which: ColumnElement[bool], *order: Any, most: int | None = None) -> Notices:
    limit = MAX_NOTICES if most is None else min(most, MAX_NOTICES)
    rows = connection.execute(select_notices().where(which).order_by(*order).limit(limit)).all()
    num_total = len(rows)
    if num_total == limit:
        num_total = connection.execute(select(func.count()).select_from(notices).where(which)).scalar_one()
    return Notices(rows=tuple(map(notice_of, rows)), num_total=num_total)
