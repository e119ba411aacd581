"""By which means a preset works, setting by setting."""

from __future__ import annotations

from typing import Any

import pytest

from bench_image.contract.options import Attention, Optimizer, Precision, Recipe, Strategy
from bench_image.contract.preset_switches import (
    DDP_STEPS_BEFORE_CAPTURE,
    STEPS_BEFORE_CAPTURE,
    clips_within_update,
    compiles_whole,
    fuses_head,
    gathers_layers,
    grows_segments,
    makes_product_anew,
    uses_compile,
    uses_cuda_graph,
    uses_fused_lora,
)
from bench_image.contract.work import Device, Lora, Preset
from tests.builders import make_spec


@pytest.mark.parametrize(
    ("changes", "compiled", "fused"),
    [
        ({}, True, True),
        ({"recipe": Recipe.LORA}, True, True),
        ({"recipe": Recipe.FULL}, True, False),
        ({"preset": Preset.AS_USERS_RUN}, False, False),
        ({"preset": Preset.AS_USERS_RUN, "compile": True}, True, False),
        ({"compile": False}, False, False),
        ({"device": Device.CPU}, False, False),
        ({"strategy": Strategy.DDP, "gpus_per_node": 2}, True, True),
        ({"strategy": Strategy.ZERO2, "gpus_per_node": 2}, True, True),
        ({"strategy": Strategy.FSDP, "gpus_per_node": 2}, True, True),
        ({"strategy": Strategy.ZERO3, "gpus_per_node": 2}, True, True),
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
        ({"preset": Preset.AS_USERS_RUN, "compile": True}, False),
        ({"compile": False}, False),
        ({"device": Device.CPU}, False),
        ({"strategy": Strategy.DDP, "gpus_per_node": 2}, True),
        ({"strategy": Strategy.DDP, "gpus_per_node": 2, "warmup_steps": DDP_STEPS_BEFORE_CAPTURE}, False),
        ({"strategy": Strategy.FSDP, "gpus_per_node": 2, "warmup_steps": STEPS_BEFORE_CAPTURE + 1}, True),
        ({"strategy": Strategy.ZERO2, "gpus_per_node": 2}, False),
        ({"strategy": Strategy.ZERO3, "gpus_per_node": 2}, False),
        ({"strategy": Strategy.DDP, "gpus_per_node": 2, "device": Device.CPU}, False),
        ({"optimizer": Optimizer.PAGED_ADAMW_8BIT}, False),
        ({"precision": Precision.FP16}, False),
        ({"precision": Precision.FP16, "recipe": Recipe.FULL}, True),
        ({"model": "encoder-decoder", "recipe": Recipe.FULL}, True),
        ({"model": "mixtral-8x7b"}, False),
        ({"attention": Attention.EAGER}, False),
        ({"attention": Attention.FLASH}, True),
        ({"warmup_steps": STEPS_BEFORE_CAPTURE}, False),
        ({"warmup_steps": STEPS_BEFORE_CAPTURE + 1}, True),
    ],
)
def test_steps_that_never_wait_for_the_gpu_are_replayed(changes: dict[str, Any], expected: bool) -> None:
    spec = make_spec(**{"preset": Preset.TUNED, "optimizer": Optimizer.ADAMW_TORCH} | changes)
    assert uses_cuda_graph(spec) is expected


SEQ2SEQ = {"model": "encoder-decoder", "recipe": Recipe.FULL}
DDP = {"strategy": Strategy.DDP, "gpus_per_node": 2}


def test_memory_grows_with_tuned_on_one_gpu() -> None:
    assert grows_segments(make_spec(preset=Preset.TUNED))
    assert not grows_segments(make_spec(preset=Preset.AS_USERS_RUN))
    assert not grows_segments(make_spec(preset=Preset.TUNED, **DDP))


@pytest.mark.parametrize(
    ("changes", "head", "whole", "clips"),
    [
        ({}, True, False, True),
        (SEQ2SEQ, True, True, True),
        (SEQ2SEQ | {"gradient_checkpointing": True}, True, False, True),
        (SEQ2SEQ | {"precision": Precision.FP16}, True, True, False),
        (SEQ2SEQ | DDP, True, False, False),
        (SEQ2SEQ | {"preset": Preset.AS_USERS_RUN}, False, False, False),
        ({"strategy": Strategy.ZERO3, "gpus_per_node": 2}, False, False, False),
        ({"optimizer": Optimizer.ADAMW_8BIT}, True, False, False),
        ({"device": Device.CPU}, False, False, False),
    ],
)
def test_what_is_one_operation(changes: dict[str, Any], head: bool, whole: bool, clips: bool) -> None:
    fields = {"preset": Preset.TUNED, "optimizer": Optimizer.ADAMW_TORCH, "gradient_checkpointing": False}
    spec = make_spec(**fields | changes)

    assert (fuses_head(spec), compiles_whole(spec), clips_within_update(spec)) == (head, whole, clips)


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, True),
        ({"recipe": Recipe.LORA}, True),
        ({"recipe": Recipe.LORA, "precision": Precision.FP8}, False),
        ({"lora": Lora(targets=("q_proj", "up_proj"))}, False),
        ({"recipe": Recipe.FULL}, False),
        ({"preset": Preset.AS_USERS_RUN}, False),
    ],
)
def test_the_product_within_an_mlp_is_made_anew_where_its_last_layer_has_a_fused_adapter(
    changes: dict[str, Any], expected: bool
) -> None:
    lora = Lora(targets=("gate_proj", "up_proj", "down_proj"))
    fields = {"preset": Preset.TUNED} | ({} if changes.get("recipe") is Recipe.FULL else {"lora": lora})
    assert makes_product_anew(make_spec(**fields | changes)) is expected


@pytest.mark.parametrize(
    ("setting", "fields", "own", "other"),
    [
        ("compile", {"preset": Preset.AS_USERS_RUN}, False, True),
        ("compile", {"preset": Preset.TUNED}, True, False),
        ("attention", {}, Attention.SDPA, Attention.EAGER),
    ],
)
def test_a_setting_makes_other_work_only_where_preset_or_torch_have_it_otherwise(
    setting: str, fields: dict[str, Any], own: object, other: object
) -> None:
    """Empty, and the own value written out, are the work of results from before the setting."""
    specs = [make_spec(**fields | {setting: value}) for value in (None, own, other)]

    assert setting not in specs[0].work.canonical()
    assert specs[1].fingerprint == specs[0].fingerprint != specs[2].fingerprint


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"strategy": Strategy.ZERO3}, True),
        ({"strategy": Strategy.ZERO3, "compile": False}, True),
        ({"strategy": Strategy.ZERO3, "device": Device.CPU}, True),
        ({"strategy": Strategy.ZERO3, "preset": Preset.AS_USERS_RUN}, False),
        ({"strategy": Strategy.ZERO3, "preset": Preset.AS_USERS_RUN, "compile": True}, True),
        ({"strategy": Strategy.ZERO2}, False),
        ({"strategy": Strategy.FSDP}, False),
    ],
)
def test_zero3_gathers_whole_layers_under_tuned_and_where_they_are_compiled(
    changes: dict[str, Any], expected: bool
) -> None:
    assert gathers_layers(make_spec(**{"preset": Preset.TUNED, "gpus_per_node": 2} | changes)) is expected


FP8 = {"precision": Precision.FP8, "preset": Preset.TUNED, "recipe": Recipe.FULL}


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        (FP8 | {"preset": Preset.AS_USERS_RUN}, "'fp8'.*choose preset 'tuned' with compile on"),
        (FP8 | {"compile": False}, "'fp8'.*choose preset 'tuned' with compile on"),
        (FP8 | {"seq_length": 500}, "'fp8'.*seq_length 500: .* choose a multiple of 16"),
        (
            FP8 | {"recipe": Recipe.QLORA},
            "'fp8'.*recipe 'qlora', whose weights have 4 bits: choose lora or full, or bf16",
        ),
        (
            FP8 | {"recipe": Recipe.LORA, "strategy": Strategy.FSDP, "gpus_per_node": 2},
            "'fp8'.*recipe 'lora' and strategy 'fsdp', .* choose single or ddp, or bf16",
        ),
        (FP8 | {"model": "gpt2"}, "'fp8'.*the family 'gpt2', .* choose bf16"),
        (FP8 | {"strategy": Strategy.ZERO3, "gpus_per_node": 2}, "'fp8'.*strategy 'zero3': .* choose ddp or fsdp"),
        ({"attention": "flash", "device": "cpu"}, "attention 'flash' on the CPU, .*: choose eager"),
        ({"attention": "flash", "precision": "tf32"}, "attention 'flash' with precision 'tf32', .*: choose eager"),
        (SEQ2SEQ | {"attention": "eager"}, "attention 'eager' with an encoder"),
        ({"compile": True, "device": "cpu"}, "compile 'on' on the CPU, where layers are not compiled: choose off"),
    ],
)
def test_what_cannot_be_is_refused_with_what_can(fields: dict[str, Any], reason: str) -> None:
    assert uses_compile(make_spec(**FP8))
    with pytest.raises(ValueError, match=reason):
        make_spec(**fields)
