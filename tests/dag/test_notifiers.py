"""Airflow's own notifiers over Airflow's connections, to servers on this machine: what arrives is what was said."""

from __future__ import annotations

from typing import Any

import pytest

from tests.builders.notices import make_notice
from tests.dag.sinks import connection, http_sink, smtp_sink
from trainbench.alerting.notice_text import Event, message
from trainbench.alerting.outbox import send
from trainbench.cluster.doctor import channel_problem
from trainbench.settings.channels import Channel, Mail, Slack, Webhook

HOSTILE = "{{ 7 * 7 }} <script>alert(1)</script> *bold*"
CONTENT = message([make_notice("node-3", cause=HOSTILE)], Event.OPENED, "https://airflow.example.org")


def test_a_mail_holds_the_text_and_nothing_of_it_is_a_template(monkeypatch: pytest.MonkeyPatch) -> None:
    with smtp_sink() as (port, mails):
        extra = {"disable_ssl": True, "disable_tls": True, "from_email": "bench@example.org", "retry_limit": 0}
        smtp = connection(conn_type="smtp", host="127.0.0.1", port=port, extra=extra)
        monkeypatch.setenv("AIRFLOW_CONN_SMTP_DEFAULT", smtp)
        send(Mail(kind="mail", to=("a@example.org", "b@example.org")), CONTENT)
    (mail,) = mails
    body = mail.get_body(("html",))

    assert (mail["From"], mail["To"]) == ("bench@example.org", "a@example.org, b@example.org")
    assert mail["Subject"] == CONTENT.subject
    assert mail.get_all("Message-ID") == [CONTENT.message_id]
    assert body is not None
    assert body.get_content().replace("\r\n", "\n").strip() == CONTENT.html.strip()
    assert "{{ 7 * 7 }}" in body.get_content()


@pytest.mark.parametrize(
    ("channel", "fields", "path"),
    [
        (Webhook(kind="webhook", connection="sink", path="hooks/gpu"), {"conn_type": "http"}, "/hooks/gpu"),
        (Slack(kind="slack", connection="sink"), {"conn_type": "slackwebhook", "password": "T/B/x"}, "/T/B/x"),
        (Slack(kind="slack", connection="sink", channel="#gpu"), {"conn_type": "slack", "password": "x"}, "/api/chat"),
    ],
)
def test_webhook_and_slack_get_the_same_text(
    channel: Channel, fields: dict[str, Any], path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with http_sink() as (port, posted):
        where = {"host": f"http://127.0.0.1:{port}"}
        if fields["conn_type"] == "slack":
            where = {"extra": {"base_url": f"http://127.0.0.1:{port}/api/"}}
        monkeypatch.setenv("AIRFLOW_CONN_SINK", connection(**fields, **where))
        send(channel, CONTENT)
    ((posted_to, body),) = posted

    assert posted_to.startswith(path)
    assert body == CONTENT.payload if isinstance(channel, Webhook) else body["text"] == CONTENT.slack


def test_a_server_that_refuses_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    with http_sink() as (port, _):
        monkeypatch.setenv("AIRFLOW_CONN_SINK", connection(conn_type="http", host=f"http://127.0.0.1:{port}"))
        with pytest.raises(Exception, match="500"):
            send(Webhook(kind="webhook", connection="sink", path="broken"), CONTENT)


def test_the_doctor_says_which_connection_is_missing_or_of_another_type(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AIRFLOW_CONN_SINK", connection(conn_type="http", host="x"))
    channels = (
        Webhook(kind="webhook", connection="sink"),
        Webhook(kind="webhook", connection="nowhere"),
        Slack(kind="slack", connection="sink"),
    )
    good, missing, other = map(channel_problem, channels)

    assert good is None
    assert missing is not None
    assert missing.startswith("the connection 'nowhere' cannot be read: ")
    assert other == "the connection 'sink' is of type http, not slackwebhook"
