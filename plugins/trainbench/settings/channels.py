"""Channels for notices, each over an Airflow connection: parses `TRAINBENCH_NOTIFY`."""

from __future__ import annotations

import hashlib
from typing import Annotated, Any, Literal

from pydantic import Field, StringConstraints, TypeAdapter, ValidationError, model_validator

from bench_image.contract.frozen import Frozen
from trainbench.core.verdicts import Level

NOTIFY_ENV = "TRAINBENCH_NOTIFY"
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


class _Channels(Frozen):
    channels: Annotated[tuple[Channel, ...], Field(max_length=20)]

    @model_validator(mode="after")
    def _each_once(self) -> _Channels:
        names = [channel.name for channel in self.channels]
        if twice := sorted({name for name in names if names.count(name) > 1}):
            raise ValueError(f"{twice[0]} is there twice: leave one of them out")
        return self


def parse_channels(text: str) -> tuple[Channel, ...]:
    """Raises ValueError, which names the channel, what is wrong with it and what is allowed."""
    try:
        listed = TypeAdapter(list[Any]).validate_json(text or "[]")
        return _Channels(channels=tuple(listed)).channels
    except ValidationError as error:
        problem = error.errors(include_url=False)[0]
        where = [str(part) for part in problem["loc"]]
        number = f"channel {int(where[1]) + 1}: " if len(where) > 1 else ""
        named = f"{'.'.join(where[3:])}: " if len(where) > 3 else ""
        message = problem["msg"].removeprefix("Value error, ")
        raise ValueError(f"{NOTIFY_ENV}: {number}{named}{message}; give JSON such as {EXAMPLE}") from None
