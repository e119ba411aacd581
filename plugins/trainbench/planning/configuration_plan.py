"""Params -> the plan of a diagnosis: the baseline and each chosen configuration, in turn, round after round."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from bench_image.contract.options import Strategy
from bench_image.contract.spec import RunSpec
from trainbench.core.formats import listing
from trainbench.core.grouping import grouped
from trainbench.params.campaign_kind import CampaignKind
from trainbench.params.campaign_params import BenchmarkParams
from trainbench.params.variants import BASELINE, DISK, VARIANTS
from trainbench.planning.nodes import Fleet, GpuNode
from trainbench.planning.plan import Plan, PlanError, chosen_nodes, impossible_on, refuse_several_kinds
from trainbench.planning.skipped import Skipped
from trainbench.planning.work import impossible_reason, spec_of

# The baseline of the published benchmarking guide.
DEFAULTS: Mapping[str, Any] = {
    "preset": "as_users_run",
    "micro_batch_size": 4,
    "seq_length": 1024,
    "recipe": "qlora",
    "lora_rank": 16,
    "optimizer": "paged_adamw_8bit",
    "gradient_checkpointing": True,
    "precision": "bf16",
    "rounds": 3,
}
# Two rounds of the guide's six configurations: about two minutes on two CPU cores.
LOCAL_DEFAULTS: Mapping[str, Any] = {
    "variants": ["LoRA r8", "seq 512", "seq 512 + batch 8", "checkpointing off", DISK],
    "variant_data_folder": "data",  # within the pod's own folder
    "data_num_samples": 256,
    "micro_batch_size": 4,
    "seq_length": 1024,
    "recipe": "qlora",  # the variants change its adapters
    "gradient_checkpointing": True,
    "warmup_steps": 1,
    "measured_steps": 3,
    "max_measured_steps": 4,
    "rounds": 2,
}


def make_configuration_plan(params: BenchmarkParams, fleet: Fleet, campaign_id: str) -> Plan:
    """The plan: baseline and chosen variants on each node, A B C, A B C, so that a drift affects all equally.

    One node unless more are named; each further node repeats the comparison. Configurations that cannot run, or do the
    same work as another, are skipped with the reason. Raises PlanError when none is left.
    """
    chosen = chosen_nodes(params, fleet)
    nodes = chosen if params.nodes else chosen[:1]
    refuse_several_kinds(nodes)
    able, labels, skipped = _possible(params, nodes, campaign_id)
    if not able:
        raise PlanError(f"nothing can run: {'; '.join(f'{skip.what}: {skip.reason}' for skip in skipped)}")
    return Plan(
        campaign_id=campaign_id,
        params=params,
        nodes=tuple(node.name for node in nodes),
        specs=tuple(
            _spec(changed, node, campaign_id, round_)
            for round_ in range(1, params.rounds + 1)
            for node in nodes
            for changed, fitting in able
            if node in fitting
        ),
        skipped=tuple(skipped),
        campaign_kind=CampaignKind.CONFIGURATIONS,
        labels=labels,
        known=nodes,
    )


_Able = tuple[BenchmarkParams, tuple[GpuNode, ...]]  # a configuration, and the nodes that it can run on


def _possible(
    params: BenchmarkParams, nodes: tuple[GpuNode, ...], campaign_id: str
) -> tuple[list[_Able], dict[str, str], list[Skipped]]:
    """The configurations that can run; group id -> configuration name; the skipped ones with their reasons."""
    able: list[_Able] = []
    labels: dict[str, str] = {}
    skipped: list[Skipped] = []
    for name, changed in _configurations(params).items():
        if reason := impossible_reason(Strategy.SINGLE, changed):
            skipped.append(Skipped(what=name, reason=reason, label=name))
            continue
        spec = _spec(changed, nodes[0], campaign_id)
        if twin := labels.get(spec.identity.group_id):
            reason = f"with these parameters it does the same work as '{twin}', whose runs count for both"
            skipped.append(Skipped(what=name, reason=reason, label=name, group_id=spec.identity.group_id))
            continue
        labels[spec.identity.group_id] = name
        fitting, unfit = _fitting(name, spec, nodes, params.force)
        able += [(changed, fitting)] if fitting else []
        skipped += unfit
    return able, labels, skipped


def _configurations(params: BenchmarkParams) -> dict[str, BenchmarkParams]:
    """Name -> parameters, the baseline first, in the order of the variants' table."""
    changed = {BASELINE: params}
    for name, variant in VARIANTS.items():
        if name in params.variants:
            folder = {"data_folder": params.variant_data_folder} if name == DISK else {}
            changed[name] = params.changed(**variant.changes, **folder)
    return changed


def _spec(params: BenchmarkParams, node: GpuNode, campaign_id: str, round_: int = 1) -> RunSpec:
    return spec_of(params, Strategy.SINGLE, [node.name], 1, campaign_id, round_, node.gpu_resource)


def _fitting(
    name: str, spec: RunSpec, nodes: tuple[GpuNode, ...], force: bool
) -> tuple[tuple[GpuNode, ...], list[Skipped]]:
    """The nodes that can run the configuration, and the reasons why others cannot, each once."""
    by_reason = grouped((impossible_on(node, spec, force), node) for node in nodes)
    fitting = tuple(by_reason.pop(None, ()))
    unfit = []
    for reason, unable in by_reason.items():
        assert reason is not None, "it was taken out"
        names = tuple(node.name for node in unable)
        where = "" if len(unable) == len(nodes) else f" on {listing(names)}"
        skip = Skipped(
            what=f"{name}{where}",
            reason=reason,
            strategy=Strategy.SINGLE,
            gpus_per_node=1,
            nodes=names,
            group_id=spec.identity.group_id,
            label=name,
            gpu_product=unable[0].gpu_product,
        )
        unfit.append(skip)
    return fitting, unfit
