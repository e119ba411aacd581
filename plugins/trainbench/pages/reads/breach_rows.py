"""The breaches that a reader may see: open ones, and recently closed ones."""

from __future__ import annotations

from typing import Any

from sqlalchemy import ColumnElement, Connection, and_, func, select

from trainbench.history.breach import Breach, breach_of, select_breaches, warning_of
from trainbench.history.notice_tables import warnings
from trainbench.history.run_tables import breaches
from trainbench.history.summary_tables import acknowledgements
from trainbench.judging.warning_findings import WarningKind
from trainbench.pages.reads.filters import Scope
from trainbench.pages.reads.rows import Breaches

MAX_BREACHES = 500
_IS_OPEN = breaches.c.closed_at.is_(None)


def open_breaches(connection: Connection, scope: Scope) -> Breaches:
    """Open breaches, unacknowledged ones first, then the oldest. The filters' time does not hide open ones."""
    order = (acknowledgements.c.breach_id.is_not(None), breaches.c.opened_at, breaches.c.id)
    return _breaches(connection, scope.breaches & _IS_OPEN, *order)


def closed_breaches(connection: Connection, scope: Scope, most: int | None = None) -> Breaches:
    """At most `most` breaches closed within the filters' time, the last one first."""
    closed = and_(breaches.c.closed_at.is_not(None), *scope.within(breaches.c.closed_at))
    order = (breaches.c.closed_at.desc(), breaches.c.id.desc())
    return _breaches(connection, scope.breaches & closed, *order, most=most)


def breaches_of(connection: Connection, scope: Scope, node: str) -> tuple[Breach, ...]:
    """The breaches of one node, open or closed, the last opened first."""
    of_node = scope.breaches & (breaches.c.node == node)
    return _breaches(connection, of_node, breaches.c.opened_at.desc(), breaches.c.id.desc()).rows


def marks_of(connection: Connection, scope: Scope, node: str) -> tuple[Breach, ...]:
    """The marks that kept other work away from the node, the last one first."""
    is_mark = and_(
        warnings.c.kind == WarningKind.MARKED.value, warnings.c.node == node, warnings.c.dag_id.in_(scope.suites)
    )
    query = select(warnings).where(is_mark).order_by(warnings.c.opened_at.desc()).limit(MAX_BREACHES)
    return tuple(map(warning_of, connection.execute(query)))


def breach_by_id(connection: Connection, scope: Scope, breach_id: int) -> Breach | None:
    rows = _breaches(connection, scope.breaches & (breaches.c.id == breach_id), breaches.c.id).rows
    return rows[0] if rows else None


def _breaches(connection: Connection, which: ColumnElement[bool], *order: Any, most: int | None = None) -> Breaches:
    limit = MAX_BREACHES if most is None else min(most, MAX_BREACHES)
    rows = connection.execute(select_breaches().where(which).order_by(*order).limit(limit)).all()
    num_total = len(rows)
    if num_total == limit:
        num_total = connection.execute(select(func.count()).select_from(breaches).where(which)).scalar_one()
    return Breaches(rows=tuple(map(breach_of, rows)), num_total=num_total)
