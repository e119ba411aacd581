"""The breaches that a reader may see: open ones, and those closed of late."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from sqlalchemy import ColumnElement, Connection, Row, Select, and_, func, select

from trainbench.alerting.breach_text import how_it_ended
from trainbench.core.verdicts import Metric, State
from trainbench.history.run_tables import breaches
from trainbench.history.summary_tables import acknowledgements
from trainbench.pages.reads.filters import Scope
from trainbench.pages.reads.rows import Acknowledgement, Breaches, BreachRow

MAX_BREACHES = 500
# An id may come back in a database that was made anew: the node and the group tell whose it is.
_ACKNOWLEDGED = breaches.outerjoin(
    acknowledgements,
    and_(
        acknowledgements.c.breach_id == breaches.c.id,
        acknowledgements.c.node == breaches.c.node,
        acknowledgements.c.group_id == breaches.c.group_id,
    ),
)
_IS_OPEN = breaches.c.closed_at.is_(None)


def open_breaches(connection: Connection, scope: Scope) -> Breaches:
    """Those that nobody acknowledged first, the oldest first. The filters' time does not hide what is wrong now."""
    order = (acknowledgements.c.breach_id.is_not(None), breaches.c.opened_at, breaches.c.id)
    return _breaches(connection, scope.breaches & _IS_OPEN, *order)


def closed_breaches(connection: Connection, scope: Scope, most: int | None = None) -> Breaches:
    """Those that were closed within the filters' time, the last one first; at most `most` rows."""
    closed = and_(breaches.c.closed_at.is_not(None), *scope.within(breaches.c.closed_at))
    order = (breaches.c.closed_at.desc(), breaches.c.id.desc())
    return _breaches(connection, scope.breaches & closed, *order, most=most)


def breaches_of(connection: Connection, scope: Scope, node: str) -> tuple[BreachRow, ...]:
    """Of one node, open or closed; those opened last first."""
    of_node = scope.breaches & (breaches.c.node == node)
    return _breaches(connection, of_node, breaches.c.opened_at.desc(), breaches.c.id.desc()).rows


def breach_by_id(connection: Connection, scope: Scope, breach_id: int) -> BreachRow | None:
    rows = _breaches(connection, scope.breaches & (breaches.c.id == breach_id), breaches.c.id).rows
    return rows[0] if rows else None


def breaches_by_node(connection: Connection, scope: Scope) -> Mapping[str, Sequence[BreachRow]]:
    """Node -> its open breaches, the oldest first."""
    by_node: dict[str, list[BreachRow]] = {}
    query = _selected().where(scope.breaches & _IS_OPEN).order_by(breaches.c.opened_at, breaches.c.id)
    for row in connection.execute(query):
        by_node.setdefault(row.node, []).append(_row(row))
    return by_node


def _breaches(connection: Connection, which: ColumnElement[bool], *order: Any, most: int | None = None) -> Breaches:
    limit = MAX_BREACHES if most is None else min(most, MAX_BREACHES)
    rows = connection.execute(_selected().where(which).order_by(*order).limit(limit)).all()
    num_total = len(rows)
    if num_total == limit:
        num_total = connection.execute(select(func.count()).select_from(breaches).where(which)).scalar_one()
    return Breaches(rows=tuple(map(_row, rows)), num_total=num_total)


def _selected() -> Select[Any]:
    acknowledged = acknowledgements.c.who, acknowledgements.c.at, acknowledgements.c.reason.label("why")
    return select(breaches, *acknowledged).select_from(_ACKNOWLEDGED)


def _row(row: Row[Any]) -> BreachRow:
    return BreachRow(
        breach_id=row.id,
        node=row.node,
        group_id=row.group_id,
        gpu_name=row.gpu_name,
        model=row.model,
        recipe=row.recipe,
        strategy=row.strategy,
        state=State(row.state),
        metric=Metric(row.metric) if row.metric else None,
        deviation=row.deviation,
        reason=row.reason,
        cause=row.cause,
        resolution=row.resolution,
        is_drill=row.is_drill,
        opened_at=row.opened_at,
        closed_at=row.closed_at,
        closed_by_campaign_id=row.closed_by_campaign_id,
        ended=how_it_ended(row.was_removed, row.is_drill),
        campaign_id=row.campaign_id,
        dag_id=row.dag_id,
        dag_run_id=row.dag_run_id,
        acknowledgement=Acknowledgement(who=row.who, at=row.at, reason=row.why) if row.who is not None else None,
    )
