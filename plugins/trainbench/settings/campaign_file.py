"""Reads a campaign file: suite, nodes, parameters, own job, schedule and channels of one campaign, as YAML."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PrivateAttr,
    ValidationError,
    field_validator,
)
from pydantic_core import ErrorDetails

from bench_image.contract.frozen import Frozen
from bench_image.contract.own_job import OwnJob
from bench_image.contract.spec import NodeName
from bench_image.contract.work import Device
from trainbench.core.formats import listing, one_line
from trainbench.core.strict_yaml import Document, Place, YamlError, read_yaml
from trainbench.core.user_error import UserError
from trainbench.params.campaign_kind import SUITES, CampaignKind, Suite
from trainbench.params.campaign_params import FIELDS, applies_to, refuse_other_names
from trainbench.params.refusals import ParamsError, close_choice, reason
from trainbench.planning.planners import PLANNERS
from trainbench.settings.channels import Channels, channel_fault
from trainbench.settings.environment import Settings, campaign_files, checked_cron

MAX_BYTES = 64_000
MAX_FAULTS, MAX_FAULT = 10, 190  # that are named, and characters of each where there are several
# Field of `job` -> parameter; and the parameters that have a place of their own -> that place.
JOB = {field.path[-1]: name for name, field in FIELDS.items() if "own_job" in field.path}
PLACES: Mapping[str, Place] = {
    "nodes": ("nodes",),
    "node_labels": ("node_labels",),
    **{name: ("job", field) for field, name in JOB.items()},
}


class CampaignFileError(UserError, ValueError):
    """The message names file, line, what is wrong and what is allowed."""


def _as_written(schema: dict[str, Any]) -> None:
    schema["required"] = ["command"]
    about = {name: schema["properties"]["environment"][name] for name in ("title", "description")}
    values = {"additionalProperties": {"type": ["string", "number"]}}
    schema["properties"]["environment"] = about | {"type": "object"} | values


class Job(OwnJob):
    model_config = ConfigDict(json_schema_extra=_as_written)

    @field_validator("environment", mode="before")
    @classmethod
    def _lines(cls, variables: Any) -> list[str]:
        if not isinstance(variables, dict):
            raise ValueError("give a mapping, a line NAME: VALUE for each")
        for name, value in variables.items():
            if isinstance(value, bool) or not isinstance(value, str | int | float):
                raise ValueError(f"{name!s:.100} is {value!r:.100}: put the text into quotation marks")
        return [f"{name}={value}" for name, value in variables.items()]


class CampaignFile(Frozen):
    """What a campaign file says. Its parameters are checked as those of a form are."""

    suite: Suite = Field(description="What the campaign answers, named after its DAG.")
    description: Annotated[str, AfterValidator(one_line)] = Field(
        "", max_length=2000, description="One sentence or more, for the list of DAGs."
    )
    schedule: Annotated[str | None, BeforeValidator(checked_cron)] = Field(
        None,
        description="A cron expression in UTC, in quotation marks, or `none`: by hand only. For the DAG.",
        examples=["0 2 * * *", "none"],
    )
    nodes: tuple[NodeName, ...] | None = Field(None, description=FIELDS["nodes"].info.description)
    node_labels: str | None = Field(None, description=FIELDS["node_labels"].info.description)
    job: Job | None = Field(None, description="A training job of your own, instead of our loop (docs/own-job.md).")
    parameters: dict[str, Any] = Field(
        {}, description="Parameters of the suite, as `trainbench params SUITE` lists them (docs/parameters.md)."
    )
    channels: Channels | None = Field(
        None,
        description="Who gets notices of the DAG, as TRAINBENCH_NOTIFY has them (docs/alerts.md); else its channels.",
    )
    _path: Path = PrivateAttr()

    def model_post_init(self, context: Any) -> None:
        self._path = context

    @property
    def name(self) -> str:
        return self._path.stem

    @property
    def kind(self) -> CampaignKind:
        return SUITES[self.suite]

    @property
    def values(self) -> dict[str, Any]:
        """All parameters, those of nodes and job among them."""
        placed = self.model_dump(mode="json", include={"nodes", "node_labels", "job"}, exclude_unset=True)
        own = {name: value for name, value in placed.items() if value is not None}
        return {JOB[name]: value for name, value in own.pop("job", {}).items()} | own | self.parameters


def read_campaign_file(path: Path) -> CampaignFile:
    """Raises CampaignFileError."""
    try:
        document = read_yaml(path, MAX_BYTES)
    except OSError as error:
        raise CampaignFileError(f"{path} cannot be read: {error.strerror or error}") from None
    except YamlError as error:
        raise _at(path, error.line, str(error)) from None
    if not isinstance(document.value, dict):
        what = "the file is empty" if document.value is None else "the file is no mapping"
        raise _at(path, 1, f"{what}: begin it with a line such as suite: node_consistency")
    given = {name: value for name, value in document.value.items() if value is not None}
    try:
        file = CampaignFile.model_validate(given, context=path)
        faults = list(_faults(file))
    except ValidationError as error:
        problems = error.errors(include_url=False)
        faults = [(_sentence(problem), _place(problem, document)) for problem in problems]
    if faults:
        (line, reason), *more = sorted((document.line(place), text) for text, place in faults)[:MAX_FAULTS]
        if more:
            told = (f"; line {place}: {one_line(text, most=MAX_FAULT)}" for place, text in more)
            reason = one_line(reason, most=MAX_FAULT) + "".join(told)
        raise _at(path, line, reason)
    return file


def _place(problem: ErrorDetails, document: Document) -> Place:
    place: Place = ()
    for part in problem["loc"]:  # some parts of it are no place, such as the kind of a channel
        place = (*place, part) if (*place, part) in document.lines else place
    return place


def _sentence(problem: ErrorDetails) -> str:
    """ "schedule is 'daily': give a cron expression such as '0 2 * * *', or none"."""
    name, *within = map(str, problem["loc"])
    if name == "channels":
        return channel_fault(problem)
    of_job = name == "job" and within
    model: type[BaseModel] = Job if of_job else CampaignFile
    said, name = reason(problem, model.model_fields), within[0] if of_job else name
    if problem["type"] in ("missing", "extra_forbidden"):
        return f"{name}: {said}"
    return f"{name} is {problem['input']!r:.100}{close_choice(problem)}: {said}"


def _faults(file: CampaignFile) -> Iterator[tuple[str, Place]]:
    """Each parameter that is wrong or not this suite's, and what is wrong together, with its place."""
    values = dict(file.values)
    for name in file.parameters.keys() & PLACES.keys():
        place = PLACES[name]
        below = f"below {place[0]}, as {place[1]}" if len(place) > 1 else "at the top of the file"
        yield f"{name} is not a parameter here: write it {below}", ("parameters", name)
        del values[name]
    if file.job and not applies_to(JOB["command"], file.kind):
        able = listing([suite for suite, kind in SUITES.items() if applies_to(JOB["command"], kind)])
        yield f"{file.suite} has no job of your own: only {able} have", ("job",)
        values = {name: value for name, value in values.items() if name not in JOB.values()}
    elif file.job and not file.job.command:
        yield "job has no command: give one, such as command: torchrun train.py", ("job",)
    planner = PLANNERS[file.kind]
    for check in (
        lambda: refuse_other_names(values, file.kind),
        lambda: planner.params(
            {name: value for name, value in values.items() if name in FIELDS},
            locally=values.get("device") == Device.CPU,
        ),
    ):
        try:
            check()
        except ParamsError as error:
            for text, place in error.faults:
                above = PLACES.get(str(place[0]), ("parameters", place[0])) if place else ("parameters",)
                yield text, (*above, *place[1:])


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
    if "world_sizes" in file.parameters:
        changed["world_sizes"] = tuple(sorted(map(int, file.parameters["world_sizes"])))
    return settings.model_copy(update=changed)


def _at(path: Path, line: int | None, reason: str) -> CampaignFileError:
    where = f"{path}, line {line}" if line else f"{path}"
    return CampaignFileError(f"{where}: {one_line(reason, most=2000)}")
