"""Reads a campaign file: suite, nodes, parameters, own job, schedule and channels of one campaign, as YAML."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from bench_image.contract.frozen import Frozen
from bench_image.contract.work import Device
from trainbench.core.close_matches import did_you_mean
from trainbench.core.formats import listing, one_line
from trainbench.core.strict_yaml import Document, Place, YamlError, read_yaml
from trainbench.core.user_error import UserError
from trainbench.params.campaign_kind import SUITES, CampaignKind
from trainbench.params.campaign_params import FIELDS, applies_to, refuse_other_names
from trainbench.params.refusals import ParamsError
from trainbench.planning.planners import PLANNERS
from trainbench.settings.channels import Channel, ChannelError, check_channels
from trainbench.settings.environment import Settings, campaign_files

MAX_BYTES = 64_000
TOP = {
    "suite": f"What the campaign answers, named after its DAG: {', '.join(SUITES)}.",
    "description": "One sentence or more, for the list of DAGs.",
    "schedule": "A cron expression in UTC, in quotation marks, or `none`: by hand only. For the DAG.",
    "nodes": FIELDS["nodes"].info.description or "",
    "node_labels": FIELDS["node_labels"].info.description or "",
    "job": "A training job of your own, instead of our loop (docs/own-job.md).",
    "parameters": "Parameters of the suite, as `trainbench params SUITE` lists them (docs/parameters.md).",
    "channels": "Who gets notices of the DAG, as TRAINBENCH_NOTIFY has them (docs/alerts.md); else its channels.",
}
# Field of `job` -> parameter; and the parameters that have a place of their own -> that place.
JOB = {field.path[-1]: name for name, field in FIELDS.items() if "own_job" in field.path}
PLACES: Mapping[str, Place] = {
    "nodes": ("nodes",),
    "node_labels": ("node_labels",),
    **{name: ("job", field) for field, name in JOB.items()},
}


class CampaignFileError(UserError, ValueError):
    """The message names file, line, what is wrong and what is allowed."""


class CampaignFile(Frozen):
    """`values`: parameters, those of nodes and job among them. `channels`: None: those of the installation."""

    path: Path
    suite: str
    description: str
    schedule: str | None
    channels: tuple[Channel, ...] | None
    values: dict[str, Any]

    @property
    def name(self) -> str:
        return self.path.stem

    @property
    def kind(self) -> CampaignKind:
        return SUITES[self.suite]


def read_campaign_file(path: Path) -> CampaignFile:
    """Raises CampaignFileError."""
    try:
        document = read_yaml(path, MAX_BYTES)
    except OSError as error:
        raise CampaignFileError(f"{path} cannot be read: {error.strerror or error}") from None
    except YamlError as error:
        raise _at(path, error.line, str(error)) from None
    try:
        return _campaign(path, document)
    except _WrongError as wrong:
        raise _at(path, document.line(wrong.place), str(wrong)) from None


def settings_for(dag_id: str, settings: Settings) -> Settings:
    """The settings for tasks of this DAG, see `with_campaign`. Raises CampaignFileError."""
    name = dag_id.removeprefix(settings.dag_prefix)
    file = next((path for path in campaign_files(settings.campaigns) if path.stem == name), None)
    return with_campaign(read_campaign_file(file), settings) if file else settings


def with_campaign(file: CampaignFile, settings: Settings) -> Settings:
    """With what the file says for its own DAG: channels, numbers of GPUs, and the schedule, which the settings'
    schedule for this DAG comes before.
    """
    changed: dict[str, Any] = {"schedule": {file.name: file.schedule or "none"} | settings.schedule}
    if file.channels is not None:
        changed["notify"] = file.channels
    if "world_sizes" in file.values:
        changed["world_sizes"] = tuple(sorted(map(int, file.values["world_sizes"])))
    return settings.model_copy(update=changed)


def _at(path: Path, line: int | None, reason: str) -> CampaignFileError:
    where = f"{path}, line {line}" if line else f"{path}"
    return CampaignFileError(f"{where}: {one_line(reason, most=2000)}")


class _WrongError(ValueError):
    """A value of the document; its place gives the line."""

    def __init__(self, reason: str, *place: str | int) -> None:
        super().__init__(reason)
        self.place = place


def _campaign(path: Path, document: Document) -> CampaignFile:
    top = document.value
    if not isinstance(top, dict):
        what = "the file is empty" if top is None else "the file is no mapping"
        raise _WrongError(f"{what}: begin it with a line such as suite: node_consistency")
    _refuse_others(top, TOP, "a field of a campaign file")
    suite = top.get("suite")
    if not isinstance(suite, str) or suite not in SUITES:
        raise _WrongError(
            f"suite is {suite!r:.100}{did_you_mean(str(suite), SUITES)}: choose {', '.join(SUITES)}", "suite"
        )
    description = top.get("description") or ""
    if not isinstance(description, str):
        raise _WrongError(f"description is {description!r:.100}: give a text", "description")
    try:
        channels = check_channels(top["channels"]) if "channels" in top else None
    except ChannelError as error:
        raise _WrongError(str(error), "channels", *error.place) from None
    return CampaignFile(
        path=path,
        suite=suite,
        description=one_line(description, most=2000),
        schedule=_schedule(top.get("schedule")),
        channels=channels,
        values=_values(top, SUITES[suite]),
    )


def _refuse_others(given: Mapping[Any, Any], known: Collection[str], what: str, *above: str) -> None:
    for name in given:
        if name not in known:
            shown = f"{name!s:.100}"
            raise _WrongError(
                f"{shown} is not {what}{did_you_mean(shown, known)}: choose from {', '.join(known)}", *above, str(name)
            )


def _mapping(around: Mapping[str, Any], name: str, *above: str) -> dict[Any, Any]:
    value = around.get(name)
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise _WrongError(f"{name} is {value!r:.100}: give a mapping, a line NAME: VALUE for each", *above, name)
    return value


def _schedule(cron: Any) -> str | None:
    if cron is None or str(cron).lower() == "none":
        return None
    from croniter import CroniterError, croniter  # type: ignore[import-untyped]

    try:
        if not cron.startswith("@") and len(cron.split()) != 5:
            raise ValueError
        croniter(cron).get_next()  # never comes one of 30 February
    except (CroniterError, ValueError, KeyError, AttributeError):
        example = "give a cron expression such as '0 2 * * *', or none"
        raise _WrongError(f"schedule is {cron!r:.100}: {example}", "schedule") from None
    return str(cron)


def _values(top: Mapping[str, Any], kind: CampaignKind) -> dict[str, Any]:
    """The parameters, checked as those of a form are."""
    parameters, job = _mapping(top, "parameters"), _job(_mapping(top, "job"), kind)
    known = [name for name in FIELDS if applies_to(name, kind) and name not in PLACES]
    for name in parameters:
        if name in PLACES:
            place = PLACES[name]
            below = f"below {place[0]}, as {place[1]}" if len(place) > 1 else "at the top of the file"
            raise _WrongError(f"{name} is not a parameter here: write it {below}", "parameters", name)
    _refuse_others(parameters, known, f"a parameter of {_suite(kind)}", "parameters")
    values = {name: top[name] for name in ("nodes", "node_labels") if top.get(name) is not None}
    values |= parameters | job
    try:
        refuse_other_names(values, kind)
        PLANNERS[kind].params(values, locally=values.get("device") == Device.CPU)
    except ParamsError as error:
        place = PLACES.get(error.name or "", ("parameters", error.name) if error.name else ("parameters",))
        raise _WrongError(str(error), *place) from None
    return values


def _suite(kind: CampaignKind) -> str:
    return next(suite for suite, known in SUITES.items() if known is kind)


def _job(job: Mapping[Any, Any], kind: CampaignKind) -> dict[str, Any]:
    if not job:
        return {}
    if not applies_to(JOB["command"], kind):
        able = listing([suite for suite, known in SUITES.items() if applies_to(JOB["command"], known)])
        raise _WrongError(f"{_suite(kind)} has no job of your own: only {able} have", "job")
    _refuse_others(job, JOB, "a field of job", "job")
    if not job.get("command"):
        raise _WrongError("job has no command: give one, such as command: torchrun train.py", "job")
    values = {JOB[name]: value for name, value in job.items() if value is not None}
    for name, value in (variables := _mapping(job, "environment", "job")).items():
        if isinstance(value, bool) or not isinstance(value, str | int | float):
            raise _WrongError(
                f"{name!s:.100} is {value!r:.100}: put the text into quotation marks", "job", "environment", name
            )
    return values | (
        {JOB["environment"]: [f"{name}={value}" for name, value in variables.items()]} if variables else {}
    )
