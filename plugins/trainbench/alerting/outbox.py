"""The notices due on each channel, read from the history, and the outcome of each notice.

A notice is claimed before it is sent. A send that fails releases the claim with the reason, and the next try takes it.
A sender that dies in between leaves a claim without an end: the message may have been sent, so it is reported and not
sent again.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import Connection, Engine, Row, insert, select, update
from sqlalchemy.exc import SQLAlchemyError

from trainbench.alerting.notice_text import Event, Notice, event_of
from trainbench.core.grouping import grouped
from trainbench.core.verdicts import Level
from trainbench.history.breach import Breach, BreachKind, breach_of, select_breaches, warning_of
from trainbench.history.database import HistoryError
from trainbench.history.notice_tables import notices, warnings
from trainbench.history.run_tables import breaches
from trainbench.judging import warning_findings
from trainbench.settings.channels import Channel

DUE_DAYS = 7  # a notice that failed for longer is dropped
KEPT_DAYS = 90  # the notice of an end waits at most this long for the node's other breaches to end
_KINDS = [kind.value for kind in warning_findings.WarningKind]
Key = tuple[str, int, str]  # kind, id, event


@dataclass(frozen=True)
class Outbox:
    engine: Engine

    def take(self, dag_id: str, channel: Channel, now: datetime) -> tuple[Notice, ...]:
        """Claim the DAG's notices that are due on this channel: one for each node, the worst first. Raises
        HistoryError.
        """
        with self._transaction() as connection:
            rows = connection.execute(select(notices).where(notices.c.channel == channel.name)).all()
            known = {(row.kind, row.about_id, row.event): row for row in rows}
            since = now - timedelta(days=DUE_DAYS)
            due = [
                breach
                for of_node in _by_node(_breaches(connection, dag_id, now)).values()
                for breach in _of_node(of_node, channel.at_least, since, known)
            ]
            for breach in due:
                _claim(connection, breach, channel, now, is_known=_key(breach) in known)
        return one_for_each_node(due)

    def sent(self, taken: Sequence[Notice], channel: Channel, now: datetime) -> None:
        self._end(taken, channel, sent_at=now, problem=None)

    def failed(self, taken: Sequence[Notice], channel: Channel, problem: str) -> None:
        """Record that these notices could not be sent; they are due again."""
        self._end(taken, channel, sent_at=None, problem=problem)

    def unsent(self, since: datetime, before: datetime) -> tuple[Row[Any], ...]:
        """Rows of `notices` claimed within that time that failed or have no end, the oldest first."""
        between = (notices.c.claimed_at >= since) & (notices.c.claimed_at < before)
        query = select(notices).where(between, notices.c.sent_at.is_(None)).order_by(notices.c.claimed_at).limit(100)
        with self._transaction(write=False) as connection:
            return tuple(connection.execute(query).all())

    def _end(self, taken: Sequence[Notice], channel: Channel, **values: Any) -> None:
        with self._transaction() as connection:
            for breach in (each for notice in taken for each in notice):
                connection.execute(update(notices).where(_row(breach, channel)).values(values))

    @contextmanager
    def _transaction(self, write: bool = True) -> Iterator[Connection]:
        try:
            with self.engine.execution_options(is_write=write).begin() as connection:
                yield connection
        except SQLAlchemyError as error:
            raise HistoryError.of(self.engine.url, error) from None


def _breaches(connection: Connection, dag_id: str, now: datetime) -> Iterator[Breach]:
    """The DAG's breaches that are open or ended recently, the worst first."""
    recent = now - timedelta(days=KEPT_DAYS)
    is_kept = breaches.c.closed_at.is_(None) | (breaches.c.closed_at >= recent)
    order = (breaches.c.is_drill, breaches.c.opened_at, breaches.c.id)
    of_dag = select_breaches().where(breaches.c.dag_id == dag_id, is_kept).order_by(*order)
    yield from map(breach_of, connection.execute(of_dag))
    is_kept = warnings.c.closed_at.is_(None) | (warnings.c.closed_at >= recent)
    rows = connection.execute(select(warnings).where(warnings.c.dag_id == dag_id, is_kept)).all()
    by_kind = sorted(rows, key=lambda row: (_KINDS.index(row.kind), row.opened_at, row.id))
    yield from map(warning_of, by_kind)


def _by_node(stored: Iterable[Breach]) -> Mapping[tuple[str, bool], list[Breach]]:
    """Breaches and warnings by node. Each drill is apart, because it does not describe the node."""
    return grouped(((breach.node, breach.is_drill), breach) for breach in stored)


def _of_node(
    of_node: Sequence[Breach], at_least: Level, since: datetime, known: Mapping[Key, Row[Any]]
) -> Iterator[Breach]:
    """The notices due for one node. An end is sent only once nothing else of the node is open."""
    is_open = [breach for breach in of_node if event_of(breach) is Event.OPENED]
    if is_open:
        new = [breach for breach in is_open if breach.acknowledgement is None]
        candidates = [breach for breach in new if breach.opened_at >= since]
    else:
        # A warning that a worse one replaced sends no notice of its end.
        over = [breach for breach in of_node if breach.ended is not None]
        last = max((breach.closed_at for breach in over if breach.closed_at), default=since)
        candidates = over if last >= since else []
    for breach in candidates:
        if (breach.level is Level.ERROR or at_least is Level.WARNING) and _is_due(breach, known):
            yield breach


def one_for_each_node(due: Iterable[Breach]) -> tuple[Notice, ...]:
    """One notice for each node: its worst breach first, then the others."""
    notices = (tuple(of_node) for of_node in _by_node(due).values())
    return tuple(sorted(notices, key=lambda notice: _place(notice[0])))


def _place(breach: Breach) -> tuple[bool, bool, datetime]:
    return breach.kind is not BreachKind.BREACH, breach.is_drill, breach.opened_at


def _is_due(breach: Breach, known: Mapping[Key, Row[Any]]) -> bool:
    """Whether a notice is new or failed before. An end is due only where the beginning was sent."""
    row = known.get(_key(breach))
    if row is not None:
        return row.sent_at is None and row.problem is not None
    if event_of(breach) is Event.OPENED:
        return True
    began = known.get((breach.kind.value, breach.id, Event.OPENED.value))
    return began is not None and began.sent_at is not None


def _claim(connection: Connection, breach: Breach, channel: Channel, now: datetime, is_known: bool) -> None:
    if is_known:
        again = {"claimed_at": now, "problem": None, "num_tries": notices.c.num_tries + 1}
        connection.execute(update(notices).where(_row(breach, channel)).values(again))
        return
    key = dict(zip(("kind", "about_id", "event"), _key(breach), strict=True))
    rest = {"channel": channel.name, "node": breach.node, "claimed_at": now, "num_tries": 1}
    connection.execute(insert(notices).values(key | rest))


def _key(breach: Breach) -> Key:
    return breach.kind.value, breach.id, event_of(breach).value


def _row(breach: Breach, channel: Channel) -> Any:
    kind, about_id, event = _key(breach)
    is_it = (notices.c.kind == kind) & (notices.c.about_id == about_id) & (notices.c.event == event)
    return is_it & (notices.c.channel == channel.name)
