"""The messages due on each channel, read from the history, and the outcome of each.

A message is claimed before it is sent. A send that fails releases the claim with the reason, and the next try takes it.
A sender that dies in between leaves a claim without an end: the message may have been sent, so it is reported and not
sent again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, NamedTuple

from sqlalchemy import Connection, Engine, Row, insert, select, update

from trainbench.alerting.notice_text import Event
from trainbench.core.verdicts import Level
from trainbench.history.database import transaction
from trainbench.history.notices import JOINED, Notice, notice_of, select_notices
from trainbench.history.tables import messages, notices
from trainbench.settings.channels import Channel

DUE_DAYS = 7  # a message that failed for longer is dropped
Rows = Mapping[Event, Row[Any]]


class Due(NamedTuple):
    notice: Notice
    event: Event


@dataclass(frozen=True)
class Outbox:
    engine: Engine

    def take(self, dag_id: str, channel: Channel, now: datetime) -> tuple[Due, ...]:
        """Claim the DAG's messages that are due on this channel, the worst notices first. Raises HistoryError."""
        since = now - timedelta(days=DUE_DAYS)
        kept = notices.c.closed_at.is_(None) | (notices.c.closed_at >= since)
        of_dag = select_notices().where(notices.c.dag_id == dag_id, kept)
        with transaction(self.engine, write=True) as connection:
            known: dict[int, dict[Event, Row[Any]]] = {}
            for row in connection.execute(select(messages).where(messages.c.channel == channel.name)):
                known.setdefault(row.notice_id, {})[Event(row.event)] = row
            found = [
                Due(notice, event)
                for notice in map(notice_of, connection.execute(of_dag))
                if (event := _event(notice, channel.at_least, since, known.get(notice.id, {})))
            ]
            for due in found:
                _claim(connection, due, channel, now, is_known=due.event in known.get(due.notice.id, {}))
        return tuple(sorted(found, key=lambda due: _place(due.notice)))

    def sent(self, taken: Sequence[Due], channel: Channel, now: datetime) -> None:
        self._end(taken, channel, sent_at=now, problem=None)

    def failed(self, taken: Sequence[Due], channel: Channel, problem: str) -> None:
        """Record that these messages could not be sent; they are due again."""
        self._end(taken, channel, sent_at=None, problem=problem)

    def unsent(self, since: datetime, before: datetime) -> tuple[Row[Any], ...]:
        """Rows of `messages` claimed within that time that failed or have no end, the oldest first."""
        between = (messages.c.claimed_at >= since) & (messages.c.claimed_at < before)
        query = select(messages).where(between, messages.c.sent_at.is_(None)).order_by(messages.c.claimed_at).limit(100)
        with transaction(self.engine) as connection:
            return tuple(connection.execute(query).all())

    def _end(self, taken: Sequence[Due], channel: Channel, **values: Any) -> None:
        with transaction(self.engine, write=True) as connection:
            for due in taken:
                connection.execute(update(messages).where(_row(due, channel)).values(values))


def _event(notice: Notice, at_least: Level, since: datetime, known: Rows) -> Event | None:
    """What this channel should hear of the notice now; None: nothing. Who was not told of the beginning, because it
    was acknowledged, old or below the channel's level, is not told of the end. A drill ends with its run, so only its
    detection is told. Of a notice that was joined with another nothing is told: the other one stands for its node.
    """
    if notice.ended == JOINED:
        return None
    if notice.closed_at is not None and not notice.is_drill:
        event, at = Event.CLOSED, notice.closed_at
        if all(row.sent_at is None for row in known.values()):
            return None
    else:
        opened = known.get(Event.OPENED)
        told_at = opened.sent_at if opened is not None else None
        is_second = notice.worsened_at is not None and told_at is not None and told_at < notice.worsened_at
        event, at = Event.WORSENED if is_second else Event.OPENED, notice.worsened_at or notice.opened_at
        is_below = notice.level is not Level.ERROR and at_least is not Level.WARNING
        if is_below or notice.acknowledgement is not None:
            return None
    row = known.get(event)
    failed_before = row is not None and row.sent_at is None and row.problem is not None
    return event if at >= since and (row is None or failed_before) else None


def _place(notice: Notice) -> tuple[bool, bool, datetime, int]:
    return not notice.is_red, notice.is_drill, notice.opened_at, notice.id


def _claim(connection: Connection, due: Due, channel: Channel, now: datetime, is_known: bool) -> None:
    if is_known:
        again = {"claimed_at": now, "problem": None, "num_tries": messages.c.num_tries + 1}
        connection.execute(update(messages).where(_row(due, channel)).values(again))
        return
    key = {"notice_id": due.notice.id, "event": due.event.value, "channel": channel.name}
    rest = {"node": due.notice.node, "claimed_at": now, "num_tries": 1}
    connection.execute(insert(messages).values(key | rest))


def _row(due: Due, channel: Channel) -> Any:
    is_it = (messages.c.notice_id == due.notice.id) & (messages.c.event == due.event.value)
    return is_it & (messages.c.channel == channel.name)
