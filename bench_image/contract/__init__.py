"""The contract: a `RunSpec` goes into a pod, a `RunResult` comes out. All that the control plane and the image share.

Units stand at the end of names (`_s`, `_pct`, `_c`, `_w`, `_j`, `_bytes`, `_gb` = 1e9 bytes). A number that is not
known is `None`, and `RunResult.missing` says why; it is never -1 and never left out.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
from contextlib import suppress
from datetime import datetime
from enum import StrEnum
from functools import lru_cache
from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    ConfigDict,
    Field,
    StringConstraints,
    TypeAdapter,
    ValidationError,
    field_validator,
    model_validator,
)
from pydantic_core import to_jsonable_python

from bench_image.contract.bounds import (
    MAX_COUNT,
    MAX_RANKS,
    MAX_REASONS,
    Bytes,
    Celsius,
    Count,
    Flops,
    Gigabytes,
    GigabytesPerSecond,
    Joules,
    Loss,
    MegabytesPerSecond,
    Megahertz,
    Moment,
    Percent,
    PositiveSeconds,
    SamplesPerSecond,
    Seconds,
    Share,
    Text,
    Tflops,
    TokensPerSecond,
    Usd,
    Watts,
)
from bench_image.contract.consistency import contradictions, sum_of
from bench_image.contract.equal_work import RANDOM as RANDOM
from bench_image.contract.equal_work import in_one_form, normal_folder
from bench_image.contract.equal_work import normal_weights as normal_weights
from bench_image.contract.frozen import ContractError as ContractError  # the contract's own: others take them from here
from bench_image.contract.frozen import Frozen as Frozen
from bench_image.contract.missing_reasons import unexplained
from bench_image.contract.model_shapes import MODELS, ModelShape, shape_of
from bench_image.contract.options import SINGLE_GPU, unsupported
from bench_image.contract.options import Optimizer as Optimizer
from bench_image.contract.options import Precision as Precision
from bench_image.contract.options import Recipe as Recipe
from bench_image.contract.options import Strategy as Strategy
from bench_image.contract.version_1 import from_version_1, spec_from_version_1

SCHEMA_VERSION = 2
MAX_RESULT_BYTES = 4_000_000
RESULT_FILE = "result.json"
SPEC_ENV = "TRAINBENCH_SPEC"
OUTPUT_DIR_ENV = "TRAINBENCH_OUTPUT_DIR"
# The folder in which Airflow's XCom sidecar looks for the result, under the name that it expects.
XCOM_DIR_ENV = "TRAINBENCH_XCOM_DIR"
XCOM_FILE = "return.json"


class Preset(StrEnum):
    """`as_users_run`: the defaults of HF, PEFT, bitsandbytes. `tuned`: no needless fp32 copies, fused and compiled."""

    AS_USERS_RUN = "as_users_run"
    TUNED = "tuned"


class Device(StrEnum):
    CUDA = "cuda"
    CPU = "cpu"


class Clock(StrEnum):
    """What rates and step times count. On the CPU other processes take turns, which wall time would count too."""

    WALL = "wall"
    PROCESS_CPU = "process_cpu"

    @classmethod
    def of(cls, device: Device) -> Clock:
        return cls.PROCESS_CPU if device is Device.CPU else cls.WALL


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
    CHOOSE = "choose"
    WARMUP = "warmup"
    MEASURE = "measure"
    PROFILE = "profile"
    REPORT = "report"


# A Kubernetes node name: RFC 1123 subdomain. Nothing that a path or a shell could read as more than a name.
NODE_NAME = r"^[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?$"
IDENTIFIER = r"^[a-z0-9]([a-z0-9._-]{0,198}[a-z0-9])?$"
NodeName = Annotated[str, StringConstraints(pattern=NODE_NAME)]
Identifier = Annotated[str, StringConstraints(pattern=IDENTIFIER)]


class Lora(Frozen):
    rank: int = Field(16, ge=1, le=1024)
    alpha: int = Field(32, ge=1, le=4096)
    dropout: float = Field(0.0, ge=0, lt=1)
    targets: tuple[str, ...] = Field(("k_proj", "o_proj", "q_proj", "v_proj"), min_length=1)

    @field_validator("targets")
    @classmethod
    def _one_order(cls, targets: tuple[str, ...]) -> tuple[str, ...]:
        """Order and repetition change nothing about the work, so they must not change the fingerprint."""
        return tuple(sorted(set(targets)))


class Quantisation(Frozen):
    kind: Literal["nf4"] = "nf4"
    double: bool = True


class DiskData(Frozen):
    """Samples in numbered shard files; those that are there already and match are used again."""

    folder: Annotated[str, AfterValidator(normal_folder)] = Field(
        min_length=1, max_length=1000, description="any path: local disk, NFS, a mounted volume"
    )
    num_samples: int = Field(65_536, ge=1, le=MAX_COUNT)
    num_shards: int | None = Field(None, ge=1, le=100_000, description="null: shards of about 128 MB")


AUTO: Literal["auto"] = "auto"


class Drill(Frozen):
    """A fault injected on purpose, to see that the checks find it; the run is marked and never enters a baseline."""

    slowdown_pct: float = Field(description="share of the throughput to lose", ge=5, le=95)


class RunSpec(Frozen):
    """One benchmark run: everything the image needs to know, and nothing it has to look up."""

    schema_version: Literal[2] = 2
    campaign_id: Identifier = Field(description="one execution of the whole flow, e.g. one DAG run")
    run_id: Identifier = Field(description="group + node + round; readable and unique within the campaign")
    group_id: Identifier = Field(description="equal for all runs that may be compared; ends in the fingerprint")
    node: NodeName
    peers: tuple[NodeName, ...] = Field((), description="the other nodes of a gang, in the order of their ranks")
    round: int = Field(1, ge=1, le=100, description="which pass over the nodes: rounds are minutes apart")

    model: str = Field(min_length=1, max_length=200, description="a known model, or any name with `dimensions`")
    dimensions: ModelShape | None = Field(None, description="null: those of the known model")
    weights: Annotated[str, AfterValidator(normal_weights)] = Field(
        RANDOM,
        min_length=1,
        max_length=1000,
        description="'random', the path of a checkpoint's folder, or a hub id with its revision: org/name@revision",
    )
    recipe: Recipe = Recipe.QLORA
    strategy: Strategy = Strategy.SINGLE
    device: Device = Device.CUDA
    nodes: int = Field(1, ge=1, le=1024)
    gpus_per_node: int = Field(1, ge=1, le=64, description="ranks per node; on the CPU: processes")
    micro_batch_size: Annotated[int, Field(ge=1, le=65536)] | Literal["auto"] = Field(
        8, description="samples per rank and micro-step; auto: of the sizes that fit, the fastest"
    )
    gradient_accumulation_steps: int = Field(1, ge=1, le=4096)
    seq_length: int = Field(512, ge=8, le=1_048_576)
    precision: Precision = Precision.BF16
    optimizer: Optimizer = Optimizer.PAGED_ADAMW_8BIT
    gradient_checkpointing: bool | Literal["auto"] = Field(True, description="auto: only if it does not fit without")
    lora: Lora | None = None
    quantisation: Quantisation | None = None
    preset: Preset = Preset.AS_USERS_RUN
    data: Literal["memory"] | DiskData = "memory"
    seed: int = Field(0, ge=0, lt=2**31)

    warmup_steps: int = Field(20, ge=1, le=10_000)
    measured_steps: int = Field(50, ge=2, le=100_000, description="at least, per window that has time for them")
    max_measured_steps: int = Field(200, ge=2, le=100_000, description="at most, per window")
    target_half_width_pct: float = Field(
        0.5, gt=0, le=100, description="stop when the mean step time is known this well"
    )
    max_window_s: float = Field(
        5.0, ge=0.1, le=86_400, description="a measured window ends after this many seconds, with at least two steps"
    )
    repeats: int = Field(3, ge=1, le=100, description="measured windows inside the pod")
    timeout_s: float = Field(1800, ge=5, le=86_400)
    telemetry_interval_s: float = Field(0.2, ge=0.02, le=60)
    drill: Drill | None = None

    @model_validator(mode="after")
    def _consistent(self) -> RunSpec:
        if (self.recipe is Recipe.FULL) != (self.lora is None):
            raise ValueError(
                f"recipe '{self.recipe}' with lora={self.lora!r}: LoRA settings go with lora and qlora only"
            )
        if (self.recipe is Recipe.QLORA) != (self.quantisation is not None):
            raise ValueError(f"recipe '{self.recipe}' with quantisation={self.quantisation!r}: it goes with qlora only")
        if self.strategy is Strategy.SINGLE and self.world_size != 1:
            raise ValueError(f"strategy 'single' runs on one GPU, not {self.world_size}: choose one of the others")
        if self.strategy is Strategy.INDEPENDENT and self.nodes != 1:
            raise ValueError(
                f"strategy 'independent' runs on the GPUs of one node, not of {self.nodes}: give each node its own run"
            )
        if self.strategy not in SINGLE_GPU and self.world_size < 2:
            raise ValueError(
                f"strategy '{self.strategy}' needs at least 2 GPUs in all, got {self.world_size}: choose single"
            )
        if self.peers and (len({self.node, *self.peers}) != self.nodes or len(self.peers) != self.nodes - 1):
            raise ValueError(f"{self.nodes} nodes, but node {self.node} has the peers {', '.join(self.peers)}")
        shape = self.dimensions or MODELS.get(self.model)
        family = shape.family if shape else None
        if reason := unsupported(self.strategy, self.recipe, self.precision, self.optimizer, family):
            raise ValueError(reason)
        if self.max_measured_steps < self.measured_steps:
            raise ValueError(f"max_measured_steps {self.max_measured_steps} < measured_steps {self.measured_steps}")
        return self

    @property
    def world_size(self) -> int:
        return self.nodes * self.gpus_per_node

    @property
    def of_one_rank(self) -> RunSpec:
        """What one rank does by itself: an independent one the work of `single`, any other its part of the whole."""
        if self.strategy is not Strategy.INDEPENDENT:
            return self
        return self.model_copy(update={"strategy": Strategy.SINGLE, "gpus_per_node": 1})

    @property
    def shape(self) -> ModelShape:
        """Raises ContractError for an unknown model without dimensions."""
        return self.dimensions or shape_of(self.model)

    @property
    def needs_hub(self) -> bool:
        """Whether the weights are to be downloaded: neither drawn nor in a folder, which is named by a path."""
        return self.weights != RANDOM and not self.weights.startswith(("/", "."))

    @property
    def samples_per_micro_step(self) -> int:
        """The micro-batch of one rank. Raises ContractError while it is 'auto'."""
        if self.micro_batch_size == AUTO:
            raise ContractError("micro_batch_size is 'auto': only the run's result knows it (RunResult.work)")
        return self.micro_batch_size

    @property
    def samples_per_step(self) -> int:
        """Samples of all ranks in one optimizer step (the global batch). Raises ContractError while it is 'auto'."""
        return self.world_size * self.samples_per_micro_step * self.gradient_accumulation_steps


# What may differ between runs that are still the same work; every other field of the spec enters the fingerprint.
NOT_WORK = frozenset({
    "schema_version", "campaign_id", "run_id", "group_id", "node", "peers", "round",
    "timeout_s", "telemetry_interval_s", "drill",
})  # fmt: skip


# What may differ between the rows of a comparison besides: the thing compared, and how many GPUs do it.
ACROSS_STRATEGIES = frozenset({"strategy", "nodes", "gpus_per_node"})
# How long and how often is measured does not change what one step does.
HOW_MEASURED = frozenset({
    "warmup_steps", "measured_steps", "max_measured_steps", "target_half_width_pct", "max_window_s", "repeats",
})  # fmt: skip


def fingerprint(work: RunSpec, besides: frozenset[str] = frozenset()) -> str:
    """12 hex digits that change whenever anything that changes the work changes; fields in `besides` may differ.

    Independent ranks do equal work however many they are: `gpus_per_node` does not enter then.
    """
    if work.strategy is Strategy.INDEPENDENT:
        besides |= {"gpus_per_node"}
    return _digest(besides, tuple([getattr(work, name) for name in _work_fields(besides)]))


@lru_cache(maxsize=1000)
def _digest(besides: frozenset[str], values: tuple[Any, ...]) -> str:
    """Thousands of runs of one campaign do the same work, and every report asks for it many times."""
    fields = dict(zip(_work_fields(besides), values, strict=True))
    canonical = json.dumps(to_jsonable_python(in_one_form(fields)), sort_keys=True)
    return hashlib.sha256(canonical.encode()).hexdigest()[:12]


@lru_cache
def _work_fields(besides: frozenset[str]) -> tuple[str, ...]:
    return tuple(name for name in RunSpec.model_fields if name not in NOT_WORK | besides)


class RunError(Frozen):
    kind: Text = Field(description="exception class, signal or cause, e.g. OutOfMemoryError, SIGTERM, no_result")
    message: Text
    phase: Phase
    rank: Count | None = Field(None, description="null when the error is not one rank's")


class Gpu(Frozen):
    index: Count
    name: Text
    uuid: Text | None
    vbios: Text | None
    memory_total_bytes: Bytes | None
    compute_capability: Text | None
    pcie_generation_max: Count | None
    pcie_width_max: Count | None
    sm_clock_max_mhz: Megahertz | None
    power_limit_w: Watts | None


class Context(Frozen):
    """Where and with what the run happened: hardware, driver, libraries. Two results are like when these are."""

    node: Text
    pod: Text | None
    hostname: Text
    image: Text | None
    gpus: tuple[Gpu, ...] = Field(max_length=MAX_RANKS)
    driver: Text | None
    cuda: Text | None
    python: Text
    libraries: dict[Text, Text] = Field(
        max_length=1000, description="name -> version, e.g. torch, transformers, peft, bitsandbytes"
    )
    kernel: Text
    cpu: Text
    num_cpus: Count


class Chosen(Frozen):
    """What was left to the program, and the means by which the work was done."""

    micro_batch_size: int = Field(ge=1, le=65536)
    gradient_checkpointing: bool
    why: Text = Field(description="how the choice was made, or that nothing was left to choose")
    means: dict[Text, Text] = Field(
        max_length=1000, description="dtypes, kernels, compilation: what differs between presets; name -> value"
    )


class Startup(Frozen):
    """Seconds before and around the measured windows; reported beside throughput, never inside it."""

    launch_s: Seconds | None = Field(description="process start to the rank's first line of Python")
    import_s: Seconds | None
    build_s: Seconds | None
    probe_s: Seconds | None
    choose_s: Seconds | None = Field(description="trials for what the spec leaves to the program")
    compile_s: Seconds | None = Field(description="first warm-up step minus the last one: compilation and lazy set-up")
    warmup_s: Seconds | None = Field(description="all warm-up steps, compilation included")
    measure_s: Seconds | None = Field(description="all measured windows")
    profile_s: Seconds | None = Field(description="the profiled steps after the windows")
    total_s: Seconds | None = Field(description="process start to result written")


class StepTime(Frozen):
    """Over all measured steps of all windows, by the run's clock; each step's time is the maximum over ranks."""

    mean_s: PositiveSeconds
    median_s: PositiveSeconds
    p5_s: PositiveSeconds
    p95_s: PositiveSeconds
    min_s: PositiveSeconds
    max_s: PositiveSeconds
    cv_pct: Percent = Field(description="sample standard deviation / mean")
    half_width_pct: Percent = Field(description="95 % confidence half-width of the mean / mean")


class Window(Frozen):
    """One measured window: contiguous steps between two synchronisations."""

    started_s: Seconds = Field(description="since process start")
    wall_s: PositiveSeconds
    num_steps: int = Field(ge=1, le=MAX_COUNT)
    samples_per_second: SamplesPerSecond
    half_width_pct: Percent
    steady: bool = Field(description="target_half_width_pct was reached before max_measured_steps")


class Performance(Frozen):
    """Of a run. Independent ranks each have windows of their own: `independent.merge_independent` adds them up."""

    clock: Clock = Field(
        Clock.WALL,
        description="what rates and step times count: wall time, or on the CPU the CPU time that the rank's process "
        "used, with all of its threads; waiting and other processes' turns do not count there",
    )
    samples_per_second: SamplesPerSecond | None = Field(
        description="samples of all ranks / seconds of all windows by `clock`"
    )
    tokens_per_second: TokensPerSecond | None = Field(
        description="non-padding tokens of all ranks / seconds of all windows by `clock`"
    )
    measured_steps: Count
    measured_wall_s: PositiveSeconds | None
    step_time: StepTime | None
    windows: tuple[Window, ...]
    step_times_s: tuple[PositiveSeconds, ...] = Field(description="by `clock`")
    mean_loss: Loss | None
    first_loss: Loss | None
    last_loss: Loss | None
    flops_per_token: Flops | None = Field(description="model FLOPs per token, recipe-aware, causality not halved")
    mfu_pct: Percent | None
    hfu_pct: Percent | None
    matmul_share_pct: Percent | None = Field(description="model FLOP rate / matmul rate measured on the same GPU")
    loader_wait_pct: Share | None = Field(
        description="share of the windows in which the training loop waited for its data, slowest rank"
    )
    input_mb_per_s: MegabytesPerSecond | None = Field(
        description="token bytes that all ranks consume per second, MB = 1e6 bytes"
    )


class Memory(Frozen):
    """`peak_during_training` is GB (1e9 bytes), maximum over ranks. `kind` says what was measured."""

    kind: Literal["cuda_allocated", "process_rss"] | None
    peak_during_training: Gigabytes | None
    peak_allocated_bytes: Bytes | None
    peak_reserved_bytes: Bytes | None
    alloc_retries: Count | None
    num_ooms: Count | None


class GpuTelemetry(Frozen):
    """One GPU within the measured windows only."""

    index: Count
    uuid: Text | None
    num_samples: Count
    utilisation_mean_pct: Share | None
    temperature_mean_c: Celsius | None
    temperature_max_c: Celsius | None
    power_mean_w: Watts | None
    sm_clock_mean_mhz: Megahertz | None
    sm_clock_min_mhz: Megahertz | None
    throttle_share_pct: dict[Text, Share] | None = Field(
        description="class -> share of samples: thermal, power_cap, power_brake, hw_slowdown, sync_boost, user_clocks"
    )
    energy_j: Joules | None
    ecc_corrected: Count | None
    ecc_uncorrected: Count | None
    remapped_rows: Count | None
    pcie_generation: Count | None
    pcie_width: Count | None
    num_other_processes: Count | None


class HostTelemetry(Frozen):
    cpu_utilisation_mean_pct: Share | None
    cpu_steal_pct: Share | None = Field(description="time this machine's CPUs were given to others")
    memory_used_pct: Share | None


class Telemetry(Frozen):
    gpus: tuple[GpuTelemetry, ...] = Field(max_length=MAX_RANKS)
    host: HostTelemetry
    energy_per_sample_j: Joules | None
    energy_per_token_j: Joules | None


class Probes(Frozen):
    h2d_gb_per_s: GigabytesPerSecond | None = Field(description="pinned host-to-device copy, slowest GPU of the run")
    matmul_tflops: Tflops | None = Field(description="large matmul in the run's precision, slowest GPU of the run")
    allreduce_bus_gb_per_s: GigabytesPerSecond | None


class Communication(Frozen):
    """From a few profiled steps after the windows; shares of those steps' time, mean over ranks.

    Exposed: no computation ran at the same time, so the step waited. A rank that waits for its peers communicates.
    """

    total_pct: Share | None
    exposed_pct: Share | None
    profiled_steps: Count | None


class ParameterCount(Frozen):
    total: Count | None
    trainable: Count | None


class Cost(Frozen):
    """Filled by the control plane when it collects the result: prices are not the image's business."""

    cost_per_1000_samples_usd: Usd | None
    usd_per_gpu_hour: Usd | None
    price_source: Text | None
    price_as_of: Text | None


class RankSummary(Frozen):
    rank: Count
    status: Status
    gpu_uuid: Text | None
    step_time_median_s: PositiveSeconds | None
    peak_allocated_bytes: Bytes | None
    mean_loss: Loss | None
    performance: Performance | None = Field(
        description="an independent rank's own figures; null for ranks that work together, which have one pace"
    )
    probes: Probes | None = Field(description="an independent rank's own GPU; null for ranks that work together")


class RunResult(Frozen):
    """What one run measured, or how it failed. The spec is echoed, so that a file explains itself."""

    schema_version: Literal[2] = 2
    spec: RunSpec
    chosen: Chosen | None
    status: Status
    error: RunError | None
    started_at: Moment
    finished_at: Moment
    context: Context | None
    startup: Startup
    performance: Performance
    memory: Memory
    telemetry: Telemetry
    probes: Probes
    communication: Communication
    parameters: ParameterCount
    cost: Cost
    ranks: tuple[RankSummary, ...] = Field(max_length=MAX_RANKS)
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
        if self.status is Status.OK and self.performance.samples_per_second is None:
            raise ValueError("status 'ok' needs performance.samples_per_second")
        if self.finished_at < self.started_at:
            raise ValueError(f"finished_at {self.finished_at} lies before started_at {self.started_at}")
        for path in unexplained({name: getattr(self, name) for name in SECTIONS}, self.missing):
            raise ValueError(f"{path} is null without a reason: add it to `missing`")
        return self

    @model_validator(mode="after")
    def _figures_agree(self) -> RunResult:
        """A rate that its own windows contradict was not measured by them."""
        work = self.work
        samples_per_step = None if work.micro_batch_size == AUTO else work.of_one_rank.samples_per_step
        own = [rank.performance for rank in self.ranks if rank.performance]
        for rank in self.ranks:
            for contradiction in contradictions(rank.performance, samples_per_step) if rank.performance else ():
                raise ValueError(f"ranks.{rank.rank}: {contradiction}")
        is_one_pace = work.strategy is not Strategy.INDEPENDENT
        of_run = contradictions(self.performance, samples_per_step) if is_one_pace else sum_of(self.performance, own)
        for contradiction in of_run:
            raise ValueError(contradiction)
        return self

    @property
    def work(self) -> RunSpec:
        """The spec with what the program chose in place of 'auto'; as asked where it never came to choose."""
        return resolved(self.spec, self.chosen)


SECTIONS = (
    "chosen", "context", "startup", "performance", "memory", "telemetry", "probes", "communication", "parameters",
    "cost", "ranks",
)  # fmt: skip


def resolved(spec: RunSpec, chosen: Chosen | None) -> RunSpec:
    """`spec` with what the program chose in place of 'auto'."""
    if chosen is None:
        return spec
    ran = {"micro_batch_size": chosen.micro_batch_size, "gradient_checkpointing": chosen.gradient_checkpointing}
    is_as_asked = all(getattr(spec, name) == value for name, value in ran.items())
    return spec if is_as_asked else spec.model_copy(update=ran)


def failed_result(
    spec: RunSpec, *, status: Status, kind: str, message: str, phase: Phase, at: datetime, rank: int | None = None
) -> RunResult:
    """The result of a run that measured nothing: every number null, one reason for all of them."""
    reason = f"the run ended as {status.value} before it measured anything"
    telemetry = HostTelemetry(cpu_utilisation_mean_pct=None, cpu_steal_pct=None, memory_used_pct=None)
    return RunResult(
        spec=spec,
        status=status,
        error=RunError(kind=kind, message=message[:4000], phase=phase, rank=rank),
        started_at=at,
        finished_at=at,
        chosen=None,
        context=None,
        startup=Startup(**dict.fromkeys(Startup.model_fields)),
        performance=Performance(
            **dict.fromkeys(Performance.model_fields)
            | {"clock": Clock.of(spec.device), "measured_steps": 0, "windows": (), "step_times_s": ()}
        ),
        memory=Memory(**dict.fromkeys(Memory.model_fields)),
        telemetry=Telemetry(gpus=(), host=telemetry, energy_per_sample_j=None, energy_per_token_j=None),
        probes=Probes(**dict.fromkeys(Probes.model_fields)),
        communication=Communication(**dict.fromkeys(Communication.model_fields)),
        parameters=ParameterCount(total=None, trainable=None),
        cost=Cost(**dict.fromkeys(Cost.model_fields)),
        ranks=(),
        missing=dict.fromkeys(SECTIONS, reason),
    )


def parse_spec(text: str | bytes) -> RunSpec:
    """A spec of this schema version or an older one. Raises ContractError, which names each wrong field."""
    try:
        return RunSpec.model_validate_json(json.dumps(spec_from_version_1(json.loads(text))))
    except ValidationError as error:
        raise ContractError(f"the run spec is not valid: {explain(error)}") from None
    except (ValueError, RecursionError) as error:  # not JSON, nested too deeply, a number of thousands of digits
        raise ContractError(f"the run spec is not valid: no JSON: {error}") from None


_THIS_VERSION = re.compile(rb'\s*\{\s*"schema_version"\s*:\s*%d\s*,' % SCHEMA_VERSION)


def parse_result(text: str | bytes) -> RunResult:
    """A result from outside, checked: size, JSON, schema version, every field. Raises ContractError."""
    raw = text.encode(errors="replace") if isinstance(text, str) else text
    if len(raw) > MAX_RESULT_BYTES:
        raise ContractError(f"result of {len(raw)} bytes is larger than the {MAX_RESULT_BYTES} allowed")
    if _THIS_VERSION.match(raw):  # nearly all of them: read once; what is wrong with the others is told below
        with suppress(ValidationError, RecursionError):
            return RunResult.model_validate_json(text)
    try:
        # parse_constant: Python's json takes NaN and Infinity, which are not JSON
        data = json.loads(text, parse_constant=_refuse_constant)
    except (ValueError, RecursionError) as error:
        raise ContractError(f"result is not JSON (truncated?): {error}") from None
    if not isinstance(data, dict) or "schema_version" not in data:
        raise ContractError("result has no schema_version: not written by trainbench")
    version = data["schema_version"]
    if type(version) is not int or version not in (1, SCHEMA_VERSION):  # True == 1 and 1.0 == 1
        raise ContractError(f"result has schema_version {version!r:.80}; this version reads 1 and {SCHEMA_VERSION}")
    try:
        return RunResult.model_validate_json(text if version == SCHEMA_VERSION else json.dumps(upgraded(data)))
    except (ValidationError, RecursionError) as error:
        told = explain(error) if isinstance(error, ValidationError) else "nested too deeply"
        raise ContractError(f"result breaks the contract: {told}") from None


def upgraded(document: Any) -> Any:
    """A result of an older schema version (its parsed JSON) as one of this version; anything else as it is."""
    is_old = isinstance(document, dict) and document.get("schema_version") == 1
    return from_version_1(document) if is_old else document


def _refuse_constant(name: str) -> float:
    raise ValueError(f"{name} is not a JSON number")


def explain(error: ValidationError) -> str:
    """One line: which field, which value, what is wrong; at most five fields."""
    problems = error.errors(include_url=False)
    parts = []
    for problem in problems[:5]:
        where = ".".join(str(part) for part in problem["loc"]) or error.title
        value = problem["input"]
        shown = "" if isinstance(value, dict) or problem["type"] == "missing" else f" (got {_shown(value)})"
        parts.append(f"{where}: {problem['msg'].removeprefix('Value error, ')}{shown}")
    more = f"; and {len(problems) - 5} more" if len(problems) > 5 else ""
    return "; ".join(parts) + more


def implausible(model: type[Frozen], name: str, value: object) -> str | None:
    """Why this field takes no such value: "4294967.0: Input should be less than ..."; None when it does."""
    try:
        _adapter(model, name).validate_python(value)
    except ValidationError as error:
        return f"{_shown(value)}: {error.errors(include_url=False)[0]['msg']}"
    return None


@lru_cache
def _adapter(model: type[Frozen], name: str) -> TypeAdapter[Any]:
    field = model.model_fields[name]
    annotated: Any = Annotated[field.annotation, field]
    return TypeAdapter(annotated, config=ConfigDict(allow_inf_nan=False))


def _shown(value: object) -> str:
    """At most 80 characters. Python itself refuses to write an integer of thousands of digits."""
    try:
        return f"{value!r:.80}"
    except (ValueError, RecursionError):
        return f"{type(value).__name__}, too long or too deep to be shown"


def finite(value: float | None) -> float | None:
    """`value`, or None for NaN and infinity, which a result cannot hold."""
    return value if value is not None and math.isfinite(value) else None


def json_schemas() -> dict[str, dict[str, Any]]:
    """File name -> JSON Schema of the two documents, as committed under bench_image/contract/schemas/."""
    return {
        "run-spec.v2.json": RunSpec.model_json_schema(mode="validation"),
        "run-result.v2.json": RunResult.model_json_schema(mode="serialization"),
    }
