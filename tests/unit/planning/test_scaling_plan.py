"""Scaling plan: which strategy runs at which number of GPUs, on which nodes, and what cannot run and why."""

from __future__ import annotations

from typing import Any

import pytest

from bench_image.contract.options import Strategy
from trainbench.params.campaign_kind import CampaignKind
from trainbench.params.campaign_params import parse_params
from trainbench.planning.nodes import Fleet, GpuNode
from trainbench.planning.plan import (
    Plan,
    PlanError,
    ScalingCell,
    make_plan,
    refuse_sizes_without_tasks,
    scaling_cells,
)

ALL = [strategy.value for strategy in Strategy if strategy is not Strategy.OWN]
WORK = {"model": "tier-a", "recipe": "full", "preset": "tuned", "seq_length": 2048, "micro_batch_size": 1}


def node(name: str, gpus: int = 1, product: str = "A10") -> GpuNode:
    return GpuNode(name=name, num_gpus=gpus, gpu_product=product, gpu_memory_bytes=24 * 2**30)


def plan(*nodes: GpuNode, **params: Any) -> Plan:
    data = WORK | {"strategies": ALL, "gpus_per_node": 8} | params
    return make_plan(parse_params(data), Fleet(nodes=nodes), "campaign-1", CampaignKind.STRATEGIES)


FOUR = tuple(node(f"gpu-{i}") for i in range(1, 5))


def test_single_is_one_gpu_and_the_others_are_several() -> None:
    assert [cell.name for cell in scaling_cells((2, 1))] == [
        "single_1_gpu", "own_1_gpu", "ddp_2_gpu", "fsdp_2_gpu", "zero2_2_gpu", "zero3_2_gpu", "own_2_gpu",
    ]  # fmt: skip
    assert ScalingCell(strategy=Strategy.DDP, world_size=1) not in scaling_cells((1,))


def test_nodes_with_one_gpu_each_give_one_pod_per_gpu() -> None:
    planned = plan(*FOUR)

    assert len(planned.specs) == 1 + 4 + 4
    assert {
        (s.placement.strategy.value, s.placement.world_size, s.placement.nodes)
        for s in planned.specs
        if s.placement.world_size == 4
    } == {(strategy, 4, 4) for strategy in ("ddp", "fsdp", "zero2", "zero3")}
    assert planned.specs[-1].identity.peers == ("gpu-2", "gpu-3", "gpu-4")
    assert planned.campaign_kind is CampaignKind.STRATEGIES
    assert not planned.judges_nodes


def test_a_command_of_ones_own_runs_at_each_size_whatever_the_strategies() -> None:
    planned = plan(*FOUR, command="torchrun --nnodes {nodes} train.py", strategies=["ddp"])
    assert [(s.placement.strategy, s.placement.nodes, s.identity.peers) for s in planned.specs] == [
        (Strategy.OWN, 1, ()), (Strategy.OWN, 2, ("gpu-2",)), (Strategy.OWN, 4, ("gpu-2", "gpu-3", "gpu-4")),
    ]  # fmt: skip
    assert planned.skipped == ()


def test_nodes_of_one_gpu_only() -> None:
    planned = plan(node("old", product="V100"), *FOUR[:2], world_sizes=[1, 2])

    assert planned.nodes == ("gpu-1", "gpu-2")


def test_what_cannot_run_is_skipped_with_the_reason() -> None:
    planned = plan(*FOUR[:2], strategies=["single", "ddp"], world_sizes=[1, 2, 4])
    (skipped,) = planned.skipped

    assert skipped.what == "ddp on 4 GPUs"
    assert skipped.reason == "needs 4 nodes with 1 GPU each, there are 2 of one kind: leave 4 out of world_sizes"
    (alone,) = plan(FOUR[0], strategies=["single", "ddp"], world_sizes=[1, 2]).skipped
    assert alone.reason == "needs 2 nodes with 1 GPU each, there is 1: leave 2 out of world_sizes"
    (few,) = plan(node("a", gpus=4), gpus_per_node=1, strategies=["single", "ddp"], world_sizes=[1, 2]).skipped
    assert few.reason.endswith("there is 1: raise gpus_per_node, or leave 2 out of world_sizes")
    (uneven,) = plan(*FOUR[:2], gpus_per_node=2, strategies=["single", "fsdp"], world_sizes=[1, 3]).skipped
    assert "3 nodes" in uneven.reason


def test_on_a_cpu_what_is_skipped_counts_processes() -> None:
    planned = plan(*FOUR[:2], device="cpu", preset="as_users_run", strategies=["single", "ddp"], world_sizes=[1, 2, 4])
    (skipped,) = planned.skipped

    assert skipped.what == "ddp on 4 processes"
    assert skipped.reason.startswith("needs 4 nodes with 1 process each, there are 2 of one kind")


def test_a_spread_that_is_not_even_is_refused() -> None:
    nodes = tuple(node(f"gpu-{i}", gpus=2) for i in range(3))
    (skipped,) = plan(*nodes, strategies=["ddp"], world_sizes=[2, 3]).skipped

    assert skipped.reason.startswith("3 GPUs cannot be spread evenly with 2 on each node")


def test_a_number_of_gpus_that_the_dag_has_no_tasks_for_is_refused() -> None:
    params = parse_params(WORK | {"world_sizes": [2, 16]})

    with pytest.raises(PlanError, match=r"world_sizes has 16: this DAG has tasks for 1, 2 and 4 GPUs; choose from"):
        refuse_sizes_without_tasks((4, 1, 2), params)
    refuse_sizes_without_tasks((1, 2, 16), params)


def test_nodes_of_which_nobody_knows_the_gpus_count_as_one_gpu_each() -> None:
    planned = plan(GpuNode(name="gpu-1"), GpuNode(name="gpu-2"), gpus_per_node=None, world_sizes=[1, 2])
    sizes = {(spec.placement.world_size, spec.placement.nodes, spec.placement.gpus_per_node) for spec in planned.specs}
    assert sizes == {(1, 1, 1), (2, 2, 1)}
