"""`RunSpec`: what one pod is to run. The control plane writes it, the image reads it."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import AfterValidator, Field, StringConstraints, model_validator

from bench_image.contract.frozen import ContractError, Frozen
from bench_image.contract.model_shapes import MODELS, ModelShape, shape_of
from bench_image.contract.options import SINGLE_GPU, Optimizer, Precision, Recipe, Strategy, unsupported
from bench_image.contract.weights import RANDOM, normal_weights
from bench_image.contract.work import AUTO, Device, DiskData, Lora, Preset, Quantisation

SCHEMA_VERSION = 2
# A Kubernetes node name: RFC 1123 subdomain. Nothing that a path or a shell could read as more than a name.
NODE_NAME = r"^[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?$"
IDENTIFIER = r"^[a-z0-9]([a-z0-9._-]{0,198}[a-z0-9])?$"
NodeName = Annotated[str, StringConstraints(pattern=NODE_NAME)]
Identifier = Annotated[str, StringConstraints(pattern=IDENTIFIER)]


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
