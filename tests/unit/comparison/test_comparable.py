"""Comparison: which runs did equal work, and what makes the others unequal."""

from __future__ import annotations

import pytest

from bench_image.contract.result import Chosen
from bench_image.contract.work import Lora
from tests.builders import make_cpu_result, make_result, spoilt
from trainbench.comparison.entries import by_job, differences, nearest_group, work_groups, work_names


def test_strategies_and_numbers_of_gpus_are_one_work() -> None:
    runs = [
        make_result(),
        make_result(strategy="ddp", gpus_per_node=2),
        make_result(strategy="zero3", gpus_per_node=4, warmup_steps=3),
    ]
    (group,) = work_groups(runs)

    assert group.results == tuple(runs)
    assert (group.gpu_name, group.hardware) == ("NVIDIA H200", "NVIDIA H200")


@pytest.mark.parametrize(
    ("changes", "difference"),
    [
        ({"gradient_accumulation_steps": 4}, "gradient_accumulation_steps 1 vs 4"),
        ({"precision": "fp32"}, "precision bf16 vs fp32"),
        ({"gradient_checkpointing": False}, "gradient_checkpointing on vs off"),
        ({"optimizer": "adamw_torch"}, "optimizer paged_adamw_8bit vs adamw_torch"),
        ({"lora": Lora(rank=8)}, "lora.rank 16 vs 8"),
        ({"preset": "tuned"}, "preset as_users_run vs tuned"),
        ({"data": {"folder": "/scratch/data"}}, "data memory vs shards in /scratch/data"),
        ({"gpu_name": "NVIDIA A10"}, "GPU NVIDIA H200 vs NVIDIA A10"),
    ],
)
def test_unequal_work_is_apart_and_says_in_what(changes: dict[str, object], difference: str) -> None:
    one, other = work_groups([make_result(), make_result(strategy="ddp", gpus_per_node=2, **changes)])  # type: ignore[arg-type]

    assert differences(one, other) == (difference,)


def test_a_choice_of_the_program_that_differs_is_unequal_work() -> None:
    def chose(size: int) -> Chosen:
        return Chosen(micro_batch_size=size, gradient_checkpointing=True, why="fits", execution={})

    runs = [make_result(f"node-{size}", micro_batch_size="auto", chosen=chose(size)) for size in (8, 12)]
    one, other = work_groups(runs)

    assert differences(one, other) == ("micro_batch_size 8 vs 12",)


def test_the_nearest_group_is_the_one_with_the_fewest_differences() -> None:
    groups = work_groups([
        make_result(),
        make_result(seq_length=1024, precision="fp32"),
        make_result(precision="fp32"),
    ])  # fmt: skip

    assert nearest_group(groups[0], groups) is groups[2]
    assert nearest_group(groups[0], groups[:1]) is None


def test_names_separate_groups() -> None:
    groups = work_groups([
        make_result(),
        make_result(optimizer="adamw_torch"),
        make_cpu_result(gradient_accumulation_steps=2),
    ])  # fmt: skip

    assert work_names(groups) == (
        "mistral-7b qlora, batch 8 x 512 tokens, as_users_run, NVIDIA H200, optimizer paged_adamw_8bit",
        "mistral-7b qlora, batch 8 x 512 tokens, as_users_run, NVIDIA H200, optimizer adamw_torch",
        "tiny qlora, batch 8 x 64 tokens, accumulation 2, as_users_run, CPU",
    )


def test_across_presets_the_execution_may_differ_and_nothing_else() -> None:
    tuned = {"preset": "tuned", "optimizer": "adamw_torch", "gradient_checkpointing": False}

    assert len(work_groups([make_result(), make_result(**tuned)], by_job)) == 1  # type: ignore[arg-type]
    assert len(work_groups([make_result(), make_result(**tuned, micro_batch_size=4)], by_job)) == 2  # type: ignore[arg-type]


def test_a_failed_run_with_a_rate_is_in_no_group() -> None:
    (group,) = work_groups([make_result(), spoilt(make_result("node-2", 99.0))])
    assert [result.spec.identity.node for result in group.results] == ["node-1"]
