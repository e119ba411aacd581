"""Params -> plan: which runs there will be, in which order, and what will not run and why."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from typing import Any

from bench_control.campaign import Skipped
from bench_control.params import BenchmarkParams
from bench_image.contract import Drill, Frozen, Lora, Quantisation, Recipe, RunSpec, Strategy, fingerprint

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


def make_plan(params: BenchmarkParams, nodes: Sequence[str], campaign_id: str) -> Plan:
    """One run per round, node and strategy. `nodes` are used when `params` name none. Raises PlanError."""
    chosen = params.nodes or tuple(nodes)
    if not chosen:
        raise PlanError("no nodes: none are given and none with GPUs were found; name them in the parameter 'nodes'")
    if params.drill_node and params.drill_node not in chosen:
        raise PlanError(
            f"drill_node '{params.drill_node}' is not among the nodes {', '.join(chosen)}: choose one of them"
        )
    skipped = tuple(
        Skipped(what=f"strategy {strategy}", reason=reason)
        for strategy in params.strategies
        if (reason := _impossible(strategy, params))
    )
    strategies = [strategy for strategy in params.strategies if not _impossible(strategy, params)]
    if not strategies:
        raise PlanError(f"nothing can run: {'; '.join(f'{s.what}: {s.reason}' for s in skipped)}")
    specs = tuple(
        _spec(params, strategy, node, round_, campaign_id)
        for round_ in range(1, params.rounds + 1)
        for strategy in strategies
        for node in chosen
    )
    return Plan(campaign_id=campaign_id, params=params, nodes=tuple(chosen), specs=specs, skipped=skipped)


def confirm_specs(plan: Plan, nodes: Sequence[str]) -> tuple[RunSpec, ...]:
    """One more run of each group for each of `nodes`: the round after the last."""
    again = plan.params.rounds + 1
    return tuple(
        spec.model_copy(update={"round": again, "run_id": _run_id(spec.group_id, spec.node, again)})
        for spec in plan.specs
        if spec.node in nodes and spec.round == 1
    )


def _impossible(strategy: Strategy, params: BenchmarkParams) -> str | None:
    if strategy is Strategy.DDP and params.gpus_per_node < 2:
        return f"needs at least 2 GPUs per node, gpus_per_node is {params.gpus_per_node}"
    return None


def _spec(params: BenchmarkParams, strategy: Strategy, node: str, round_: int, campaign_id: str) -> RunSpec:
    lora = Lora(rank=params.lora_rank, alpha=params.lora_alpha)
    work: dict[str, Any] = {
        "model": params.model,
        "recipe": params.recipe,
        "strategy": strategy,
        "device": params.device,
        "gpus_per_node": 1 if strategy is Strategy.SINGLE else params.gpus_per_node,
        "micro_batch_size": params.micro_batch_size,
        "gradient_accumulation_steps": params.gradient_accumulation_steps,
        "seq_length": params.seq_length,
        "precision": params.precision,
        "optimizer": params.optimizer,
        "gradient_checkpointing": params.gradient_checkpointing,
        "lora": None if params.recipe is Recipe.FULL else lora,
        "quantisation": Quantisation(double=params.double_quantisation) if params.recipe is Recipe.QLORA else None,
        "preset": params.preset,
        "seed": params.seed,
        "warmup_steps": params.warmup_steps,
        "measured_steps": params.measured_steps,
        "max_measured_steps": params.max_measured_steps,
        "target_half_width_pct": params.target_half_width_pct,
        "repeats": params.repeats,
        **(QUICK if params.quick else {}),
    }
    drill = Drill(slowdown_pct=params.drill_slowdown_pct) if node == params.drill_node else None
    named = RunSpec(campaign_id=campaign_id, run_id="draft", group_id="draft", node=node, **work)
    group_id = _group_id(named)
    return named.model_copy(
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
    return f"{spec.model}-{spec.recipe}-{spec.strategy}-{size}-{shape}-{fingerprint(spec)}"


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
