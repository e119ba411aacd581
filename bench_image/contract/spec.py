"""`RunSpec`: the specification of one run. The control plane writes it, the image reads it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import FailFast, Field, StringConstraints, model_validator

from bench_image.contract.fingerprint import Part, fingerprint
from bench_image.contract.frozen import Frozen, setting
from bench_image.contract.links import LinkSweep
from bench_image.contract.options import SINGLE_GPU, Strategy
from bench_image.contract.work import Work

SCHEMA_VERSION = 1
# A Kubernetes node name: RFC 1123 subdomain. No character has a meaning in a path or a shell.
NODE_NAME = r"^[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?$"
IDENTIFIER = r"^[a-z0-9]([a-z0-9._-]{0,198}[a-z0-9])?$"
WHOLE_GPU = "nvidia.com/gpu"  # the default extended resource of a GPU in Kubernetes
RESOURCE_NAME = r"^[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?/[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?$"
NodeName = Annotated[str, StringConstraints(pattern=NODE_NAME)]
SlowdownPct = Annotated[float, Field(ge=5, le=95)]  # share of the throughput to lose
TimeoutS = Annotated[float, Field(ge=5, le=86_400)]
Identifier = Annotated[str, StringConstraints(pattern=IDENTIFIER)]


def is_slice(gpu_resource: str) -> bool:
    return gpu_resource.startswith("nvidia.com/mig-")


class Identity(Frozen):
    """The identity of a run. It changes nothing that is measured."""

    campaign_id: Identifier = Field(description="one execution of the whole flow, e.g. one DAG run")
    run_id: Identifier = Field(description="group + node + round; readable and unique within the campaign")
    group_id: Identifier = Field(description="equal for all runs that may be compared; ends in the fingerprint")
    node: NodeName
    peers: Annotated[tuple[NodeName, ...], FailFast()] = Field(
        (), description="the other nodes of a gang, in the order of their ranks"
    )
    round: int = Field(1, ge=1, le=100, description="which pass over the nodes: rounds are minutes apart")

    @property
    def nodes(self) -> tuple[str, ...]:
        """All of them, in the order of their ranks."""
        return (self.node, *self.peers)


class Placement(Part):
    """How many GPUs do the work, and how they share it."""

    strategy: Strategy = Strategy.SINGLE
    nodes: int = Field(1, ge=1, le=1024)
    gpus_per_node: int = Field(1, ge=1, le=64, description="ranks per node; on the CPU: processes")
    gpu_resource: str = Field(
        WHOLE_GPU, pattern=RESOURCE_NAME, description="what Kubernetes counts as one of these GPUs, e.g. a MIG slice"
    )

    @model_validator(mode="after")
    def _strategy_fits_the_size(self) -> Placement:
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
        return self

    @property
    def world_size(self) -> int:
        return self.nodes * self.gpus_per_node

    @property
    def is_slice(self) -> bool:
        """Whether its GPUs are MIG slices: CUDA joins none of them, so a run has one."""
        return is_slice(self.gpu_resource)

    def canonical(self) -> dict[str, Any]:
        """Independent ranks do equal work however many they are. A whole NVIDIA GPU is the same with and without a
        cluster that counts it; any other resource is another kind of GPU.
        """
        fields = super().canonical()
        if self.gpu_resource == WHOLE_GPU:
            del fields["gpu_resource"]
        if self.strategy is Strategy.INDEPENDENT:
            del fields["gpus_per_node"]
        return fields


class Measurement(Part):
    """How long and how often a run measures. It does not change what one step computes."""

    warmup_steps: int = setting(
        20, "Measurement", "Warm-up steps", "These steps run first and are not counted.", ge=1, le=10_000
    )
    measured_steps: int = setting(
        17, "Measurement", "Measured steps", "The fewest steps of a window: 3 windows of 17 make 51.", ge=2, le=100_000
    )
    max_measured_steps: int = setting(
        200,
        "Measurement",
        "Measured steps, at most",
        "The most steps of a window, however noisy it is.",
        ge=2,
        le=100_000,
    )
    target_half_width_pct: float = setting(
        0.5,
        "Measurement",
        "Wanted precision (%)",
        "A window ends when the mean step time is known to ± this share (95 % interval).",
        gt=0,
        le=100,
    )
    max_window_s: float = setting(
        30.0,
        "Measurement",
        "Longest window (s)",
        "A window also ends after this time, with at least two steps.",
        ge=0.1,
        le=86_400,
    )
    repeats: int = setting(
        3, "Measurement", "Windows per pod", "Measured windows of a run; they show the noise within it.", ge=1, le=100
    )

    @model_validator(mode="after")
    def _range_of_steps(self) -> Measurement:
        if self.max_measured_steps < self.measured_steps:
            raise ValueError(
                f"max_measured_steps {self.max_measured_steps} is below measured_steps {self.measured_steps}: raise it"
            )
        return self


class Drill(Frozen):
    """A fault injected on purpose, to see that the checks find it; the run is marked and never enters a baseline."""

    slowdown_pct: SlowdownPct


class RunSpec(Frozen):
    """One benchmark run, with everything that the image needs to know."""

    schema_version: Literal[1] = 1
    identity: Identity
    work: Work
    placement: Placement = Placement()
    measurement: Measurement = Measurement()
    link_sweep: LinkSweep | None = Field(None, description="the links between the ranks, measured before training")
    timeout_s: TimeoutS = 1800.0
    telemetry_interval_s: float = Field(0.2, ge=0.02, le=60)
    drill: Drill | None = None

    @model_validator(mode="after")
    def _parts_fit(self) -> RunSpec:
        node, peers, nodes = self.identity.node, self.identity.peers, self.placement.nodes
        if peers and (len({node, *peers}) != nodes or len(peers) != nodes - 1):
            raise ValueError(f"{nodes} nodes, but node {node} has the peers {', '.join(peers)}")
        if (self.work.own_job is not None) != (self.placement.strategy is Strategy.OWN):
            raise ValueError("a command of the user's own goes with strategy 'own', and with no other")
        if self.link_sweep and self.placement.strategy in (*SINGLE_GPU, Strategy.OWN):
            raise ValueError(f"a sweep of links with strategy '{self.placement.strategy}': its ranks exchange nothing")
        if reason := self.work.unsupported(self.placement.strategy):
            raise ValueError(reason)
        return self

    @property
    def fingerprint(self) -> str:
        """Equal for runs of equal work, placed and measured alike: these may be compared as they are."""
        sweep = (self.link_sweep,) if self.link_sweep else ()
        return fingerprint(self.work, self.placement, self.measurement, *sweep)

    @property
    def of_one_rank(self) -> RunSpec:
        """What one rank does by itself: an independent one the work of `single`, any other its part of the whole."""
        if self.placement.strategy is not Strategy.INDEPENDENT:
            return self
        return self.changed(placement={"strategy": Strategy.SINGLE, "gpus_per_node": 1})

    @property
    def samples_per_step(self) -> int:
        """Samples of all ranks in one optimizer step (the global batch). Raises ContractError while it is 'auto'."""
        if self.work.own_job:
            return self.work.samples_per_micro_step
        return self.placement.world_size * self.work.samples_per_micro_step * self.work.gradient_accumulation_steps

    def changed(self, **changes: Mapping[str, Any]) -> RunSpec:
        """A copy with other values in its parts: `changed(work={"seq_length": 512})`. They are not validated."""
        parts = {name: getattr(self, name).model_copy(update=dict(values)) for name, values in changes.items()}
        return self.model_copy(update=parts)
