"""What each channel is still to be told, read from the history, and what became of every notice.

A notice is claimed before it is sent. A send that fails gives the claim back with the reason, and the next try takes
it. A sender that dies in between leaves a claim without an end: nobody knows whether the message went out, so it is
told of and not sent again.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, NamedTuple

from sqlalchemy import Connection, Engine, Row, and_, exists, insert, select, update
from sqlalchemy.exc import SQLAlchemyError

from trainbench.alerting.breach_text import how_far, how_it_ended
from trainbench.alerting.notifications import Event, Kind, Notice
from trainbench.core.verdicts import Level, Metric, State
from trainbench.history.database import HistoryError
from trainbench.history.notice_tables import notices, warnings
from trainbench.history.run_tables import breaches
from trainbench.history.summary_tables import acknowledgements
from trainbench.judging import warned
from trainbench.settings.channels import Channel

DUE_DAYS = 7  # what nobody could be told for so long is not told any more
KEPT_DAYS = 90  # so long an end waits for the end of what else is open of the node
_KINDS = [kind.value for kind in warned.Kind]
_WORK = ("model", "recipe", "strategy", "gpu_name")


@dataclass(frozen=True)
class Outbox:
    engine: Engine

    def take(self, dag_id: str, channel: Channel, now: datetime) -> tuple[Notice, ...]:
        """Claims everything of that DAG that this channel is still to be told: one notice for each node, the worst
        first. Raises HistoryError.
        """
        with self._transaction() as connection:
            rows = connection.execute(select(notices).where(notices.c.channel == channel.name)).all()
            told = {(row.kind, row.about_id, row.event): row for row in rows}
            since = now - timedelta(days=DUE_DAYS)
            due = [
                notice
                for troubles in _by_node(_troubles(connection, dag_id, now)).values()
                for notice in _of_node(troubles, channel.at_least, since, told)
            ]
            for notice in due:
                _claim(connection, notice, channel, now, is_known=_key(notice) in told)
        return one_for_each_node(due)

    def sent(self, taken: Sequence[Notice], channel: Channel, now: datetime) -> None:
        self._end(taken, channel, sent_at=now, problem=None)

    def failed(self, taken: Sequence[Notice], channel: Channel, problem: str) -> None:
        """They are due again."""
        self._end(taken, channel, sent_at=None, problem=problem)

    def unsent(self, since: datetime, before: datetime) -> tuple[Row[Any], ...]:
        """Claimed within that time, and failed or without an end; the oldest first. Rows of `notices`."""
        between = (notices.c.claimed_at >= since) & (notices.c.claimed_at < before)
        query = select(notices).where(between, notices.c.sent_at.is_(None)).order_by(notices.c.claimed_at).limit(100)
        with self._transaction(write=False) as connection:
            return tuple(connection.execute(query).all())

    def _end(self, taken: Sequence[Notice], channel: Channel, **values: Any) -> None:
        with self._transaction() as connection:
            for notice in (each for entry in taken for each in entry.all):
                connection.execute(update(notices).where(_row(notice, channel)).values(values))

    @contextmanager
    def _transaction(self, write: bool = True) -> Iterator[Connection]:
        try:
            with self.engine.execution_options(is_write=write).begin() as connection:
                yield connection
        except SQLAlchemyError as error:
            raise HistoryError.of(self.engine.url, error) from None


class Trouble(NamedTuple):
    """A breach or a warning, open or over. `is_seen`: somebody acknowledged it. `was_replaced`: a worse one took its
    place, so that its end is nobody's news.
    """

    notice: Notice
    is_seen: bool = False
    was_replaced: bool = False


def _troubles(connection: Connection, dag_id: str, now: datetime) -> Iterator[Trouble]:
    """Of that DAG, those that are open or that ended of late; the worst first."""
    recent = now - timedelta(days=KEPT_DAYS)
    seen = exists().where(
        acknowledgements.c.breach_id == breaches.c.id,
        acknowledgements.c.node == breaches.c.node,
        acknowledgements.c.group_id == breaches.c.group_id,
    )
    is_kept = breaches.c.closed_at.is_(None) | (breaches.c.closed_at >= recent)
    order = (breaches.c.is_drill, breaches.c.opened_at, breaches.c.id)
    of_dag = select(breaches, seen.label("is_seen")).where(breaches.c.dag_id == dag_id, is_kept).order_by(*order)
    for row in connection.execute(of_dag):
        yield Trouble(_of_breach(row), is_seen=row.is_seen)
    is_kept = warnings.c.closed_at.is_(None) | (warnings.c.closed_at >= recent)
    of_dag = select(warnings).where(warnings.c.dag_id == dag_id, is_kept)
    by_kind = sorted(connection.execute(of_dag).all(), key=lambda row: (_KINDS.index(row.kind), row.opened_at, row.id))
    for row in by_kind:
        yield Trouble(_of_warning(row), was_replaced=row.closed_at is not None and row.ended is None)


def _by_node(troubles: Iterable[Trouble]) -> Mapping[tuple[str, bool], list[Trouble]]:
    """A drill is told of by itself: it says nothing about the node."""
    nodes: dict[tuple[str, bool], list[Trouble]] = {}
    for trouble in troubles:
        nodes.setdefault((trouble.notice.node, trouble.notice.is_drill), []).append(trouble)
    return nodes


def _of_node(
    troubles: Sequence[Trouble], at_least: Level, since: datetime, told: Mapping[tuple[str, int, str], Row[Any]]
) -> Iterator[Notice]:
    """What is due for one node. That something is over is not said while anything else of the node is open: it is said
    once all of it is, however long that took.
    """
    is_open = [trouble.notice for trouble in troubles if trouble.notice.event is Event.OPENED]
    if is_open:
        new = [t.notice for t in troubles if t.notice.event is Event.OPENED and not t.is_seen]
        candidates = [notice for notice in new if notice.opened_at >= since]
    else:
        over = [t.notice for t in troubles if not t.was_replaced]
        last = max((notice.closed_at for notice in over if notice.closed_at), default=since)
        candidates = over if last >= since else []
    for notice in candidates:
        if (notice.kind is Kind.BREACH or at_least is Level.WARNING) and _is_due(notice, told):
            yield notice


def one_for_each_node(due: Iterable[Notice]) -> tuple[Notice, ...]:
    """The worst of each node, with the others in it."""
    nodes: dict[tuple[str, bool], list[Notice]] = {}
    for notice in due:
        nodes.setdefault((notice.node, notice.is_drill), []).append(notice)
    entries = [first.model_copy(update={"also": tuple(others)}) for first, *others in nodes.values()]
    return tuple(sorted(entries, key=lambda entry: (entry.kind is not Kind.BREACH, entry.is_drill, entry.opened_at)))


def _is_due(notice: Notice, told: Mapping[tuple[str, int, str], Row[Any]]) -> bool:
    """New, or tried in vain. That something is over is for those only who were told that it began."""
    row = told.get(_key(notice))
    if row is not None:
        return row.sent_at is None and row.problem is not None
    if notice.event is Event.OPENED:
        return True
    began = told.get((notice.kind, notice.about_id, Event.OPENED))
    return began is not None and began.sent_at is not None


def _claim(connection: Connection, notice: Notice, channel: Channel, now: datetime, is_known: bool) -> None:
    if is_known:
        again = {"claimed_at": now, "problem": None, "num_tries": notices.c.num_tries + 1}
        connection.execute(update(notices).where(_row(notice, channel)).values(again))
        return
    key = {"kind": notice.kind.value, "about_id": notice.about_id, "event": notice.event.value}
    rest = {"channel": channel.name, "node": notice.node, "claimed_at": now, "num_tries": 1}
    connection.execute(insert(notices).values(key | rest))


def _key(notice: Notice) -> tuple[str, int, str]:
    return (notice.kind.value, notice.about_id, notice.event.value)


def _row(notice: Notice, channel: Channel) -> Any:
    return and_(
        notices.c.kind == notice.kind.value,
        notices.c.about_id == notice.about_id,
        notices.c.event == notice.event.value,
        notices.c.channel == channel.name,
    )


def _of_breach(row: Row[Any]) -> Notice:
    """A drill is over with its run: that it was found is sent once, as a drill, and no end."""
    metric = Metric(row.metric) if row.metric else None
    is_over = row.closed_at is not None and not row.is_drill
    return Notice(
        kind=Kind.BREACH,
        about_id=row.id,
        event=Event.CLOSED if is_over else Event.OPENED,
        node=row.node,
        what=how_far(State(row.state), metric, row.deviation),
        reason=row.reason,
        cause=row.cause,
        resolution=row.resolution,
        work=", ".join(value for name in _WORK if (value := row._mapping[name])) or None,
        is_drill=row.is_drill,
        opened_at=row.opened_at,
        closed_at=row.closed_at if is_over else None,
        dag_id=row.dag_id,
        dag_run_id=row.dag_run_id,
        ended=how_it_ended(row.was_removed, row.is_drill) if is_over else None,
    )


def _of_warning(row: Row[Any]) -> Notice:
    return Notice(
        kind=Kind.WARNING,
        about_id=row.id,
        event=Event.OPENED if row.closed_at is None else Event.CLOSED,
        node=row.node,
        what=row.summary,
        reason=None,
        cause=None,
        resolution=row.resolution,
        work=None,
        is_drill=False,
        opened_at=row.opened_at,
        closed_at=row.closed_at,
        dag_id=row.dag_id,
        dag_run_id=row.dag_run_id,
        ended=row.ended,
        subject=None if row.subject == row.node else row.subject,
    )
