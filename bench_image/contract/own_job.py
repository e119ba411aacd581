"""A training job of the user's own: its command, and how its log is read.

A log profile is data: which lines of a framework's log tell of steps, and a regular expression for each figure on them.
The shipped ones are in `log_profiles.toml`; a user's file has the same form.
"""

from __future__ import annotations

import re
import shlex
import tomllib
from functools import cache
from pathlib import Path, PurePosixPath
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field, StringConstraints, ValidationError, field_validator

from bench_image.contract.fingerprint import Part
from bench_image.contract.frozen import ContractError, Frozen, setting

SHIPPED = Path(__file__).with_name("log_profiles.toml")
AUTO_PROFILE = "auto"
PLACEHOLDERS = ("gpus", "node", "nodes", "node_rank", "master_addr", "master_port")
_PLACEHOLDER = re.compile(r"(?<![${])\{([A-Za-z_]\w*)\}(?!\})")  # not ${a shell's} and not {{braces}}
IMAGE_NAME = r"^[A-Za-z0-9][A-Za-z0-9._:/@-]*$"
_VARIABLE = r"^[A-Za-z_][A-Za-z0-9_]{0,199}=[^\x00]*$"


def _expression(text: str) -> str:
    try:
        groups = re.compile(text).groups
    except re.error as error:
        raise ValueError(f"not a regular expression: {error}") from None
    if groups != 1:
        raise ValueError(f"{groups} groups in parentheses: give one, around the number; (?:...) is not counted")
    return text


Expression = Annotated[str, Field(max_length=1000), AfterValidator(_expression)]


class LogProfile(Frozen):
    """How the log of one framework is read. Each expression has one group, a number; thousands may have commas."""

    name: Annotated[str, StringConstraints(pattern=r"^[a-z0-9][a-z0-9-]{0,39}$")]
    source: str = Field(max_length=1000, description="where the format is documented")
    marks: tuple[Annotated[str, Field(min_length=1, max_length=200)], ...] = Field(
        min_length=1, max_length=10, description="a line without any of these texts is not looked at"
    )
    step: Expression | None = Field(None, description="number of the step; a line with it tells of a step")
    total: Expression | None = Field(None, description="of how many steps: another total is another progress bar")
    seconds: Expression | None = Field(None, description="of one step")
    milliseconds: Expression | None = Field(None, description="of one step")
    steps_per_second: Expression | None = None
    samples_per_second: Expression | None = None
    tokens_per_second: Expression | None = None
    tokens_per_second_per_gpu: Expression | None = None
    samples_per_step: Expression | None = Field(None, description="over all GPUs; may stand on any line")
    tokens_per_sample: Expression | None = Field(None, description="may stand on any line")
    tokens_per_step: Expression | None = Field(None, description="over all GPUs; may stand on any line")
    loss: Expression | None = None
    covers: Literal["step", "steps"] = Field(
        "steps", description="a line's time is that of its own step, or the mean of the steps since the line before"
    )
    warmup_steps: int = Field(5, ge=0, le=100_000, description="steps after the first line that are not measured")

    @property
    def expressions(self) -> dict[str, str]:
        """Figure -> its expression."""
        return {name: value for name in FIGURES if (value := getattr(self, name)) is not None}


RATES = ("seconds", "milliseconds", "steps_per_second", "samples_per_second", "tokens_per_second")
SIZES = ("samples_per_step", "tokens_per_sample", "tokens_per_step")
FIGURES = ("step", "total", *RATES, "tokens_per_second_per_gpu", *SIZES, "loss")


@cache
def shipped_profiles() -> tuple[LogProfile, ...]:
    return parse_profiles(SHIPPED.read_text(), "the shipped log profiles")


def parse_profiles(text: str, where: str) -> tuple[LogProfile, ...]:
    """The profiles of a TOML text with tables [[profile]]. Raises ContractError, which names file, profile, field."""
    try:
        found = tomllib.loads(text)
    except (ValueError, RecursionError) as error:  # ValueError: also a number of more digits than Python reads
        raise ContractError(f"{where}: no TOML: {error}") from None
    tables = found.get("profile")
    if not isinstance(tables, list) or not tables or not all(isinstance(table, dict) for table in tables):
        raise ContractError(f"{where}: no profile in it: write each as a table [[profile]]")
    if other := sorted(found.keys() - {"profile"}):
        raise ContractError(f"{where}: {other[0]!r:.100} is not known: write each profile as a table [[profile]]")
    return tuple(_profile(table, where) for table in tables)


def _profile(table: dict[str, Any], where: str) -> LogProfile:
    try:
        return LogProfile.model_validate(table)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        field = ".".join(map(str, first["loc"]))
        message = first["msg"].removeprefix("Value error, ")
        raise ContractError(f"{where}: profile {table.get('name')!r:.60}: {field}: {message}") from None


def choose_profiles(name: str, own: tuple[LogProfile, ...] = ()) -> tuple[LogProfile, ...]:
    """The profile of that name, or with "auto" all; one of the user's replaces a shipped one of its name. Raises
    ContractError.
    """
    known = {profile.name: profile for profile in (*shipped_profiles(), *own)}
    if name != AUTO_PROFILE and name not in known:
        raise ContractError(f"log profile '{name:.60}' is not known: choose {AUTO_PROFILE}, {', '.join(known)}")
    return tuple(known.values()) if name == AUTO_PROFILE else (known[name],)


def _command(text: str | None) -> str | None:
    """The command as a shell would take it apart, put together again. Raises ValueError."""
    if text is None:
        return None
    try:
        words = shlex.split(text)
    except ValueError as error:
        raise ValueError(f"{error}: close each quotation mark") from None
    if not words or "\0" in text:
        raise ValueError("no command in it: give the program and its arguments")
    for name in (name for word in words for name in _PLACEHOLDER.findall(word)):
        if name not in PLACEHOLDERS:
            allowed = ", ".join(f"{{{known}}}" for known in PLACEHOLDERS)
            raise ValueError(f"{{{name}}} is not a placeholder: choose {allowed}; braces of your own: {{{{{name}}}}}")
    return shlex.join(words)


class OwnJob(Part):
    """The job's own settings: what it does, by which it is compared, and how its log is read."""

    command: Annotated[str | None, Field(max_length=20_000), AfterValidator(_command)] = setting(
        None,
        "Own job",
        "Command",
        "Empty: our own loop. Else your training command, such as `torchrun --nproc-per-node {gpus} train.py`; "
        "`{gpus}` becomes the number of GPUs of a node, `{node}` its name. Its speed is read from its log.",
        form_name="command",
    )
    environment: tuple[Annotated[str, StringConstraints(pattern=_VARIABLE, max_length=10_000)], ...] = setting(
        (),
        "Own job",
        "Environment",
        "Variables for your command, NAME=VALUE, one per line. Every result shows them: no passwords. Runs with other "
        "ones are not compared.",
        max_length=100,
        form_name="job_environment",
    )
    version: str | None = setting(
        None,
        "Own job",
        "Version of the job",
        "A commit or a checksum of the job's files; runs of different versions are not compared. The command line "
        "computes one from the files that the command names.",
        max_length=200,
        form_name="job_version",
    )
    image: Annotated[str, StringConstraints(pattern=IMAGE_NAME)] | None = setting(
        None,
        "Own job",
        "Image",
        "Container image of the pods, best with its digest; it needs `python -m bench_image` beside your program. "
        "Empty: the installation's.",
        max_length=1000,
        form_name="job_image",
    )
    folder: str | None = setting(
        None,
        "Own job",
        "Working folder",
        "Where your command starts, as the pod sees it. Empty: the image's own.",
        max_length=4000,
        form_name="job_folder",
    )
    profile: str = setting(
        AUTO_PROFILE,
        "Own job",
        "Log profile",
        "How the log of your command is read: `auto` tries all profiles.",
        max_length=40,
        form_name="log_profile",
    )
    samples_per_step: int | None = setting(
        None,
        "Own job",
        "Samples per step",
        "Over all GPUs. Empty: as the log says; where it does not, a step counts as one sample.",
        ge=1,
        le=65_536,
        form_name="job_samples_per_step",
    )
    tokens_per_sample: int | None = setting(
        None,
        "Own job",
        "Tokens per sample",
        "Empty: as the log says; where it does not, tokens/s are not known.",
        ge=1,
        le=10**9,
        form_name="job_tokens_per_sample",
    )
    warmup_steps: int | None = setting(
        None,
        "Own job",
        "Warm-up steps of the job",
        "Steps after the first one in the log that do not count. Empty: the profile's own number.",
        ge=0,
        le=100_000,
        form_name="job_warmup_steps",
    )

    @field_validator("environment")
    @classmethod
    def _one_order(cls, variables: tuple[str, ...]) -> tuple[str, ...]:
        """Their order changes nothing about the work, so it must not change the fingerprint."""
        return tuple(sorted(set(variables)))

    def canonical(self) -> dict[str, Any]:
        """What is computed: not from where it was started, nor how its log is read."""
        fields = super().canonical()
        return {name: value for name, value in fields.items() if name not in ("folder", "profile")}

    @property
    def name(self) -> str:
        """A short name for reports: the script that the command names, else the program."""
        words = [PurePosixPath(word).name for word in shlex.split(self.command or "")]
        scripts = [word for word in words if word.endswith((".py", ".sh"))]
        clean = re.sub(r"[^A-Za-z0-9._-]+", "-", (scripts or words)[0]).strip("-._")
        return clean[:64] or "own-job"

    def arguments(self, **values: object) -> list[str]:
        """The command's words with each placeholder replaced; `{{gpus}}` stands for `{gpus}`."""

        def replaced(word: str) -> str:
            filled = _PLACEHOLDER.sub(lambda found: str(values[found[1]]), word)
            return re.sub(r"\{(\{\w*\})\}", r"\1", filled)

        return [replaced(word) for word in shlex.split(self.command or "")]
