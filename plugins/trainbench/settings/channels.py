"""Channels for notices, each over an Airflow connection."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Annotated, Literal

from pydantic import AfterValidator, Field, StringConstraints
from pydantic_core import ErrorDetails

from bench_image.contract.frozen import Frozen
from trainbench.core.verdicts import Level
from trainbench.params.refusals import reason

EXAMPLE = '[{"kind": "mail", "connection": "smtp_default", "to": ["oncall@example.org"]}]'
Text = Annotated[
    str, StringConstraints(strip_whitespace=True, min_length=1, max_length=200, pattern=r"^[^\x00-\x1f]+$")
]
Address = Annotated[str, StringConstraints(strip_whitespace=True, max_length=254, pattern=r"^[^@\s,;<>]+@[^@\s,;<>]+$")]


class _Channel(Frozen):
    connection: Text  # the id of an Airflow connection
    at_least: Literal[Level.WARNING, Level.ERROR] = Level.ERROR


class Mail(_Channel):
    """By the connection's SMTP server. `sender`: else the connection's `from_email`."""

    kind: Literal["mail"]
    connection: Text = "smtp_default"
    to: Annotated[tuple[Address, ...], Field(min_length=1, max_length=50)]
    sender: Address | None = None

    @property
    def name(self) -> str:
        return f"mail:{self.connection}:{','.join(sorted(self.to))}"

    @property
    def needs(self) -> tuple[str, str]:
        """The type of the connection, and the package that provides it."""
        return "smtp", "apache-airflow-providers-smtp"


class Slack(_Channel):
    """With `channel` by Slack's API (a connection of type slack), without by an incoming webhook (slackwebhook)."""

    kind: Literal["slack"]
    channel: Text | None = None

    @property
    def name(self) -> str:
        return f"slack:{self.connection}:{self.channel or ''}".rstrip(":")

    @property
    def needs(self) -> tuple[str, str]:
        return "slack" if self.channel else "slackwebhook", "apache-airflow-providers-slack"


class Webhook(_Channel):
    """JSON, posted to `path` at the connection's host (type http)."""

    kind: Literal["webhook"]
    path: Text | None = None

    @property
    def name(self) -> str:
        """The path is often a token: its digest tells two of one connection apart."""
        digest = hashlib.sha256(self.path.encode()).hexdigest()[:8] if self.path else ""
        return f"webhook:{self.connection}:{digest}".rstrip(":")

    @property
    def needs(self) -> tuple[str, str]:
        return "http", "apache-airflow-providers-http"


Channel = Annotated[Mail | Slack | Webhook, Field(discriminator="kind")]
KINDS: Mapping[str, type[Frozen]] = {"mail": Mail, "slack": Slack, "webhook": Webhook}


def _each_once(channels: tuple[Channel, ...]) -> tuple[Channel, ...]:
    names = [channel.name for channel in channels]
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise ValueError(f"{twice[0]} is there twice: leave one of them out")
    return channels


Channels = Annotated[tuple[Channel, ...], Field(max_length=20), AfterValidator(_each_once)]


def channel_fault(problem: ErrorDetails) -> str:
    """ "channel 2: to.1: String should match ...", without the value: addresses are often tokens."""
    _, *place = problem["loc"]
    number, (kind, *field) = place[:1], place[1:] or [""]
    fields = KINDS[str(kind)].model_fields if field else ()
    parts = [f"channel {int(position) + 1}" for position in number] + [".".join(map(str, field))]
    return ": ".join(filter(None, (*parts, reason(problem, fields))))
