"""Makes the plan from the params: the runs, their order, and the skipped ones with their reasons."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from bench_image.contract.frozen import Frozen
from bench_image.contract.options import SINGLE_GPU, Strategy
from bench_image.contract.spec import RunSpec, is_slice
from bench_image.contract.work import Device
from trainbench.core.formats import count, listing
from trainbench.core.user_error import UserError
from trainbench.params.campaign_kind import CampaignKind
from trainbench.params.campaign_params import BenchmarkParams
from trainbench.planning.memory_fit import does_not_fit
from trainbench.planning.nodes import AbsentNode, Fleet, GpuNode, named_nodes
from trainbench.planning.skipped import Skipped
from trainbench.planning.work import identifier, impossible_reason, run_id, spec_of

# The nightly check: work bounded by the GPU, not the host, on every GPU by itself and on all of a node together. ddp
# launches each kernel from the host, which limits it at 512 tokens (standard deviation 6 %; at 1,024 0.05 %).
# Few steps of warm-up and windows bounded in time end it in about a minute, cold start included.
NIGHT: Mapping[str, Any] = {
    "preset": "tuned",
    "strategies": ["independent", "ddp"],
    "multi_gpu_seq_length": 1024,
    "warmup_steps": 10,
    "max_window_s": 5.0,
}
# In a trial without a GPU every node is one process, and `tuned` compiles nothing there.
LOCAL_NIGHT: Mapping[str, Any] = {"preset": "as_users_run", "strategies": ["independent"]}
RERUN_ROUNDS = 2
NO_JOINED_SLICES = "CUDA and NCCL join no MIG slices"


class PlanError(UserError, ValueError):
    """No run is possible; the message has the cause and the remedy."""


class Plan(Frozen):
    """The planned runs. `specs` are ordered round by round, so that a node's rounds are as far apart as possible.

    `absent`: GPU nodes of the cluster without a run; empty when the form names the nodes.
    """

    campaign_id: str
    params: BenchmarkParams
    nodes: tuple[str, ...]
    specs: tuple[RunSpec, ...]
    skipped: tuple[Skipped, ...]
    campaign_kind: CampaignKind = CampaignKind.NODES
    labels: Mapping[str, str] = {}  # group id -> its work's name in the form
    known: tuple[GpuNode, ...] = ()
    absent: tuple[AbsentNode, ...] = ()
    has_reruns: bool = True  # False: for result files, judged without re-runs

    @property
    def judges_nodes(self) -> bool:
        return self.campaign_kind is CampaignKind.NODES

    @property
    def nodes_by_group(self) -> Mapping[str, tuple[str, ...]]:
        """Group id -> the nodes that run its work, in the plan's order."""
        planned: dict[str, dict[str, None]] = {}
        for spec in self.specs:
            planned.setdefault(spec.identity.group_id, {})[spec.identity.node] = None
        return {group_id: tuple(nodes) for group_id, nodes in planned.items()}

    @property
    def gpus_per_node(self) -> tuple[int, ...]:
        """The numbers of GPUs per node that runs use, ascending; empty without GPUs."""
        return tuple(sorted({spec.placement.gpus_per_node for spec in self.specs if spec.work.device is Device.CUDA}))

    @property
    def title(self) -> str:
        """A title from the settings that all runs share, and the values of those that differ."""
        specs = self.specs
        models, recipes, shapes, strategies = (
            list(dict.fromkeys(values))
            for values in (
                (spec.work.model for spec in specs),
                (spec.work.recipe.value for spec in specs),
                (f"batch {spec.work.micro_batch_size} x {spec.work.seq_length} tokens" for spec in specs),
                (spec.placement.strategy.value for spec in specs),
            )
        )
        work = f"{listing(models)} {listing(recipes)}"
        if len(shapes) == 1:
            work += f", {shapes[0]}"
        if strategies != [Strategy.SINGLE]:
            work += f", {listing(strategies)}"
        noise = "noise floor: " if self.campaign_kind is CampaignKind.NOISE else ""
        gpus = self.gpus_per_node
        of_each = f", {listing(map(str, gpus))} {'GPU' if gpus == (1,) else 'GPUs'} of each" if gpus else ""
        return f"{noise}{work}, on {count(len(self.nodes), 'node')}{of_each}"


def make_plan(params: BenchmarkParams, fleet: Fleet, campaign_id: str) -> Plan:
    """The plan of a node check: one run per round, node and strategy, on all GPUs of the node unless `params` limit
    them.

    The fleet's nodes are used where `params` name none. The known GPUs of a node decide the size of its runs and which
    are skipped. Raises PlanError.
    """
    chosen = chosen_nodes(params, fleet)
    names = tuple(node.name for node in chosen)
    if params.drill_node and params.drill_node not in names:
        raise PlanError(
            f"drill_node '{params.drill_node}' is not among the nodes {', '.join(names)}: choose one of them"
        )
    nodes_of, skipped = _possible(params, chosen)
    if not nodes_of:
        raise PlanError(f"nothing can run: {'; '.join(f'{s.what}: {s.reason}' for s in skipped)}")
    specs = tuple(
        spec_of(params, strategy, [node.name], gpus, campaign_id, round_, node.gpu_resource)
        for round_ in range(1, params.rounds + 1)
        for strategy, able in nodes_of.items()
        for node, gpus in able
    )
    return Plan(
        campaign_id=campaign_id,
        params=params,
        nodes=names,
        specs=specs,
        skipped=skipped,
        campaign_kind=CampaignKind.NOISE if params.noise_floor else CampaignKind.NODES,
        known=chosen,
        absent=() if params.nodes else fleet.absent,
    )


def chosen_nodes(params: BenchmarkParams, fleet: Fleet) -> tuple[GpuNode, ...]:
    """The nodes that `params` name, else those of the fleet. Raises PlanError for none."""
    if params.nodes:
        absent = (GpuNode(name=node.name, gpu_resource=node.gpu_resource) for node in fleet.absent)
        return named_nodes(params.nodes, (*fleet.nodes, *absent))
    if fleet.nodes:
        return fleet.nodes
    if fleet.absent:
        reasons = "; ".join(f"{node.name}: {node.reason}" for node in fleet.absent[:5])
        raise PlanError(
            f"no GPU node can be benchmarked: {reasons}; repair one, or name nodes in the parameter 'nodes'"
        )
    raise PlanError("no nodes: none are given and none with GPUs were found; name them in the parameter 'nodes'")


def refuse_several_kinds(nodes: Sequence[GpuNode]) -> None:
    """Raise PlanError where runs that are compared, or form a gang, would have GPUs of several resources."""
    resources = sorted({node.gpu_resource for node in nodes})
    if len(resources) > 1:
        raise PlanError(
            f"these nodes have different kinds of GPU ({listing(resources)}), which are not compared: name nodes of "
            "one kind in the parameter 'nodes'"
        )


def confirm_specs(plan: Plan, suspects: Collection[str], controls: Collection[str]) -> tuple[RunSpec, ...]:
    """The re-runs: of each group on each suspect and each control, round by round, as the rounds after the last.

    Two rounds, because with one a fleet of 256 nodes, of which 1 % of the runs are disturbed, has a node that is red by
    two chances in 2.6 % of its nights. `controls` are nodes that are well: their own change between first run and
    re-run is taken out of the suspects'. Up to three, so that one disturbed control does not decide.
    """
    nodes = {*suspects, *controls}
    return tuple(
        spec.changed(identity={"round": again, "run_id": run_id(spec.identity.group_id, spec.identity.node, again)})
        for again in range(plan.params.rounds + 1, plan.params.rounds + 1 + RERUN_ROUNDS)
        for spec in plan.specs
        if spec.identity.node in nodes and spec.identity.round == 1
    )


def refuse_more_pods_than(limit: int, plan: Plan) -> None:
    """Raise PlanError when one mapped task of the DAG would have more pods than Airflow maps.

    The runs of a node check are mapped in as many blocks as needed. Those of a comparison, one after another, are one
    mapped task; each gang, a task group, has a mapped task of its own.
    """
    runs = 0 if plan.judges_nodes else sum(spec.placement.nodes == 1 for spec in plan.specs)
    largest = max(runs, *(spec.placement.nodes for spec in plan.specs))
    if largest <= limit:
        return
    what = (
        f"{count(runs, 'run')} ({count(len(plan.nodes), 'node')}, {count(plan.params.rounds, 'round')})"
        if largest == runs
        else f"{count(largest, 'pod')} of one gang"
    )
    raise PlanError(
        f"{what} are more than Airflow maps in one task: [core] max_map_length is {limit}. Raise it to {largest} or "
        "more (AIRFLOW__CORE__MAX_MAP_LENGTH, for the API server and the workers), or choose fewer rounds, strategies "
        "or nodes (parameters 'rounds', 'strategies', 'nodes')"
    )


def _possible(
    params: BenchmarkParams, nodes: Sequence[GpuNode]
) -> tuple[dict[Strategy, list[tuple[GpuNode, int]]], tuple[Skipped, ...]]:
    """Strategy -> the nodes that can run it, with their numbers of GPUs; and the skipped runs, once per reason."""
    able: dict[Strategy, list[tuple[GpuNode, int]]] = {}
    skipped: list[Skipped] = []
    for strategy in dict.fromkeys(params.strategies):
        if nowhere := impossible_reason(strategy, params):
            skipped.append(_skip(strategy, None, nowhere, nodes, nodes))
            continue
        drafts: dict[tuple[int, str], RunSpec] = {}
        unable: dict[tuple[str, str | None, int], list[GpuNode]] = {}
        for node in nodes:
            gpus = gpus_of(node, strategy, params)
            if strategy not in SINGLE_GPU and gpus < 2:
                if not _is_left_out(strategy, params):
                    unable.setdefault((_too_few(node, params), None, gpus), []).append(node)
                continue
            kind = (gpus, node.gpu_resource)
            if kind not in drafts:
                drafts[kind] = spec_of(params, strategy, [node.name], gpus, "draft", gpu_resource=node.gpu_resource)
            if reason := impossible_on(node, drafts[kind], params.force):
                unable.setdefault((reason, drafts[kind].identity.group_id, gpus), []).append(node)
            else:
                able.setdefault(strategy, []).append((node, gpus))
        skipped += [
            _skip(strategy, gpus, reason, of_reason, nodes, group_id)
            for (reason, group_id, gpus), of_reason in unable.items()
        ]
    return able, tuple(skipped)


def _skip(
    strategy: Strategy,
    gpus: int | None,
    reason: str,
    unable: Sequence[GpuNode],
    nodes: Sequence[GpuNode],
    group_id: str | None = None,
) -> Skipped:
    names = tuple(node.name for node in unable)
    where = "" if len(unable) == len(nodes) else f" on {listing(names)}"
    return Skipped(
        what=f"strategy {strategy}{where}",
        reason=reason,
        strategy=strategy,
        gpus_per_node=gpus,
        nodes=names,
        group_id=group_id,
    )


def gpus_of(node: GpuNode, strategy: Strategy, params: BenchmarkParams) -> int:
    """The number of GPUs that a run uses on the node: all usable ones, or fewer by `params`; one where neither is
    known. Without GPUs: the number of processes.
    """
    if strategy is Strategy.SINGLE:
        return 1
    there = node.num_gpus_per_run if params.work.device is Device.CUDA else None
    return max(1, min((number for number in (params.gpus_per_node, there) if number is not None), default=1))


def unknown_gpus(plan: Plan) -> str | None:
    """A sentence on nodes measured on one GPU only because their number is unknown; None where all are known."""
    if plan.params.work.device is not Device.CUDA or plan.params.gpus_per_node is not None:
        return None
    unknown = [node.name for node in plan.known if node.num_gpus is None]
    if not unknown or set(plan.params.strategies) == {Strategy.SINGLE}:
        return None
    return (
        f"how many GPUs {listing(unknown)} {'has' if len(unknown) == 1 else 'have'} is not known, so one is measured: "
        "set gpus_per_node"
    )


def _is_left_out(strategy: Strategy, params: BenchmarkParams) -> bool:
    """Whether the strategy is left out on a node with one GPU: `ddp` beside `independent` measures links."""
    return strategy is Strategy.DDP and Strategy.INDEPENDENT in params.strategies


def _too_few(node: GpuNode, params: BenchmarkParams) -> str:
    if params.gpus_per_node == 1:
        has = "gpus_per_node is 1"
    elif params.work.device is Device.CUDA and is_slice(node.gpu_resource):
        has = f"a run takes one {node.gpu_resource}: {NO_JOINED_SLICES}"
    elif node.num_gpus is None or params.work.device is Device.CPU:
        has = "how many there are is not known: set gpus_per_node"
    else:
        has = f"the node has {node.num_gpus}"
    return f"needs at least 2 GPUs per node, {has}"


def impossible_on(node: GpuNode, spec: RunSpec, force: bool) -> str | None:
    """Why the run, or a gang's share of it, cannot run on this node."""
    if spec.placement.is_slice and spec.placement.world_size > 1:
        return f"needs {spec.placement.world_size} GPUs, the node has {node.gpu_resource}: {NO_JOINED_SLICES}"
    if node.num_gpus is not None and node.num_gpus < spec.placement.gpus_per_node:
        return f"needs {spec.placement.gpus_per_node} GPUs, the node has {node.num_gpus}: choose fewer gpus_per_node"
    return None if force else does_not_fit(spec, node)


def campaign_id(dag_id: str, dag_run_id: str) -> str:
    """The id of one DAG run as a folder name: Airflow's own run ids hold ':' and '+'."""
    return identifier(f"{dag_id}-{dag_run_id}", 150)
