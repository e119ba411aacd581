"""`RunResult`: the measurements of one run, or its error."""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum
from typing import Annotated, Literal

from pydantic import FailFast, Field, model_validator

from bench_image.contract.consistency import contradictions, impossible, sum_of, unexplained_nulls
from bench_image.contract.frozen import Frozen, Slotted, slotted
from bench_image.contract.links import Links
from bench_image.contract.options import Strategy
from bench_image.contract.result_bounds import (
    MAX_RANKS,
    MAX_REASONS,
    Bytes,
    Count,
    Loss,
    Moment,
    PositiveSeconds,
    Seconds,
    Text,
)
from bench_image.contract.result_sections import (
    NOT_IN_0_1,
    SINCE_0_2,
    Clock,
    Communication,
    Context,
    Cost,
    Memory,
    ParameterCount,
    Performance,
    Probes,
    Startup,
    Telemetry,
)
from bench_image.contract.spec import RunSpec
from bench_image.contract.work import AUTO


class Status(StrEnum):
    OK = "ok"
    OOM = "oom"
    INVALID_LOSS = "invalid_loss"
    TIMEOUT = "timeout"
    INCOMPLETE = "incomplete"
    ERROR = "error"


class Phase(StrEnum):
    """Where a run's seconds go, in this order; an error names the phase it happened in."""

    LAUNCH = "launch"
    IMPORT = "import"
    BUILD = "build"
    PROBE = "probe"
    AUTOTUNE = "autotune"
    WARMUP = "warmup"
    MEASURE = "measure"
    PROFILE = "profile"
    REPORT = "report"


HANG = "hang"  # kind of the error of a gang that waited for one of its ranks


class RunError(Frozen):
    kind: Text = Field(description="exception class, signal or cause, e.g. OutOfMemoryError, SIGTERM, no_result")
    message: Text
    phase: Phase
    rank: Count | None = Field(None, description="null when the error is not one rank's")


class Chosen(Frozen):
    """The settings that the spec left to the program, and how the work was executed."""

    micro_batch_size: int = Field(ge=1, le=65536)
    gradient_checkpointing: bool
    checkpointed_layers: Count = Field(0, description="of those with checkpointing, where not all have it; else 0")
    why: Text = Field(description="how the choice was made, or that nothing was left to choose")
    execution: dict[Text, Text] = Field(
        max_length=1000, description="dtypes, kernels, compilation: what differs between presets; name -> value"
    )

    @property
    def checkpointing(self) -> str:
        """Of which layers: "on", "off", "in 20 layers"."""
        if self.checkpointed_layers:
            return f"in {self.checkpointed_layers} layers"
        return "on" if self.gradient_checkpointing else "off"


@slotted
class RankSummary(Slotted):
    rank: Count
    status: Status
    gpu_uuid: Text | None
    step_time_median_s: PositiveSeconds | None
    peak_allocated_bytes: Bytes | None
    mean_loss: Loss | None
    performance: Annotated[
        Performance | None,
        Field(description="an independent rank's own figures; null for ranks that work together, which have one pace"),
    ]
    probes: Annotated[
        Probes | None, Field(description="an independent rank's own GPU; null for ranks that work together")
    ]
    own_steps_s: Annotated[
        tuple[Seconds, ...],
        Field(max_length=100, description="of ranks that work together: each profiled step but for step_waits_s"),
    ] = ()
    step_waits_s: Annotated[
        tuple[Seconds, ...],
        Field(max_length=100, description="in each profiled step: it communicates or waits, and computes nothing"),
    ] = ()


class RunResult(Frozen):
    """The measurements of one run, or its error. The spec is included, so that a file is complete by itself."""

    schema_version: Literal[1] = 1
    spec: RunSpec
    chosen: Chosen | None = None
    status: Status
    error: RunError | None = None
    started_at: Moment
    finished_at: Moment
    context: Context | None = None
    startup: Startup = Startup()
    performance: Performance
    memory: Memory = Memory()
    telemetry: Telemetry = Telemetry()
    probes: Probes = Probes()
    communication: Communication = Communication()
    links: Links | None = Field(None, description="only where the spec asks for a sweep")
    parameters: ParameterCount = ParameterCount()
    cost: Cost = Cost()
    ranks: Annotated[tuple[RankSummary, ...], FailFast()] = Field(max_length=MAX_RANKS)
    missing: dict[Text, Text] = Field(
        max_length=MAX_REASONS,
        description="dotted path of a null field, or of a section, -> why it is null; * stands for any index",
    )

    @model_validator(mode="after")
    def _nothing_unexplained(self) -> RunResult:
        if (self.status is Status.OK) == (self.error is not None):
            raise ValueError(
                f"status '{self.status}' with error={self.error!r}: an error goes with every status but ok"
            )
        may_be_silent = self.spec.work.own_job and self.spec.placement.nodes > 1  # another pod's log has the steps
        if self.status is Status.OK and self.performance.samples_per_second is None and not may_be_silent:
            raise ValueError("status 'ok' needs performance.samples_per_second")
        if self.status is Status.OK and self.spec.link_sweep and not self.links:
            raise ValueError("status 'ok' needs links: the spec asks for a sweep of them")
        if self.finished_at < self.started_at:
            raise ValueError(f"finished_at {self.finished_at} lies before started_at {self.started_at}")
        for path in unexplained_nulls({name: getattr(self, name) for name in SECTIONS}, self.missing):
            *parents, field = path.split(".")
            if field in SINCE_0_2:
                self.missing[".".join("*" if part.isdigit() else part for part in (*parents, field))] = NOT_IN_0_1
                continue
            raise ValueError(f"{path} is null without a reason: add it to `missing`")
        return self

    @model_validator(mode="after")
    def _figures_agree(self) -> RunResult:
        """Refuse figures that contradict each other, such as a rate and its windows."""
        for contradiction in impossible(self):
            raise ValueError(contradiction)
        spec = self.effective_spec
        samples_per_step = None if spec.work.micro_batch_size == AUTO else spec.of_one_rank.samples_per_step
        own = [rank.performance for rank in self.ranks if rank.performance]
        for rank in self.ranks:
            for contradiction in contradictions(rank.performance, samples_per_step) if rank.performance else ():
                raise ValueError(f"ranks.{rank.rank}: {contradiction}")
        is_one_pace = spec.placement.strategy is not Strategy.INDEPENDENT
        of_run = contradictions(self.performance, samples_per_step) if is_one_pace else sum_of(self.performance, own)
        for contradiction in of_run:
            raise ValueError(contradiction)
        return self

    @property
    def effective_spec(self) -> RunSpec:
        """The spec with what the program chose in place of 'auto'; the spec itself where the run ended before."""
        return resolve_spec(self.spec, self.chosen)


SECTIONS = (
    "chosen", "context", "startup", "performance", "memory", "telemetry", "probes", "communication", "parameters",
    "cost", "ranks",
)  # fmt: skip


def resolve_spec(spec: RunSpec, chosen: Chosen | None) -> RunSpec:
    """`spec` with what the program chose in place of 'auto'."""
    if chosen is None:
        return spec
    ran = {"micro_batch_size": chosen.micro_batch_size, "gradient_checkpointing": chosen.gradient_checkpointing}
    is_unchanged = all(getattr(spec.work, name) == value for name, value in ran.items())
    return spec if is_unchanged else spec.changed(work=ran)


def failed_result(
    spec: RunSpec, *, status: Status, kind: str, message: str, phase: Phase, at: datetime, rank: int | None = None
) -> RunResult:
    """The result of a run that measured nothing: every number null, one reason for all of them."""
    return RunResult(
        spec=spec,
        status=status,
        error=RunError(kind=kind, message=message[:4000], phase=phase, rank=rank),
        started_at=at,
        finished_at=at,
        performance=Performance(clock=Clock.WALL if spec.work.own_job else Clock.of(spec.work.device)),
        ranks=(),
        missing=dict.fromkeys(SECTIONS, f"the run ended as {status.value} before it measured anything"),
    )
