"""TRAINBENCH_NOTIFY: the channels of notices; an error names the channel, the wrong value and the allowed ones."""

from __future__ import annotations

import json

import pytest

from trainbench.core.verdicts import Level
from trainbench.settings.channels import Mail, Slack, Webhook
from trainbench.settings.environment import SettingsError, read_settings

MAIL = {"kind": "mail", "to": ["oncall@example.org"]}


def channels(*listed: object) -> tuple[object, ...]:
    return read_settings({"TRAINBENCH_NOTIFY": json.dumps(listed)}).notify


def test_the_path_of_a_webhook_is_shown_as_a_digest_only() -> None:
    """It is often a token. Two webhooks of one connection stay apart."""
    one, other = (Webhook(kind="webhook", connection="sink", path=path) for path in ("T0/s3cret", "T0/other"))

    assert one.name.startswith("webhook:sink:")
    assert one.name != other.name
    assert "s3cret" not in one.name


def test_the_three_kinds() -> None:
    actual = channels(
        MAIL,
        {"kind": "slack", "connection": "slack_default", "channel": "#gpu", "at_least": "warning"},
        {"kind": "webhook", "connection": "oncall", "path": "hooks/gpu"},
    )

    assert actual == (
        Mail(kind="mail", connection="smtp_default", to=("oncall@example.org",), at_least=Level.ERROR),
        Slack(kind="slack", connection="slack_default", channel="#gpu", at_least=Level.WARNING),
        Webhook(kind="webhook", connection="oncall", path="hooks/gpu", at_least=Level.ERROR),
    )


@pytest.mark.parametrize(
    ("listed", "words"),
    [
        ([{**MAIL, "to": []}], ["channel 1: to", "at least 1 item"]),
        ([MAIL, {**MAIL, "to": ["a@b", "not an address"]}], ["channel 2: to.1", "should match pattern"]),
        ([{**MAIL, "to": ["a@b.org\r\nBcc: x@y.org"]}], ["channel 1: to.0", "should match pattern"]),
        ([{"kind": "pager", "connection": "x"}], ["channel 1", "'mail', 'slack', 'webhook'"]),
        ([{"kind": "slack"}], ["channel 1: connection", "Field required"]),
        ([{"kind": "webhook", "connection": ""}], ["channel 1: connection", "at least 1 character"]),
        ([{**MAIL, "at_least": "info"}], ["channel 1: at_least", "warning"]),
        (
            [{**MAIL, "recipients": []}],
            ["channel 1: recipients: no such field: choose from connection, at_least, kind, to, sender"],
        ),
        ([MAIL, MAIL], ["mail:smtp_default:oncall@example.org is there twice"]),
        (["mail"], ["channel 1", "give JSON such as"]),
    ],
)
def test_wrong_values_are_named(listed: list[object], words: list[str]) -> None:
    with pytest.raises(SettingsError) as error:
        channels(*listed)

    assert all(word in str(error.value) for word in ("TRAINBENCH_NOTIFY", "such as", *words)), error.value
