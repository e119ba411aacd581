"""The plan of a survey: models x recipes on each kind of GPU, and what cannot run there."""

from __future__ import annotations

from typing import Any

import pytest

from bench_image.contract.options import Recipe
from trainbench.params.campaign_kind import CampaignKind
from trainbench.params.refusals import ParamsError
from trainbench.planning.nodes import AbsentNode, Fleet, GpuNode, named_nodes
from trainbench.planning.plan import Plan, PlanError, recipes_of
from trainbench.planning.planners import PLANNERS

PLANNER = PLANNERS[CampaignKind.HARDWARE]


def node(name: str, product: str | None, gib: int | None) -> GpuNode:
    return GpuNode(name=name, num_gpus=8, gpu_product=product, gpu_memory_bytes=gib and gib * 2**30)


A10S = (node("a10-1", "NVIDIA-A10", 24), node("a10-2", "NVIDIA-A10", 24))
H100 = node("h100-1", "NVIDIA-H100-80GB-HBM3", 80)
UNKNOWN = node("odd-1", None, None)
MIXED = Fleet(nodes=(*A10S, H100, UNKNOWN))


def plan(fleet: Fleet = MIXED, locally: bool = False, **params: Any) -> Plan:
    return PLANNER.make(PLANNER.params(params, locally=locally), fleet, "campaign-1")


def test_one_node_of_each_kind_runs_each_model_with_each_recipe() -> None:
    planned = plan(models=["gpt2", "gpt2-medium"], recipes=["full", "lora"])

    assert planned.nodes == ("a10-1", "h100-1", "odd-1")
    assert len(planned.specs) == 3 * 2 * 2
    assert set(planned.labels.values()) == {"gpt2 full", "gpt2 lora", "gpt2-medium full", "gpt2-medium lora"}
    assert (planned.campaign_kind, planned.judges_nodes) == (CampaignKind.HARDWARE, False)
    assert {spec.placement.world_size for spec in planned.specs} == {1}


def test_what_does_not_fit_one_kind_runs_on_the_others() -> None:
    """A 13B model in bf16 is 26 GB of weights alone; a kind that nobody knows is tried."""
    planned = plan(models=["llama2-13b"], recipes=["lora"])
    (skipped,) = planned.skipped

    assert [spec.identity.node for spec in planned.specs] == ["h100-1", "odd-1"]
    assert skipped.what == "llama2-13b lora on NVIDIA-A10"
    assert (skipped.gpu_product, skipped.nodes, skipped.label) == ("NVIDIA-A10", ("a10-1",), "llama2-13b lora")
    assert "GB of GPU memory" in skipped.reason
    assert len(plan(models=["llama2-13b"], recipes=["lora"], force=True).specs) == 3


def test_a_kind_without_a_free_node_is_reported() -> None:
    away = AbsentNode(name="b200-1", reason="cordoned", expected=False, gpu_product="NVIDIA-B200")
    other = AbsentNode(name="a10-3", reason="cordoned", expected=False, gpu_product="NVIDIA-A10")
    planned = plan(Fleet(nodes=A10S, absent=(away, other)), models=["gpt2"], recipes=["full"])
    (skipped,) = planned.skipped

    assert (skipped.what, skipped.reason) == ("everything on NVIDIA-B200", "b200-1: cordoned")
    assert planned.absent == (away, other)
    assert plan(Fleet(nodes=A10S, absent=(away,)), models=["gpt2"], recipes=["full"], nodes=["a10-1"]).skipped == ()


def test_an_encoder_decoder_is_trained_in_full_whatever_is_requested() -> None:
    planned = plan(models=["encoder-decoder", "gpt2"], recipes=["lora", "qlora"])

    assert set(planned.labels.values()) == {"encoder-decoder full", "gpt2 lora", "gpt2 qlora"}
    assert recipes_of("encoder-decoder", [Recipe.LORA]) == (Recipe.FULL,)
    assert planned.skipped == ()


def test_several_numbers_of_gpus_run_on_one_node_of_each_kind() -> None:
    planned = plan(models=["gpt2"], recipes=["full"], world_sizes=[4, 1, 2, 2], nodes=["a10-1"])

    assert [(spec.placement.strategy, spec.placement.gpus_per_node) for spec in planned.specs] == [
        ("single", 1), ("ddp", 2), ("ddp", 4),
    ]  # fmt: skip
    assert {spec.placement.nodes for spec in planned.specs} == {1}
    assert list(planned.labels.values()) == ["gpt2 full", "gpt2 full, ddp on 2 GPUs", "gpt2 full, ddp on 4 GPUs"]
    assert planned.title == "gpt2 full, batch auto x 1024 tokens, single and ddp, on 1 node, 1, 2 and 4 GPUs of each"


def test_a_number_of_gpus_without_a_strategy_is_skipped_aloud() -> None:
    """`ddp` alone left the row of one GPU out without a word."""
    (skipped,) = plan(models=["gpt2"], recipes=["full"], strategies=["ddp"], world_sizes=[1, 2]).skipped
    assert (skipped.what, skipped.gpus_per_node) == ("1 GPU", 1)
    assert skipped.reason == "ddp does not run on 1 GPU: add single to strategies"


def test_more_gpus_than_a_node_has_are_skipped_with_the_reason() -> None:
    """The node with four GPUs runs two and four; the one with two runs two."""
    small, large = (node(name, "NVIDIA-A10", 24).model_copy(update={"num_gpus": n}) for name, n in (("s", 2), ("l", 4)))
    planned = plan(Fleet(nodes=(small, large)), models=["gpt2"], recipes=["full"], world_sizes=[2, 4, 16],
                   nodes_per_gpu_type=2)  # fmt: skip

    assert [(spec.identity.node, spec.placement.gpus_per_node) for spec in planned.specs] == [
        ("s", 2), ("l", 2), ("l", 4),
    ]  # fmt: skip
    assert [(skip.what, skip.nodes, skip.gpus_per_node) for skip in planned.skipped] == [
        (f"gpt2 full, ddp on {gpus} GPUs on NVIDIA-A10", (name,), gpus)
        for gpus, name in ((4, "s"), (16, "s"), (16, "l"))
    ]
    assert planned.skipped[0].reason == (
        "needs 4 GPUs of one node, a node of this kind has 2: choose fewer in world_sizes or "
        "gpus_per_node, or name nodes with more in nodes"
    )


def test_a_model_that_fits_only_when_it_is_shared_runs_on_several_gpus() -> None:
    """Seven billion parameters in full do not fit an A10; eight of them share the model by fsdp."""
    planned = plan(Fleet(nodes=A10S), models=["llama2-7b"], recipes=["full"], world_sizes=[1, 8],
                   strategies=["single", "ddp", "fsdp"])  # fmt: skip

    assert [spec.placement.strategy for spec in planned.specs] == ["fsdp"]
    assert [skip.label for skip in planned.skipped] == ["llama2-7b full", "llama2-7b full, ddp on 8 GPUs"]


@pytest.mark.parametrize(
    "params", [{"models": []}, {"models": ["gpt2", "gpt2"]}, {"models": ["gpt9"]}, {"recipes": []}]
)
def test_no_double_or_unknown_models_are_refused(params: dict[str, Any]) -> None:
    with pytest.raises(ParamsError, match=next(iter(params))):
        plan(**params)


def test_nothing_that_fits_is_an_error() -> None:
    with pytest.raises(PlanError, match="nothing can run: llama2-70b full on NVIDIA-A10: needs about"):
        plan(Fleet(nodes=A10S), models=["llama2-70b"], recipes=["full"])
    with pytest.raises(PlanError, match="no GPU node can be benchmarked"):
        plan(Fleet(absent=(AbsentNode(name="x", reason="cordoned", expected=False),)))


def test_a_trial_on_a_cpu_is_one_kind() -> None:
    planned = plan(Fleet(nodes=named_nodes(["node-1", "node-2"])), locally=True)

    assert planned.nodes == ("node-1",)
    assert set(planned.labels.values()) == {"tiny full", "tiny lora", "tiny qlora", "encoder-decoder full"}
