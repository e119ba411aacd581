"""By which means a preset works, setting by setting."""

from __future__ import annotations

from typing import Any

import pytest

from bench_image.contract.options import Optimizer, Precision, Recipe, Strategy
from bench_image.contract.presets import STEPS_BEFORE_CAPTURE, uses_compile, uses_cuda_graph, uses_fused_lora
from bench_image.contract.work import Device, Lora, Preset
from tests.builders import make_spec


@pytest.mark.parametrize(
    ("changes", "compiled", "fused"),
    [
        ({}, True, True),
        ({"recipe": Recipe.LORA}, True, True),
        ({"recipe": Recipe.FULL}, True, False),
        ({"preset": Preset.AS_USERS_RUN}, False, False),
        ({"device": Device.CPU}, False, False),
        ({"strategy": Strategy.DDP, "gpus_per_node": 2}, True, True),
        ({"strategy": Strategy.ZERO2, "gpus_per_node": 2}, True, True),
        ({"strategy": Strategy.FSDP, "gpus_per_node": 2}, True, True),
        ({"strategy": Strategy.ZERO3, "gpus_per_node": 2}, False, False),
        ({"lora": Lora(dropout=0.1)}, True, False),
        ({"precision": Precision.FP16}, True, False),
    ],
)
def test_tuned_compiles_and_fuses_where_it_can(changes: dict[str, Any], compiled: bool, fused: bool) -> None:
    spec = make_spec(**{"preset": Preset.TUNED} | changes)

    assert (uses_compile(spec), uses_fused_lora(spec)) == (compiled, fused)


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, True),
        ({"recipe": Recipe.FULL}, True),
        ({"model": "gpt2", "recipe": Recipe.FULL}, True),
        ({"gradient_accumulation_steps": 4}, True),
        ({"preset": Preset.AS_USERS_RUN}, False),
        ({"device": Device.CPU}, False),
        ({"strategy": Strategy.DDP, "gpus_per_node": 2}, False),
        ({"optimizer": Optimizer.PAGED_ADAMW_8BIT}, False),
        ({"precision": Precision.FP16}, False),
        ({"model": "mixtral-8x7b"}, False),
        ({"warmup_steps": STEPS_BEFORE_CAPTURE}, False),
        ({"warmup_steps": STEPS_BEFORE_CAPTURE + 1}, True),
    ],
)
def test_one_gpu_replays_steps_in_which_nothing_asks_it(changes: dict[str, Any], expected: bool) -> None:
    spec = make_spec(**{"preset": Preset.TUNED, "optimizer": Optimizer.ADAMW_TORCH} | changes)
    assert uses_cuda_graph(spec) is expected
