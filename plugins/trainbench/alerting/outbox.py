"""The messages due on each channel, read from the history and sent by Airflow's notifiers and connections, and the
outcome of each.

A message is claimed before it is sent. A send that fails releases the claim with the reason, and the next try takes it.
A sender that dies in between leaves a claim without an end: the message may have been sent, so it is reported and not
sent again.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, NamedTuple

from sqlalchemy import Connection, Engine, Row, insert, select, update

from bench_image.contract.frozen import Frozen
from trainbench.alerting.notice_text import Event, Message, message
from trainbench.core.formats import count, one_line
from trainbench.core.verdicts import Level
from trainbench.history.database import transaction
from trainbench.history.notices import Notice, notice_of, select_notices
from trainbench.history.tables import messages, notices
from trainbench.settings.channels import Channel, Mail, Slack

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
        found.sort(key=lambda due: (not due.notice.is_red, due.notice.is_drill, due.notice.opened_at, due.notice.id))
        return tuple(found)

    def end(self, taken: Sequence[Due], channel: Channel, now: datetime, problem: str | None = None) -> None:
        """Record that these messages were sent, or the problem for which they could not be; then they are due again."""
        values = {"sent_at": None if problem else now, "problem": problem}
        with transaction(self.engine, write=True) as connection:
            for due in taken:
                connection.execute(update(messages).where(_row(due, channel)).values(values))

    def unsent(self, since: datetime, before: datetime) -> tuple[Row[Any], ...]:
        """Rows of `messages` claimed within that time that failed or have no end, the oldest first."""
        between = (messages.c.claimed_at >= since) & (messages.c.claimed_at < before)
        query = select(messages).where(between, messages.c.sent_at.is_(None)).order_by(messages.c.claimed_at).limit(100)
        with transaction(self.engine) as connection:
            return tuple(connection.execute(query).all())


def _event(notice: Notice, at_least: Level, since: datetime, known: Rows) -> Event | None:
    """What this channel should hear of the notice now; None: nothing. Who was not told of the beginning, because it
    was acknowledged, old or below the channel's level, is not told of the end. A drill ends with its run, so only its
    detection is told.
    """
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


TIMEOUT_S = 15
SLACK_EXTRA = "apache-airflow-providers-slack"
Send = Callable[[Channel, Message], None]
# The address of a webhook is a secret, and the clients' errors name it.
_ADDRESS = re.compile(r"(?i)(with url: |https?://)\S+")


class Sent(Frozen):
    """`lines`: sent messages, for the log; `problems`: one for each channel that failed."""

    lines: tuple[str, ...]
    problems: tuple[str, ...]


def send_due(
    outbox: Outbox, dag_id: str, channels: Sequence[Channel], base_url: str | None, now: datetime, send: Send
) -> Sent:
    """Send the due notices to each channel; a channel that fails stops no other. Raises HistoryError."""
    lines, problems = [], []
    for row in outbox.unsent(now - timedelta(days=DUE_DAYS), now):
        if row.problem is None:
            lines.append(
                f"warning: {row.channel}: the notice on {row.node or 'a run'} ({row.event}) may not have been sent on "
                f"{row.claimed_at:%Y-%m-%d %H:%M} UTC: its sender was stopped; it is not sent again"
            )
    for channel in channels:
        taken = outbox.take(dag_id, channel, now)
        for event in Event:
            of_event = [due for due in taken if due.event is event]
            if not of_event:
                continue
            sent = f"{channel.name}: {count(len(of_event), 'notice')} ({event.value})"
            content = message([due.notice for due in of_event], event, base_url)
            try:
                send(channel, content)
            except Exception as error:  # any client's error: the other channels must still get their notices
                problem = one_line(f"{type(error).__name__}: {_ADDRESS.sub('…', str(error))}")
                outbox.end(of_event, channel, now, problem)
                problems.append(f"{sent}: {problem}")
            else:
                outbox.end(of_event, channel, now)
                lines.append(f"{sent} sent")
    return Sent(lines=tuple(lines), problems=tuple(problems))


def send(channel: Channel, content: Message) -> None:
    """Send a message without Airflow's templating, because its text is not trusted. Raises the notifier's errors."""
    context: Any = {}
    _notifier(channel, content).notify(context)


def _notifier(channel: Channel, content: Message) -> Any:
    if isinstance(channel, Mail):
        from airflow.providers.smtp.notifications.smtp import SmtpNotifier

        return SmtpNotifier(
            smtp_conn_id=channel.connection,
            to=list(channel.to),
            from_email=channel.sender,
            subject=content.subject,
            html_content=content.html,
            custom_headers={"Message-ID": content.message_id, "Auto-Submitted": "auto-generated"},
        )
    if isinstance(channel, Slack):
        return _slack(channel, content)
    from airflow.providers.http.notifications.http import HttpNotifier

    return HttpNotifier(
        http_conn_id=channel.connection,
        endpoint=channel.path,
        json=content.payload,
        extra_options={"timeout": TIMEOUT_S},
    )


def _slack(channel: Slack, content: Message) -> Any:
    try:
        from airflow.providers.slack.notifications.slack import SlackNotifier
        from airflow.providers.slack.notifications.slack_webhook import SlackWebhookNotifier
    except ImportError:
        raise RuntimeError(f"{SLACK_EXTRA} is not installed: pip install 'trainbench[slack]'") from None
    quiet: dict[str, Any] = {"text": content.slack, "unfurl_links": False, "unfurl_media": False, "timeout": TIMEOUT_S}
    if channel.channel is None:
        return SlackWebhookNotifier(slack_webhook_conn_id=channel.connection, **quiet)
    return SlackNotifier(slack_conn_id=channel.connection, channel=channel.channel, username="trainbench", **quiet)
