"""The plan of a scaling study: every strategy at every number of GPUs, one gang after another."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import product
from typing import Any

from bench_image.contract.frozen import Frozen
from bench_image.contract.options import Strategy
from bench_image.contract.spec import RunSpec
from bench_image.contract.work import Device
from trainbench.core.formats import count, listing
from trainbench.params.campaign_kind import CampaignKind
from trainbench.params.campaign_params import BenchmarkParams
from trainbench.planning.nodes import Fleet, GpuNode, nodes_with_commonest_gpu
from trainbench.planning.plan import Plan, PlanError, chosen_nodes, impossible_on, refuse_several_kinds
from trainbench.planning.skipped import Skipped
from trainbench.planning.work import impossible_reason, spec_of

DEFAULTS: Mapping[str, Any] = {
    "model": "tier-a",
    "recipe": "full",
    "preset": "tuned",
    "strategies": ["single", "ddp", "fsdp", "zero2", "zero3"],
    "gpus_per_node": 8,
    "micro_batch_size": 1,
    "gradient_accumulation_steps": 4,
    "seq_length": 2048,
    "optimizer": "adamw_torch",
    "gradient_checkpointing": False,
}
LOCAL_DEFAULTS: Mapping[str, Any] = {"strategies": ["single", "ddp", "fsdp"], "world_sizes": [1, 2], "gpus_per_node": 1}


class ScalingCell(Frozen):
    """One strategy at one number of GPUs: a task group of the DAG, a gang of the plan."""

    strategy: Strategy
    world_size: int

    @property
    def name(self) -> str:
        """The name of the task group, valid in Airflow."""
        return f"{self.strategy.value}_{self.world_size}_gpu"

    @property
    def title(self) -> str:
        return self.titled("GPU")

    def titled(self, noun: str) -> str:
        """ "ddp on 4 GPUs". `noun`: "process" on a CPU."""
        return f"{self.strategy} on {count(self.world_size, noun)}"


def scaling_cells(world_sizes: Sequence[int]) -> tuple[ScalingCell, ...]:
    """The meaningful cells, smallest first: `single` on one GPU, gangs on several; `independent` shares no work."""
    return tuple(
        ScalingCell(strategy=strategy, world_size=size)
        for size, strategy in product(sorted(set(world_sizes)), Strategy)
        if strategy is not Strategy.INDEPENDENT and (strategy is Strategy.SINGLE) == (size == 1)
    )


def refuse_sizes_without_tasks(built: Sequence[int], params: BenchmarkParams) -> None:
    """Raise PlanError for numbers of GPUs that the DAG has no task group for; `built`: those that it has."""
    if missing := sorted(set(params.world_sizes) - set(built)):
        sizes = listing(map(str, sorted(built)), most=len(built))
        raise PlanError(
            f"world_sizes has {listing(map(str, missing))}: this DAG has tasks for {sizes} GPUs; choose from these, or "
            "set TRAINBENCH_WORLD_SIZES and let Airflow read its DAGs again"
        )


def make_scaling_plan(params: BenchmarkParams, fleet: Fleet, campaign_id: str) -> Plan:
    """One gang for each chosen strategy and number of GPUs, always on the first nodes, which have the same GPU.

    A gang takes at most `gpus_per_node` GPUs of a node, and no more than each has: 4 GPUs are one pod, or 4 pods on 4
    nodes. Impossible gangs are skipped with the reason. Raises PlanError when none is left.
    """
    chosen = chosen_nodes(params, fleet)
    nodes = chosen if params.nodes else nodes_with_commonest_gpu(chosen)
    refuse_several_kinds(nodes)
    there = [node.num_gpus_per_run for node in nodes if node.num_gpus_per_run]
    most = min([*filter(None, [params.gpus_per_node]), *there], default=1)
    specs, skipped = [], []
    for cell in (cell for cell in scaling_cells(params.world_sizes) if cell.strategy in params.strategies):
        planned = _spec_or_reason(cell, params, nodes, most, campaign_id)
        if isinstance(planned, RunSpec):
            specs.append(planned)
        else:
            gpus, what = min(cell.world_size, most), cell.titled(size_noun(params))
            skipped.append(Skipped(what=what, reason=planned, strategy=cell.strategy, gpus_per_node=gpus))
    if not specs:
        reasons = "; ".join(f"{skip.what}: {skip.reason}" for skip in skipped)
        raise PlanError(
            f"nothing can run: {reasons or 'no strategy fits a number of GPUs: single needs 1, the others 2'}"
        )
    used = {name for spec in specs for name in (spec.identity.node, *spec.identity.peers)}
    return Plan(
        campaign_id=campaign_id,
        params=params,
        nodes=tuple(node.name for node in nodes if node.name in used),
        specs=tuple(specs),
        skipped=tuple(skipped),
        campaign_kind=CampaignKind.STRATEGIES,
        known=tuple(node for node in nodes if node.name in used),
    )


def _spec_or_reason(
    cell: ScalingCell, params: BenchmarkParams, nodes: Sequence[GpuNode], most: int, campaign_id: str
) -> RunSpec | str:
    gpus, noun = min(cell.world_size, most), size_noun(params)
    if cell.world_size % gpus:
        ranks = count(cell.world_size, noun)
        return f"{ranks} cannot be spread evenly with {gpus} on each node: choose another gpus_per_node"
    if cell.world_size // gpus > len(nodes):
        needed = f"needs {cell.world_size // gpus} nodes with {count(gpus, noun)} each"
        return f"{needed}, there are {len(nodes)} of one kind: raise gpus_per_node, or choose a smaller world size"
    if reason := impossible_reason(cell.strategy, params):
        return reason
    used = nodes[: cell.world_size // gpus]
    spec = spec_of(
        params, cell.strategy, [node.name for node in used], gpus, campaign_id, gpu_resource=used[0].gpu_resource
    )
    return next((reason for node in used if (reason := impossible_on(node, spec, params.force))), spec)


def size_noun(params: BenchmarkParams) -> str:
    """The noun of a rank: on a CPU each is a process."""
    return "process" if params.work.device is Device.CPU else "GPU"
