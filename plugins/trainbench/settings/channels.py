"""Channels for notices, each over an Airflow connection: parses `TRAINBENCH_NOTIFY`."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import Field, StringConstraints, ValidationError, model_validator
from pydantic_core import ErrorDetails, from_json

from bench_image.contract.frozen import Frozen
from trainbench.core.close_matches import did_you_mean
from trainbench.core.verdicts import Level
from trainbench.params.refusals import reason

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
KINDS: Mapping[str, type[Frozen]] = {"mail": Mail, "slack": Slack, "webhook": Webhook}


class _Channels(Frozen):
    channels: Annotated[tuple[Channel, ...], Field(max_length=20)]

    @model_validator(mode="after")
    def _each_once(self) -> _Channels:
        names = [channel.name for channel in self.channels]
        if twice := sorted({name for name in names if names.count(name) > 1}):
            raise ValueError(f"{twice[0]} is there twice: leave one of them out")
        return self


class ChannelError(ValueError):
    """A channel is wrong. The message names the channel, what is wrong with it and what is allowed; `place`: its
    position in the list and its field.
    """

    def __init__(self, problem: ErrorDetails) -> None:
        loc = problem["loc"][1:]  # after "channels": position, kind, field
        self.place = (*loc[:1], *loc[2:])
        number = f"channel {int(loc[0]) + 1}: " if loc else ""
        named = f"{'.'.join(map(str, loc[2:]))}: " if len(loc) > 2 else ""
        message = reason(problem)
        if problem["type"] == "extra_forbidden":
            fields = KINDS[str(loc[1])].model_fields
            message = f"no such field{did_you_mean(str(loc[-1]), fields)}: choose from {', '.join(fields)}"
        super().__init__(f"{number}{named}{message}")


def check_channels(listed: Any) -> tuple[Channel, ...]:
    """Raises ChannelError."""
    try:
        return _Channels.model_validate({"channels": listed}).channels
    except ValidationError as error:
        raise ChannelError(error.errors(include_url=False)[0]) from None


def parse_channels(text: str) -> tuple[Channel, ...]:
    """Raises ValueError, which names the channel, what is wrong with it and what is allowed."""
    try:
        return check_channels(from_json(text or "[]"))
    except ValueError as error:
        raise ValueError(f"{NOTIFY_ENV}: {error}; give JSON such as {EXAMPLE}") from None
