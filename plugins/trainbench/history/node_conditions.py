"""The present condition of each node, from its latest verdict, the age of that and its open breaches."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import ColumnElement, Connection, Row, func, select

from trainbench.core.formats import day, one_line
from trainbench.core.natural_order import natural
from trainbench.history.breach import Breach, open_breaches_by_node
from trainbench.history.summary_tables import node_verdicts, works
from trainbench.judging.node_condition import TRAITS, Condition, NodeCondition, Reach, condition_now

NAMES_AT_ONCE = 500
DECIDED_DAYS = 92  # how far back the last judgement of an undecided node is looked for
MAX_REASON = 160
NOT_DECIDED = (Condition.UNDECIDED, Condition.BUSY)


def node_conditions(
    connection: Connection,
    names: Collection[str],
    now: datetime,
    fresh: timedelta,
    *,
    lately: ColumnElement[bool],
    quarter: ColumnElement[bool],
    of_breaches: ColumnElement[bool],
) -> tuple[NodeCondition, ...]:
    """Conditions of these nodes and of those with an open breach, in natural order.

    `lately`, on `works`: where their latest verdicts are; `quarter`, on `works`: where the last judgement of an
    undecided node is searched, see DECIDED_DAYS; `of_breaches`, on `breaches`: those that count.
    """
    open_by_node = open_breaches_by_node(connection, of_breaches)
    latest = dict(_latest(connection, lately, sorted(names)))
    waiting = [node for node, row in latest.items() if row.condition in NOT_DECIDED]
    decided = dict(_decided(connection, quarter, waiting))
    return tuple(
        _now(node, latest.get(node), open_by_node.get(node, ()), decided.get(node), now, fresh)
        for node in sorted({*names, *open_by_node}, key=natural)
    )


def _now(
    node: str,
    row: Row[Any] | None,
    of_node: Sequence[Breach],
    decided_at: datetime | None,
    now: datetime,
    fresh: timedelta,
) -> NodeCondition:
    latest = None
    if row is not None:
        latest = NodeCondition(node, Condition(row.condition), row.at, row.condition_reason or "")
    unseen = [breach for breach in of_node if breach.acknowledgement is None]
    condition = condition_now(
        node,
        latest,
        now=now,
        fresh=fresh,
        red_states=frozenset(breach.state for breach in unseen if breach.state),
        red_since=min((breach.opened_at for breach in unseen or of_node), default=None),
        is_acknowledged=bool(of_node) and not unseen,
        decided_at=decided_at,
    )
    return condition._replace(reason=_reason(condition, unseen or of_node))


def _reason(condition: NodeCondition, of_node: Sequence[Breach]) -> str:
    """An open breach's own reason, and since when: the latest verdict may speak of something else."""
    since = day(condition.since) if condition.since else None
    if condition.condition is Condition.STALE:
        return f"last on {since}" if since else "never"
    if condition.condition in NOT_DECIDED:
        last = f"last judged on {since}" if since else f"not judged for {DECIDED_DAYS} days"
        return "; ".join(filter(None, [condition.reason, last]))
    if TRAITS[condition.condition].reach is Reach.RED or condition.condition is Condition.ACKNOWLEDGED:
        fitting = (breach for breach in of_node if breach.state == condition.condition.value)
        worst = next(fitting, next(iter(of_node), None))
        return f"{one_line(worst.reason, MAX_REASON)}; since {since}" if worst else condition.reason
    return condition.reason


def _latest(connection: Connection, lately: ColumnElement[bool], names: Sequence[str]) -> Iterator[tuple[str, Any]]:
    """Node -> a verdict of the latest campaign that judged it; all of one campaign have the same condition."""
    first = connection.execute(select(func.min(works.c.id)).where(lately)).scalar()
    columns = node_verdicts.c.node, node_verdicts.c.condition, node_verdicts.c.condition_reason, works.c.at
    for some in _pieces(names if first else ()):
        of_names = node_verdicts.c.node.in_(some) & (node_verdicts.c.work_id >= first)
        query = select(*columns).join(works, works.c.id == node_verdicts.c.work_id).where(of_names, lately)
        for row in connection.execute(query.order_by(works.c.at)):  # the last one of a node stays
            yield row._mapping["node"], row


def _decided(
    connection: Connection, quarter: ColumnElement[bool], names: Sequence[str]
) -> Iterator[tuple[str, datetime]]:
    """Node -> when it was last judged, and not only tried."""
    for some in _pieces(names):
        query = (
            select(node_verdicts.c.node, func.max(works.c.at))
            .join(works, works.c.id == node_verdicts.c.work_id)
            .where(node_verdicts.c.node.in_(some), node_verdicts.c.condition.not_in(NOT_DECIDED), quarter)
            .group_by(node_verdicts.c.node)
        )
        yield from connection.execute(query)


def _pieces(names: Sequence[str]) -> Iterator[Sequence[str]]:
    yield from (names[start : start + NAMES_AT_ONCE] for start in range(0, len(names), NAMES_AT_ONCE))
