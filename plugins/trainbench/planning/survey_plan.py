"""The plan of a hardware survey: each model with each recipe on some nodes of each kind of GPU."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from bench_image.contract.model_shapes import MODELS, EncoderDecoderShape
from bench_image.contract.options import Recipe, Strategy
from bench_image.contract.spec import RunSpec
from bench_image.contract.work import Device
from trainbench.core.grouping import grouped
from trainbench.params.campaign_kind import CampaignKind
from trainbench.params.campaign_params import BenchmarkParams
from trainbench.planning.nodes import AbsentNode, Fleet, GpuNode
from trainbench.planning.plan import Plan, PlanError, chosen_nodes, impossible_on
from trainbench.planning.skipped import Skipped
from trainbench.planning.work import impossible_reason, spec_of

DEFAULTS: Mapping[str, Any] = {"micro_batch_size": "auto", "seq_length": 1024}
# About one minute on two CPU cores.
LOCAL_DEFAULTS: Mapping[str, Any] = {
    "models": ["tiny", "encoder-decoder"],
    "recipes": ["full", "lora", "qlora"],
    "micro_batch_size": 4,
    "seq_length": 64,
    "warmup_steps": 1,
    "measured_steps": 2,
    "max_measured_steps": 4,
    "rounds": 1,
    "epoch_samples": 10_000,
}
ANY_CPU = "CPU"


def make_survey_plan(params: BenchmarkParams, fleet: Fleet, campaign_id: str) -> Plan:
    """Every model and recipe on the first `nodes_per_gpu_type` nodes of each kind of GPU, or on all that are named.

    Runs that are impossible or do not fit a kind of GPU are skipped with the reason, as are all runs on a kind without
    a usable node. Raises PlanError when none is left.
    """
    nodes = _of_each_kind(params, fleet)
    specs, skipped, labels = [], [], {}
    works = [(model, recipe) for model in params.models for recipe in recipes_of(model, params.recipes)]
    for model, recipe in works:
        label, of_work = f"{model} {recipe}", params.changed(model=model, dimensions=None, recipe=recipe)
        if reason := impossible_reason(Strategy.SINGLE, of_work):
            skipped.append(Skipped(what=label, reason=reason, label=label, model=model, recipe=recipe))
            continue
        for kind, of_kind in nodes.items():
            spec = _spec(of_work, of_kind[0], campaign_id)
            labels[spec.identity.group_id] = label
            if reason := impossible_on(of_kind[0], spec, params.force):
                skipped.append(_unfit(label, kind, of_kind, spec, reason))
            else:
                specs += [
                    _spec(of_work, node, campaign_id, round_)
                    for round_ in range(1, params.rounds + 1)
                    for node in of_kind
                ]
    if not specs:
        raise PlanError(f"nothing can run: {'; '.join(f'{skip.what}: {skip.reason}' for skip in skipped)}")
    return Plan(
        campaign_id=campaign_id,
        params=params,
        nodes=tuple(node.name for of_kind in nodes.values() for node in of_kind),
        specs=tuple(sorted(specs, key=lambda spec: spec.identity.round)),
        skipped=(*skipped, *(() if params.nodes else _without_nodes(fleet, nodes))),
        campaign_kind=CampaignKind.HARDWARE,
        labels=labels,
        known=tuple(node for of_kind in nodes.values() for node in of_kind),
        absent=() if params.nodes else fleet.absent,
    )


def kind_of(product: str | None, device: Device = Device.CUDA) -> str:
    """The name of a kind of GPU, in the spelling of the cluster's labels."""
    if device is Device.CPU:
        return ANY_CPU
    return product.replace(" ", "-") if product else "GPU unknown"


def recipes_of(model: str, recipes: Sequence[Recipe]) -> tuple[Recipe, ...]:
    """The recipes for a model. An encoder-decoder is trained from scratch, so it has no adapters."""
    return (Recipe.FULL,) if isinstance(MODELS[model], EncoderDecoderShape) else tuple(recipes)


def _of_each_kind(params: BenchmarkParams, fleet: Fleet) -> dict[str, list[GpuNode]]:
    kinds = grouped((kind_of(node.gpu_product, params.work.device), node) for node in chosen_nodes(params, fleet))
    if params.nodes:
        return kinds
    return {kind: nodes[: params.nodes_per_gpu_type] for kind, nodes in kinds.items()}


def _spec(params: BenchmarkParams, node: GpuNode, campaign_id: str, round_: int = 1) -> RunSpec:
    return spec_of(params, Strategy.SINGLE, [node.name], 1, campaign_id, round_, node.gpu_resource)


def _unfit(label: str, kind: str, nodes: Sequence[GpuNode], spec: RunSpec, reason: str) -> Skipped:
    return Skipped(
        what=f"{label} on {kind}",
        model=spec.work.model,
        recipe=spec.work.recipe,
        reason=reason,
        strategy=Strategy.SINGLE,
        gpus_per_node=1,
        nodes=tuple(node.name for node in nodes),
        group_id=spec.identity.group_id,
        label=label,
        gpu_product=nodes[0].gpu_product,
    )


def _without_nodes(fleet: Fleet, nodes: Mapping[str, Sequence[GpuNode]]) -> tuple[Skipped, ...]:
    """Kinds of GPU in the cluster without a node that can be benchmarked."""
    kinds: dict[str, list[AbsentNode]] = {}
    for node in fleet.absent:
        if node.gpu_product and kind_of(node.gpu_product) not in nodes:
            kinds.setdefault(kind_of(node.gpu_product), []).append(node)
    return tuple(
        Skipped(
            what=f"everything on {kind}",
            reason="; ".join(f"{node.name}: {node.reason}" for node in absent[:5]),
            nodes=tuple(node.name for node in absent),
            gpu_product=absent[0].gpu_product,
        )
        for kind, absent in kinds.items()
    )
