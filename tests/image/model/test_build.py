"""Models: the same weights under every recipe, and the dtypes that each preset promises."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from bench_image.contract.options import Precision, Recipe
from bench_image.contract.work import Lora, Preset
from bench_image.model.build import build
from bench_image.model.init_weights import WRAPPERS
from tests.builders.image_processes import make_spec

CPU = torch.device("cpu")


def weights(**changes: object) -> dict[str, Any]:
    model = build(make_spec(**changes), CPU).model
    return {WRAPPERS.sub("", name): parameter for name, parameter in model.named_parameters()}


def test_weights_are_the_same_under_every_recipe() -> None:
    full, lora, qlora = (weights(recipe=recipe, preset=Preset.TUNED) for recipe in Recipe)

    assert set(full) < set(lora)
    for name, weight in full.items():
        assert torch.equal(weight, lora[name])
    packed = {name for name, weight in qlora.items() if type(weight).__name__ == "Params4bit"}
    assert len(packed) == 2 * 7  # all linears of both layers, not the head
    for name in set(full) - packed:
        assert torch.equal(full[name], qlora[name])
    for name in packed:
        import bitsandbytes.functional as bnb

        restored = bnb.dequantize_4bit(qlora[name].data, qlora[name].quant_state)
        assert torch.nn.functional.cosine_similarity(restored.flatten(), full[name].flatten(), dim=0) > 0.99


def test_a_cast_weight_is_the_fp32_weight() -> None:
    wide, narrow = (weights(recipe=Recipe.FULL, precision=precision) for precision in (Precision.FP32, Precision.BF16))

    for name, weight in wide.items():
        assert torch.equal(weight.to(torch.bfloat16), narrow[name])


def test_another_seed_draws_other_weights() -> None:
    first, second = (weights(recipe=Recipe.FULL, seed=seed)["lm_head.weight"] for seed in (0, 1))

    assert not torch.equal(first, second)
    assert first.detach().float().std().item() == pytest.approx(0.02, rel=0.02)


@pytest.mark.parametrize("recipe", [Recipe.LORA, Recipe.QLORA])
def test_tuned_keeps_everything_in_bf16(recipe: Recipe) -> None:
    assert {weight.dtype for weight in weights(recipe=recipe, preset=Preset.TUNED).values()} == {torch.bfloat16}


def test_as_users_run_upcasts_what_peft_upcasts() -> None:
    qlora = weights(recipe=Recipe.QLORA, preset=Preset.AS_USERS_RUN)
    lora = weights(recipe=Recipe.LORA, preset=Preset.AS_USERS_RUN)

    assert {p.dtype for p in qlora.values() if type(p).__name__ != "Params4bit"} == {torch.float32}
    assert {p.dtype for name, p in lora.items() if "lora_" in name} == {torch.float32}
    assert {p.dtype for name, p in lora.items() if "lora_" not in name} == {torch.bfloat16}


def test_fp16_trains_fp32_weights() -> None:
    full = weights(recipe=Recipe.FULL, precision=Precision.FP16)
    lora = weights(recipe=Recipe.LORA, precision=Precision.FP16, preset=Preset.TUNED)

    assert {p.dtype for p in full.values()} == {torch.float32}
    assert {p.dtype for p in lora.values() if p.requires_grad} == {torch.float32}
    assert {p.dtype for p in lora.values() if not p.requires_grad} == {torch.float16}


def test_only_adapters_of_the_chosen_layers_train() -> None:
    lora = weights(recipe=Recipe.LORA, lora=Lora(rank=4, targets=("down_proj",)))

    trained = {name for name, weight in lora.items() if weight.requires_grad}
    assert len(trained) == 2 * 2
    assert all("down_proj.lora_" in name for name in trained)


@pytest.mark.parametrize("checkpointing", [True, False])
def test_checkpointing_is_as_the_spec_says(checkpointing: bool) -> None:
    model: Any = build(make_spec(recipe=Recipe.FULL, gradient_checkpointing=checkpointing), CPU).model

    assert [layer.gradient_checkpointing for layer in model.model.layers] == [checkpointing] * 2
