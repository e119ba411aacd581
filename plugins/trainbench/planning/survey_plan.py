"""The plan of a hardware survey: each model with each recipe on one or several GPUs of each kind."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from bench_image.contract.model_shapes import MODELS, EncoderDecoderShape
from bench_image.contract.options import Recipe
from bench_image.contract.spec import RunSpec, is_slice
from bench_image.contract.work import Device
from trainbench.core.formats import count
from trainbench.core.grouping import grouped
from trainbench.params.campaign_kind import CampaignKind
from trainbench.params.campaign_params import BenchmarkParams
from trainbench.planning.nodes import AbsentNode, Fleet, GpuNode
from trainbench.planning.plan import Plan, PlanError, chosen_nodes, impossible_on
from trainbench.planning.scaling_plan import ScalingCell, scaling_cells
from trainbench.planning.skipped import Skipped
from trainbench.planning.work import impossible_reason, spec_of

DEFAULTS: Mapping[str, Any] = {
    "micro_batch_size": "auto",
    "seq_length": 1024,
    "strategies": ["single", "ddp"],
    "world_sizes": [1],
}
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
    """Every model and recipe on the first `nodes_per_gpu_type` nodes of each kind of GPU, or on all that are named,
    by each strategy at each number of GPUs. A run takes GPUs of one node.

    Runs that are impossible or do not fit a node are skipped with the reason, as are all runs on a kind without a
    usable node. Raises PlanError when none is left.
    """
    nodes = _of_each_kind(params, fleet)
    cells = [cell for cell in scaling_cells(params.world_sizes) if cell.strategy in params.strategies]
    planned, skipped, labels = [], [], {}
    for model, recipe, cell in _works(params, cells):
        of_work = params.changed(model=model, dimensions=None, recipe=recipe)
        label = label_of(model, recipe, cell, params.work.device)
        if reason := impossible_reason(cell.strategy, of_work):
            skipped.append(_impossible(label, model, recipe, cell, reason))
            continue
        for kind, of_kind in nodes.items():
            draft = _spec(of_work, cell, of_kind[0], campaign_id)
            labels[draft.identity.group_id] = label
            able, unable = _able(of_kind, draft, params)
            skipped += [_unfit(label, kind, of_reason, draft, reason) for reason, of_reason in unable.items()]
            planned += [(of_work, cell, node) for node in able]
    if not planned:
        reasons = "; ".join(f"{skip.what}: {skip.reason}" for skip in skipped)
        raise PlanError(
            f"nothing can run: {reasons or 'no strategy fits a number of GPUs: single needs 1, the others 2'}"
        )
    return Plan(
        campaign_id=campaign_id,
        params=params,
        nodes=tuple(node.name for of_kind in nodes.values() for node in of_kind),
        specs=tuple(_spec(*each, campaign_id, round_) for round_ in range(1, params.rounds + 1) for each in planned),
        skipped=(*skipped, *(() if params.nodes else _without_nodes(fleet, nodes))),
        campaign_kind=CampaignKind.HARDWARE,
        labels=labels,
        known=tuple(node for of_kind in nodes.values() for node in of_kind),
        absent=() if params.nodes else fleet.absent,
    )


def label_of(model: str, recipe: Recipe, cell: ScalingCell, device: Device) -> str:
    """ "gpt2 full"; on several GPUs "gpt2 full, ddp on 2 GPUs"."""
    gang = f", {cell.titled(device.rank_noun)}" if cell.world_size > 1 else ""
    return f"{model} {recipe}{gang}"


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


def _works(params: BenchmarkParams, cells: Sequence[ScalingCell]) -> Iterator[tuple[str, Recipe, ScalingCell]]:
    for model in params.models:
        for recipe in recipes_of(model, params.recipes):
            for cell in cells:
                yield model, recipe, cell


def _spec(params: BenchmarkParams, cell: ScalingCell, node: GpuNode, campaign_id: str, round_: int = 1) -> RunSpec:
    return spec_of(params, cell.strategy, [node.name], cell.world_size, campaign_id, round_, node.gpu_resource)


def _able(
    of_kind: Sequence[GpuNode], draft: RunSpec, params: BenchmarkParams
) -> tuple[list[GpuNode], dict[str, list[GpuNode]]]:
    """The nodes of one kind that can run the draft, and the others by their reason."""
    able: list[GpuNode] = []
    unable: dict[str, list[GpuNode]] = {}
    for node in of_kind:
        if reason := _too_few(node, draft) or impossible_on(node, draft, params.force):
            unable.setdefault(reason, []).append(node)
        else:
            able.append(node)
    return able, unable


def _too_few(node: GpuNode, draft: RunSpec) -> str | None:
    """Why the node has too few GPUs; None where it has enough, or their number is not known."""
    gpus, is_cuda = draft.placement.world_size, draft.work.device is Device.CUDA
    if not is_cuda or is_slice(node.gpu_resource) or node.num_gpus is None or node.num_gpus >= gpus:
        return None
    return (
        f"needs {count(gpus, 'GPU')} of one node, a node of this kind has {node.num_gpus}: choose fewer in "
        "world_sizes, or name nodes with more in nodes"
    )


def _impossible(label: str, model: str, recipe: Recipe, cell: ScalingCell, reason: str) -> Skipped:
    return Skipped(
        what=label,
        reason=reason,
        strategy=cell.strategy,
        gpus_per_node=cell.world_size,
        label=label,
        model=model,
        recipe=recipe,
    )


def _unfit(label: str, kind: str, nodes: Sequence[GpuNode], spec: RunSpec, reason: str) -> Skipped:
    return Skipped(
        what=f"{label} on {kind}",
        model=spec.work.model,
        recipe=spec.work.recipe,
        reason=reason,
        strategy=spec.placement.strategy,
        gpus_per_node=spec.placement.gpus_per_node,
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
