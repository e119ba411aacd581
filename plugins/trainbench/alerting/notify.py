"""Sends due notices by Airflow's notifiers and connections. Runs in a task."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from typing import Any

from bench_image.contract.frozen import Frozen
from trainbench.alerting.notice_text import Event, Message, message
from trainbench.alerting.outbox import DUE_DAYS, Outbox
from trainbench.core.formats import count, one_line
from trainbench.settings.channels import Channel, Mail, Slack

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
                outbox.failed(of_event, channel, problem)
                problems.append(f"{sent}: {problem}")
            else:
                outbox.sent(of_event, channel, now)
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
