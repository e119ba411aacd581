"""Params -> plan: which runs there will be, in which order, and what will not run and why."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from bench_control.asking.params import BenchmarkParams
from bench_control.asking.question import Question
from bench_control.planning.fit import does_not_fit
from bench_control.planning.nodes import AbsentNode, Fleet, GpuNode, named
from bench_control.planning.skipped import Skipped
from bench_control.planning.work import identifier, impossible, run_id, spec_of
from bench_control.words.formats import count, listing
from bench_image.contract import Frozen, RunSpec, Strategy
from bench_image.support import SINGLE_GPU


class PlanError(ValueError):
    """Nothing can run; the message says why and what to do."""


class Plan(Frozen):
    """`specs` are ordered round by round, so that the rounds of a node lie as far apart as they can.

    `absent`: GPU nodes of the cluster that nothing runs on; empty when the nodes were named.
    """

    campaign_id: str
    params: BenchmarkParams
    nodes: tuple[str, ...]
    specs: tuple[RunSpec, ...]
    skipped: tuple[Skipped, ...]
    question: Question = Question.NODES
    labels: Mapping[str, str] = {}  # group id -> the name under which its work was asked for
    known: tuple[GpuNode, ...] = ()
    absent: tuple[AbsentNode, ...] = ()

    @property
    def judges_nodes(self) -> bool:
        return self.question is Question.NODES


def make_plan(params: BenchmarkParams, fleet: Fleet, campaign_id: str) -> Plan:
    """One run per round, node and strategy. The fleet's nodes are used when `params` name none; what is known of their
    GPUs decides what is skipped. Raises PlanError.
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
        spec_of(params, strategy, [node], _gpus_per_node(strategy, params), campaign_id, round_)
        for round_ in range(1, params.rounds + 1)
        for strategy, able in nodes_of.items()
        for node in able
    )
    return Plan(
        campaign_id=campaign_id,
        params=params,
        nodes=names,
        specs=specs,
        skipped=skipped,
        question=Question.NOISE if params.noise_floor else Question.NODES,
        known=chosen,
        absent=() if params.nodes else fleet.absent,
    )


def chosen_nodes(params: BenchmarkParams, fleet: Fleet) -> tuple[GpuNode, ...]:
    """Those that `params` name, else those of the fleet. Raises PlanError for none."""
    if params.nodes:
        return named(params.nodes, fleet.nodes)
    if fleet.nodes:
        return fleet.nodes
    if fleet.absent:
        told = "; ".join(f"{node.name}: {node.reason}" for node in fleet.absent[:5])
        raise PlanError(f"no GPU node can be benchmarked: {told}; mend one, or name nodes in the parameter 'nodes'")
    raise PlanError("no nodes: none are given and none with GPUs were found; name them in the parameter 'nodes'")


def confirm_specs(plan: Plan, nodes: Sequence[str]) -> tuple[RunSpec, ...]:
    """One more run of each group for each of `nodes`: the round after the last."""
    again = plan.params.rounds + 1
    return tuple(
        spec.model_copy(update={"round": again, "run_id": run_id(spec.group_id, spec.node, again)})
        for spec in plan.specs
        if spec.node in nodes and spec.round == 1
    )


def refuse_more_pods_than(limit: int, plan: Plan) -> None:
    """Raises PlanError when one mapped task of the DAG would have more pods than Airflow maps.

    The independent runs are one mapped task; a gang, which is one task group, has a mapped task of its own.
    """
    runs = sum(spec.nodes == 1 for spec in plan.specs)
    largest = max(runs, *(spec.nodes for spec in plan.specs))
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
) -> tuple[dict[Strategy, tuple[str, ...]], tuple[Skipped, ...]]:
    """Strategy -> the nodes that it can run on; and what cannot run, once for each reason."""
    able: dict[Strategy, tuple[str, ...]] = {}
    skipped = []
    for strategy in dict.fromkeys(params.strategies):
        if nowhere := _impossible(strategy, params):
            skipped.append(_skip(strategy, params, nowhere, nodes, nodes, None))
            continue
        spec = spec_of(params, strategy, [nodes[0].name], _gpus_per_node(strategy, params), "draft")
        by_reason: dict[str | None, list[GpuNode]] = {}
        for node in nodes:
            by_reason.setdefault(impossible_on(node, spec, params.force), []).append(node)
        if good := by_reason.pop(None, None):
            able[strategy] = tuple(node.name for node in good)
        skipped += [
            _skip(strategy, params, reason, unable, nodes, spec.group_id)
            for reason, unable in by_reason.items()
            if reason
        ]
    return able, tuple(skipped)


def _skip(
    strategy: Strategy,
    params: BenchmarkParams,
    reason: str,
    unable: Sequence[GpuNode],
    nodes: Sequence[GpuNode],
    group_id: str | None,
) -> Skipped:
    names = tuple(node.name for node in unable)
    where = "" if len(unable) == len(nodes) else f" on {listing(names)}"
    return Skipped(
        what=f"strategy {strategy}{where}",
        reason=reason,
        strategy=strategy,
        gpus_per_node=_gpus_per_node(strategy, params),
        nodes=names,
        group_id=group_id,
    )


def _impossible(strategy: Strategy, params: BenchmarkParams) -> str | None:
    """Why this strategy cannot run on any node."""
    if strategy not in SINGLE_GPU and params.gpus_per_node < 2:
        return f"needs at least 2 GPUs per node, gpus_per_node is {params.gpus_per_node}"
    return impossible(strategy, params)


def impossible_on(node: GpuNode, spec: RunSpec, force: bool) -> str | None:
    """Why the run, or a gang's share of it, cannot run on this node."""
    if node.num_gpus is not None and node.num_gpus < spec.gpus_per_node:
        return f"needs {spec.gpus_per_node} GPUs, the node has {node.num_gpus}: choose fewer gpus_per_node"
    return None if force else does_not_fit(spec, node)


def _gpus_per_node(strategy: Strategy, params: BenchmarkParams) -> int:
    return 1 if strategy is Strategy.SINGLE else params.gpus_per_node


def campaign_id(dag_id: str, dag_run_id: str) -> str:
    """The id of one DAG run as a folder name: Airflow's own run ids hold ':' and '+'."""
    return identifier(f"{dag_id}-{dag_run_id}", 150)
