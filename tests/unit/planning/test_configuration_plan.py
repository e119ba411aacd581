"""The plan of a diagnosis: the baseline in every round, one change in each configuration, and what cannot run."""

from __future__ import annotations

from typing import Any

import pytest

from bench_image.contract.options import Optimizer
from bench_image.contract.spec import RunSpec
from trainbench.params.campaign_kind import CampaignKind
from trainbench.params.campaign_params import FIELDS
from trainbench.params.refusals import ParamsError
from trainbench.params.variants import BASELINE, VARIANTS
from trainbench.planning.nodes import Fleet, GpuNode, named_nodes
from trainbench.planning.plan import Plan
from trainbench.planning.planners import PLANNERS

PLANNER = PLANNERS[CampaignKind.CONFIGURATIONS]
A10 = {"gpu_product": "NVIDIA-A10", "gpu_memory_bytes": 24 * 2**30}
H100 = {"gpu_product": "NVIDIA-H100", "gpu_memory_bytes": 80 * 10**9}


def plan(*nodes: GpuNode, locally: bool = False, **params: Any) -> Plan:
    fleet = Fleet(nodes=nodes or named_nodes(["gpu-1", "gpu-2"]))
    return PLANNER.make(PLANNER.params(params, locally=locally), fleet, "campaign-1")


def specs_of(planned: Plan) -> dict[str, RunSpec]:
    return {planned.labels[spec.identity.group_id]: spec for spec in planned.specs}


def test_every_round_begins_with_the_baseline_on_one_node() -> None:
    planned = plan(variants=["fp16", "seq 512"], rounds=2)

    assert [(planned.labels[s.identity.group_id], s.identity.node, s.identity.round) for s in planned.specs] == [
        (BASELINE, "gpu-1", 1), ("seq 512", "gpu-1", 1), ("fp16", "gpu-1", 1),
        (BASELINE, "gpu-1", 2), ("seq 512", "gpu-1", 2), ("fp16", "gpu-1", 2),
    ]  # fmt: skip
    assert (planned.campaign_kind, planned.judges_nodes) == (CampaignKind.CONFIGURATIONS, False)


def test_the_baseline_is_the_guides() -> None:
    base = specs_of(plan())[BASELINE]

    assert (base.work.micro_batch_size, base.work.seq_length, base.work.recipe, base.work.precision) == (
        4,
        1024,
        "qlora",
        "bf16",
    )
    assert (base.work.optimizer, base.work.gradient_checkpointing, base.work.lora and base.work.lora.rank) == (
        Optimizer.PAGED_ADAMW_8BIT, True, 16,
    )  # fmt: skip


def test_each_configuration_changes_what_it_says() -> None:
    specs = specs_of(plan())

    assert specs["adamw_torch"].work.optimizer is Optimizer.ADAMW_TORCH
    assert specs["LoRA r8"].work.lora is not None
    assert specs["LoRA r8"].work.lora.rank == 8
    assert (specs["seq 512 + batch 8"].work.seq_length, specs["seq 512 + batch 8"].work.micro_batch_size) == (512, 8)
    assert specs["checkpointing off"].work.gradient_checkpointing is False
    assert specs["data from disk"].work.data != "memory"
    plain = specs["QLoRA plain"]
    assert (plain.work.quantisation and plain.work.quantisation.double, plain.work.gradient_checkpointing) == (
        False,
        False,
    )


def test_configurations_of_one_s_own_run_beside_the_shipped_ones() -> None:
    specs = specs_of(plan(variants=["fp16"], own_variants='{"rank 64": {"lora_rank": 64, "seq_length": 512}}'))

    assert list(specs) == [BASELINE, "fp16", "rank 64"]
    assert (specs["rank 64"].work.lora.rank, specs["rank 64"].work.seq_length) == (64, 512)


def test_equal_work_runs_once_and_counts_for_both() -> None:
    """With double quantisation and checkpointing in the baseline, 'QLoRA + both' changes nothing."""
    planned = plan(variants=["QLoRA + both", "fp16"])
    (skipped,) = planned.skipped

    assert (skipped.label, planned.labels[skipped.group_id or ""]) == ("QLoRA + both", BASELINE)
    assert "the same work as 'baseline'" in skipped.reason


def test_what_does_not_fit_is_left_out_with_its_need_where_it_does_not() -> None:
    """mistral-7b in full with AdamW needs 58 GB and more; without checkpointing far more than 80."""
    params = {"recipe": "full", "optimizer": "adamw_torch", "variants": ["LoRA r8", "checkpointing off", "seq 512"]}
    nodes = [GpuNode(name="h100", **H100), GpuNode(name="a10", **A10)]
    planned = plan(*nodes, nodes=["h100", "a10"], **params)

    assert {spec.identity.node for spec in planned.specs} == {"h100"}
    assert {skip.label for skip in planned.skipped if skip.nodes == ("a10",)} >= {BASELINE, "seq 512"}
    assert all("GB of GPU memory" in skip.reason for skip in planned.skipped if skip.nodes)


@pytest.mark.parametrize("variants", [[], ["baseline"], ["fp16", "fp16"], ["no such"]])
def test_no_or_wrong_configurations_are_refused(variants: list[str]) -> None:
    with pytest.raises(ParamsError, match="variants"):
        plan(variants=variants)


@pytest.mark.parametrize("variant", VARIANTS.values(), ids=lambda variant: variant.name)
def test_a_variant_changes_parameters_that_there_are_and_says_what_it_tests(variant: Any) -> None:
    assert variant.changes.keys() <= FIELDS.keys()
    assert variant.tests
    assert variant.against is None or variant.against in VARIANTS
    PLANNER.params({**variant.changes}, locally=False)


def test_precision_compile_and_attention_are_configurations() -> None:
    names = ["fp32", "tf32", "compile", "eager attention", "flash attention"]
    planned = plan(variants=names, rounds=1)
    works = {planned.labels[spec.identity.group_id]: spec.work for spec in planned.specs}

    assert [works[name].precision for name in names] == ["fp32", "tf32", "bf16", "bf16", "bf16"]
    assert [works[name].attention for name in names] == [None, None, None, "eager", "flash"]
    assert [name for name in names if works[name].is_compiled] == ["compile"]
