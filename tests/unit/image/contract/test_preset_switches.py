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


@pytest.mark.parametrize("preset", list(Preset))
def test_compile_makes_other_work_only_where_the_preset_has_it_otherwise(preset: Preset) -> None:
    """Empty, and the preset's own value written out, are the work of results from before the setting."""
    empty, own, other = (make_spec(preset=preset, compile=value) for value in (None, *OWN_AND_OTHER[preset]))

    assert "compile" not in empty.work.canonical()
    assert own.fingerprint == empty.fingerprint != other.fingerprint


OWN_AND_OTHER = {Preset.AS_USERS_RUN: (False, True), Preset.TUNED: (True, False)}


def test_a_run_that_would_not_be_compiled_is_refused() -> None:
    with pytest.raises(ValueError, match="compile 'on' on the CPU, where layers are not compiled: choose off"):
        make_spec(compile=True, device="cpu")


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


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"preset": Preset.AS_USERS_RUN}, "choose preset 'tuned' with compile on"),
        ({"compile": False}, "choose preset 'tuned' with compile on"),
        ({"seq_length": 500}, "seq_length 500: .* choose a multiple of 16"),
        ({"recipe": Recipe.QLORA}, "recipe 'qlora', whose weights have 4 bits: choose lora or full, or bf16"),
        (
            {"recipe": Recipe.LORA, "strategy": Strategy.FSDP, "gpus_per_node": 2},
            "recipe 'lora' and strategy 'fsdp', .* choose single or ddp, or bf16",
        ),
        ({"model": "gpt2"}, "the family 'gpt2', .* choose bf16"),
        ({"strategy": Strategy.ZERO3, "gpus_per_node": 2}, "strategy 'zero3': .* choose ddp or fsdp"),
    ],
)
def test_fp8_is_refused_where_the_gpu_has_no_fp8_products(changes: dict[str, Any], reason: str) -> None:
    fields = {"precision": Precision.FP8, "preset": Preset.TUNED, "recipe": Recipe.FULL}
    assert uses_compile(make_spec(**fields))

    with pytest.raises(ValueError, match=f"precision 'fp8'.*{reason}"):
        make_spec(**fields | changes)


def test_the_attention_that_torch_chooses_is_the_work_without_the_setting() -> None:
    empty, own, other = (make_spec(attention=value) for value in (None, Attention.SDPA, Attention.EAGER))

    assert own.fingerprint == empty.fingerprint != other.fingerprint


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"attention": "flash", "device": "cpu"}, "attention 'flash' on the CPU, .*: choose eager"),
        ({"attention": "flash", "precision": "tf32"}, "attention 'flash' with precision 'tf32', .*: choose eager"),
        (
            {"attention": "eager", "model": "encoder-decoder", "recipe": Recipe.FULL},
            "attention 'eager' with an encoder",
        ),
    ],
)
def test_attention_is_refused_where_it_is_unavailable(changes: dict[str, Any], reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        make_spec(**changes)
