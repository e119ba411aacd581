"""By which means a preset works, setting by setting."""

from __future__ import annotations

from typing import Any

import pytest

from bench_image.contract.options import Attention, Precision, Recipe, Strategy
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
from bench_image.contract.work import Lora, Preset
from tests.builders import make_spec

SWITCHES = {
    "compile": uses_compile, "lora": uses_fused_lora, "graph": uses_cuda_graph, "head": fuses_head,
    "whole": compiles_whole, "clips": clips_within_update, "product": makes_product_anew, "layers": gathers_layers,
    "segments": grows_segments,
}  # fmt: skip
MLP = ("gate_proj", "up_proj", "down_proj")
FULL: dict[str, Any] = {"recipe": "full"}
USERS: dict[str, Any] = {"preset": "as_users_run"}
TWO: dict[str, Any] = {"gpus_per_node": 2}
DDP, ZERO3 = TWO | {"strategy": "ddp"}, TWO | {"strategy": "zero3"}
SEQ2SEQ = FULL | {"model": "encoder-decoder"}


@pytest.mark.parametrize(
    ("changes", "switches"),
    [
        ({}, "compile lora graph head clips product segments"),
        ({"recipe": "lora"}, "compile lora graph head clips product segments"),
        (FULL, "compile graph head clips segments"),
        (USERS, ""),
        (USERS | {"compile": True}, "compile"),
        ({"compile": False}, ""),
        ({"device": "cpu"}, ""),
        (DDP, "compile lora graph head product"),
        (DDP | {"device": "cpu"}, ""),
        (DDP | {"warmup_steps": DDP_STEPS_BEFORE_CAPTURE}, "compile lora head product"),
        (TWO | {"strategy": "fsdp", "warmup_steps": STEPS_BEFORE_CAPTURE + 1}, "compile lora graph head product"),
        (TWO | {"strategy": "zero2"}, "compile lora head product"),
        (ZERO3, "compile lora product layers"),
        (ZERO3 | {"compile": False}, "layers"),
        (ZERO3 | {"device": "cpu"}, "layers"),
        (ZERO3 | USERS, ""),
        (ZERO3 | USERS | {"compile": True}, "compile layers"),
        ({"lora": Lora(targets=MLP, dropout=0.1)}, "compile graph head clips segments"),
        ({"lora": Lora(targets=("q_proj", "up_proj"))}, "compile lora graph head clips segments"),
        ({"recipe": "lora", "precision": "fp8"}, "compile lora graph head clips segments"),
        ({"precision": "fp16"}, "compile head segments"),
        (FULL | {"precision": "fp16"}, "compile graph head segments"),
        (FULL | {"model": "gpt2"}, "compile graph head clips segments"),
        ({"model": "mixtral-8x7b", "lora": Lora()}, "compile lora head segments"),
        ({"gradient_accumulation_steps": 4}, "compile lora graph head clips product segments"),
        ({"optimizer": "paged_adamw_8bit"}, "compile lora head product segments"),
        ({"optimizer": "adamw_8bit"}, "compile lora head product segments"),
        ({"attention": "eager"}, "compile lora head product segments"),
        ({"attention": "flash"}, "compile lora graph head clips product segments"),
        ({"warmup_steps": STEPS_BEFORE_CAPTURE}, "compile lora head product segments"),
        ({"warmup_steps": STEPS_BEFORE_CAPTURE + 1}, "compile lora graph head clips product segments"),
        (SEQ2SEQ, "compile graph head whole clips segments"),
        (SEQ2SEQ | {"gradient_checkpointing": True}, "compile graph head clips segments"),
        (SEQ2SEQ | {"precision": "fp16"}, "compile graph head whole segments"),
        (SEQ2SEQ | DDP, "compile graph head"),
        (SEQ2SEQ | USERS, ""),
    ],
)
def test_what_tuned_switches_on(changes: dict[str, Any], switches: str) -> None:
    """QLoRA on the MLP unless said otherwise: compiled layers, fused adapters, the step as one graph, head and loss as
    one operation, all layers as one, clipping within the update, the MLP's product made anew, ZeRO-3's whole layers,
    and memory in segments that grow.
    """
    fields = {"preset": "tuned", "optimizer": "adamw_torch", "gradient_checkpointing": False} | changes
    if fields.get("recipe") != "full":
        fields.setdefault("lora", Lora(targets=MLP))
    spec = make_spec(**fields)

    assert [name for name, is_on in SWITCHES.items() if is_on(spec)] == switches.split()


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
