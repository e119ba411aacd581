"""What each channel is still to be told, read from the history, and what became of every notice.

A notice is claimed before it is sent. A send that fails gives the claim back with the reason, and the next try takes
it. A sender that dies in between leaves a claim without an end: nobody knows whether the message went out, so it is
told of and not sent again.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import Connection, Engine, Row, and_, exists, insert, select, update
from sqlalchemy.exc import SQLAlchemyError

from bench_control.alerting.breach_words import how_far, how_it_ended, likely_cause
from bench_control.alerting.notifications import Event, Kind, Notice
from bench_control.installation.channels import Channel
from bench_control.judging.attendance import GONE
from bench_control.past.history_database import HistoryError
from bench_control.past.history_tables import breaches
from bench_control.past.notice_tables import notices, warnings
from bench_control.past.summary_tables import acknowledgements
from bench_control.words.verdicts import Level, Metric, State

DUE_DAYS = 7  # what nobody could be told for so long is not told any more
_WORK = ("model", "recipe", "strategy", "gpu_name")


@dataclass(frozen=True)
class Outbox:
    engine: Engine

    def take(self, dag_id: str, channel: Channel, now: datetime) -> tuple[Notice, ...]:
        """Claims everything of that DAG that this channel is still to be told, worst first. Raises HistoryError."""
        with self._transaction() as connection:
            rows = connection.execute(select(notices).where(notices.c.channel == channel.name)).all()
            told = {(row.kind, row.about_id, row.event): row for row in rows}
            due = [
                notice
                for notice in _candidates(connection, dag_id, channel.at_least, now - timedelta(days=DUE_DAYS))
                if _is_due(notice, told)
            ]
            for notice in due:
                _claim(connection, notice, channel, now, is_known=_key(notice) in told)
        return tuple(due)

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
            for notice in taken:
                connection.execute(update(notices).where(_row(notice, channel)).values(values))

    @contextmanager
    def _transaction(self, write: bool = True) -> Iterator[Connection]:
        try:
            with self.engine.execution_options(is_write=write).begin() as connection:
                yield connection
        except SQLAlchemyError as error:
            raise HistoryError.of(self.engine.url, error) from None


def _candidates(connection: Connection, dag_id: str, at_least: Level, since: datetime) -> Iterator[Notice]:
    seen = exists().where(
        acknowledgements.c.breach_id == breaches.c.id,
        acknowledgements.c.node == breaches.c.node,
        acknowledgements.c.group_id == breaches.c.group_id,
    )
    is_open = and_(breaches.c.closed_at.is_(None), breaches.c.opened_at >= since, ~seen)
    order = (breaches.c.is_drill, breaches.c.opened_at, breaches.c.id)
    of_dag = select(breaches).where(breaches.c.dag_id == dag_id, is_open | (breaches.c.closed_at >= since))
    for row in connection.execute(of_dag.order_by(*order)):
        yield _of_breach(row)
    if at_least is Level.WARNING:
        is_new = and_(warnings.c.closed_at.is_(None), warnings.c.opened_at >= since)
        warned = select(warnings).where(warnings.c.dag_id == dag_id, is_new | (warnings.c.closed_at >= since))
        for row in connection.execute(warned.order_by(warnings.c.opened_at, warnings.c.id)):
            yield _of_warning(row)


def _is_due(notice: Notice, told: dict[tuple[str, int, str], Row[Any]]) -> bool:
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
        cause=likely_cause(row.cause, row.reason),
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
        ended=_end_of_warning(row.category) if row.closed_at else None,
    )


def _end_of_warning(category: str) -> str:
    """A node that is not missed any more may be out for good."""
    return "no longer missed" if category == GONE else "this is over"
