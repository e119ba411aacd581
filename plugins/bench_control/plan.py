"""Params -> plan: which runs there will be, in which order, and what will not run and why."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from typing import Any

from bench_control.campaign import Skipped
from bench_control.fit import does_not_fit
from bench_control.formats import listing
from bench_control.nodes import GpuNode, named
from bench_control.params import BenchmarkParams
from bench_image.contract import (
    DiskData,
    Drill,
    Frozen,
    Lora,
    Optimizer,
    Preset,
    Quantisation,
    Recipe,
    RunSpec,
    Strategy,
    fingerprint,
)
from bench_image.sizing import lora_targets
from bench_image.support import unsupported

# What each preset trains with unless told otherwise.
OPTIMIZERS = {Preset.AS_USERS_RUN: Optimizer.PAGED_ADAMW_8BIT, Preset.TUNED: Optimizer.ADAMW_TORCH}
CHECKPOINTING: dict[Preset, Any] = {Preset.AS_USERS_RUN: True, Preset.TUNED: "auto"}
QUICK = {"warmup_steps": 3, "measured_steps": 5, "max_measured_steps": 5, "repeats": 1}


class PlanError(ValueError):
    """Nothing can run; the message says why and what to do."""


class Plan(Frozen):
    """`specs` are ordered round by round, so that the rounds of a node lie as far apart as they can."""

    campaign_id: str
    params: BenchmarkParams
    nodes: tuple[str, ...]
    specs: tuple[RunSpec, ...]
    skipped: tuple[Skipped, ...]


def make_plan(params: BenchmarkParams, nodes: Sequence[GpuNode], campaign_id: str) -> Plan:
    """One run per round, node and strategy. `nodes` are used when `params` name none; what is known of their GPUs
    decides what is skipped. Raises PlanError.
    """
    chosen = named(params.nodes, nodes) if params.nodes else tuple(nodes)
    names = tuple(node.name for node in chosen)
    if not chosen:
        raise PlanError("no nodes: none are given and none with GPUs were found; name them in the parameter 'nodes'")
    if params.drill_node and params.drill_node not in names:
        raise PlanError(
            f"drill_node '{params.drill_node}' is not among the nodes {', '.join(names)}: choose one of them"
        )
    nodes_of, skipped = _possible(params, chosen)
    if not nodes_of:
        raise PlanError(f"nothing can run: {'; '.join(f'{s.what}: {s.reason}' for s in skipped)}")
    specs = tuple(
        _spec(params, strategy, node, round_, campaign_id)
        for round_ in range(1, params.rounds + 1)
        for strategy, able in nodes_of.items()
        for node in able
    )
    return Plan(campaign_id=campaign_id, params=params, nodes=names, specs=specs, skipped=skipped)


def confirm_specs(plan: Plan, nodes: Sequence[str]) -> tuple[RunSpec, ...]:
    """One more run of each group for each of `nodes`: the round after the last."""
    again = plan.params.rounds + 1
    return tuple(
        spec.model_copy(update={"round": again, "run_id": _run_id(spec.group_id, spec.node, again)})
        for spec in plan.specs
        if spec.node in nodes and spec.round == 1
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
        spec = _spec(params, strategy, nodes[0].name, 1, "draft")
        by_reason: dict[str | None, list[GpuNode]] = {}
        for node in nodes:
            by_reason.setdefault(_impossible_on(node, spec, params.force), []).append(node)
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
    if strategy is not Strategy.SINGLE and params.gpus_per_node < 2:
        return f"needs at least 2 GPUs per node, gpus_per_node is {params.gpus_per_node}"
    if params.seq_length > params.shape.max_positions:
        return (
            f"seq_length {params.seq_length} is beyond the {params.shape.max_positions} positions of "
            f"'{params.model}': choose a shorter one"
        )
    return unsupported(strategy, params.recipe, params.precision, _optimizer(params), params.shape.family)


def _impossible_on(node: GpuNode, spec: RunSpec, force: bool) -> str | None:
    if node.num_gpus is not None and node.num_gpus < spec.gpus_per_node:
        return f"needs {spec.gpus_per_node} GPUs, the node has {node.num_gpus}: choose fewer gpus_per_node"
    return None if force else does_not_fit(spec, node)


def _gpus_per_node(strategy: Strategy, params: BenchmarkParams) -> int:
    return 1 if strategy is Strategy.SINGLE else params.gpus_per_node


def _optimizer(params: BenchmarkParams) -> Optimizer:
    return params.optimizer or OPTIMIZERS[params.preset]


def _lora(params: BenchmarkParams) -> Lora | None:
    if params.recipe is Recipe.FULL:
        return None
    return Lora(
        rank=params.lora_rank,
        alpha=params.lora_alpha,
        dropout=params.lora_dropout,
        targets=lora_targets(params.shape, params.lora_targets),
    )


def _data(params: BenchmarkParams) -> str | DiskData:
    if params.data_folder is None:
        return "memory"
    return DiskData(folder=params.data_folder, num_samples=params.data_num_samples, num_shards=params.data_num_shards)


def _work(params: BenchmarkParams, strategy: Strategy) -> dict[str, Any]:
    checkpointing = params.gradient_checkpointing
    return {
        "model": params.model,
        "dimensions": params.dimensions,
        "weights": params.weights,
        "recipe": params.recipe,
        "strategy": strategy,
        "device": params.device,
        "gpus_per_node": _gpus_per_node(strategy, params),
        "micro_batch_size": params.micro_batch_size,
        "gradient_accumulation_steps": params.gradient_accumulation_steps,
        "seq_length": params.seq_length,
        "precision": params.precision,
        "optimizer": _optimizer(params),
        "gradient_checkpointing": CHECKPOINTING[params.preset] if checkpointing is None else checkpointing,
        "lora": _lora(params),
        "quantisation": Quantisation(double=params.double_quantisation) if params.recipe is Recipe.QLORA else None,
        "preset": params.preset,
        "data": _data(params),
        "seed": params.seed,
        "warmup_steps": params.warmup_steps,
        "measured_steps": params.measured_steps,
        "max_measured_steps": params.max_measured_steps,
        "target_half_width_pct": params.target_half_width_pct,
        "repeats": params.repeats,
        **(QUICK if params.quick else {}),
    }


def _spec(params: BenchmarkParams, strategy: Strategy, node: str, round_: int, campaign_id: str) -> RunSpec:
    work = _work(params, strategy)
    drill = Drill(slowdown_pct=params.drill_slowdown_pct) if node == params.drill_node else None
    draft = RunSpec(campaign_id=campaign_id, run_id="draft", group_id="draft", node=node, **work)
    group_id = _group_id(draft)
    return draft.model_copy(
        update={
            "group_id": group_id,
            "run_id": _run_id(group_id, node, round_),
            "round": round_,
            "timeout_s": params.timeout_s,
            "drill": drill,
        }
    )


def _group_id(spec: RunSpec) -> str:
    size = f"{spec.nodes}x{spec.gpus_per_node}"
    shape = f"b{spec.micro_batch_size}-s{spec.seq_length}"
    return identifier(f"{spec.model}-{spec.recipe}-{spec.strategy}-{size}-{shape}-{fingerprint(spec)}", 150)


def _run_id(group_id: str, node: str, round_: int) -> str:
    return identifier(f"{group_id}-{node}-r{round_}", 200)


def identifier(text: str, max_length: int) -> str:
    """`text` in lower case with only letters, digits, '.', '_' and '-'; too long: its start and a hash of all of it."""
    clean = re.sub(r"[^a-z0-9._-]+", "-", text.lower()).strip("._-")
    if len(clean) <= max_length and clean:
        return clean
    digest = hashlib.sha256(text.encode()).hexdigest()[:8]
    return f"{clean[: max_length - 9].strip('._-')}-{digest}".lstrip("-")


def campaign_id(dag_id: str, run_id: str) -> str:
    """The id of one DAG run as a folder name: Airflow's own run ids hold ':' and '+'."""
    return identifier(f"{dag_id}-{run_id}", 150)
