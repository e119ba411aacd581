"""The formulas of `sizing` against what transformers builds and what torch counts."""

from __future__ import annotations

from typing import Any, Literal

import pytest
import torch
from peft import LoraConfig, get_peft_model
from torch.utils.flop_counter import FlopCounterMode

from bench_image.contract.flops import flops_per_token, lora_targets, num_lora_parameters, num_parameters
from bench_image.contract.model_shapes import MODELS, Gpt2Shape, MixtralShape, ModelShape
from bench_image.contract.options import Recipe
from bench_image.contract.work import Lora
from bench_image.model.architectures import skeleton
from bench_image.model.init_weights import init_weights, random_weights, rebuild_buffers

CPU = torch.device("cpu")
DECODERS = [name for name, shape in MODELS.items() if shape.family != "encoder-decoder"]
TINY_GPT2 = Gpt2Shape(family="gpt2", vocab_size=512, hidden_size=64, num_layers=2, num_heads=4)
TINY_MIXTRAL = MixtralShape(
    family="mixtral", vocab_size=512, hidden_size=64, intermediate_size=96, num_layers=2, num_heads=4, num_kv_heads=2,
    max_positions=128, num_experts=4, num_experts_per_token=2,
)  # fmt: skip
ALL_LINEARS = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")
TOKENS = 64


def built_model(shape: ModelShape, device: str) -> Any:
    """The model that the benchmark trains, with eager attention, whose FLOPs torch can count."""
    model = skeleton(shape, torch.float32)
    if device == "cpu":
        init_weights(model, CPU, random_weights(0))
        rebuild_buffers(model, CPU)
        model.tie_weights()
        model.set_attn_implementation("eager")
    return model


@pytest.mark.parametrize("model", DECODERS)
def test_parameters_are_those_of_the_model_that_transformers_builds(model: str) -> None:
    built = built_model(MODELS[model], "meta")

    assert num_parameters(MODELS[model]) == sum(parameter.numel() for parameter in built.parameters())


@pytest.mark.parametrize("targets", [ALL_LINEARS, ("q_proj", "v_proj")])
def test_lora_parameters_are_those_that_peft_adds(targets: tuple[str, ...]) -> None:
    config = LoraConfig(r=16, target_modules=list(targets), task_type="CAUSAL_LM")
    built = get_peft_model(built_model(MODELS["mistral-7b"], "meta"), config, low_cpu_mem_usage=True)
    trainable = sum(parameter.numel() for parameter in built.parameters() if parameter.requires_grad)

    assert num_lora_parameters(MODELS["mistral-7b"], Lora(rank=16, targets=targets)) == trainable


@pytest.mark.parametrize("which", ["attention", "all"])
def test_lora_parameters_of_gpt2_are_those_that_peft_adds(which: Literal["attention", "all"]) -> None:
    targets = lora_targets(TINY_GPT2, which)
    config = LoraConfig(r=4, target_modules=list(targets), task_type="CAUSAL_LM", fan_in_fan_out=True)
    built = get_peft_model(built_model(TINY_GPT2, "meta"), config, low_cpu_mem_usage=True)
    trainable = sum(parameter.numel() for parameter in built.parameters() if parameter.requires_grad)

    assert num_lora_parameters(TINY_GPT2, Lora(rank=4, targets=targets)) == trainable


@pytest.mark.parametrize("shape", [MODELS["tiny"], TINY_GPT2, TINY_MIXTRAL], ids=lambda shape: shape.family)
def test_flops_of_full_training_are_those_that_torch_counts(shape: ModelShape) -> None:
    """Eager attention, because torch cannot count the fused kernel of the CPU; it computes the masked half as well."""
    model = built_model(shape, "cpu").train()
    if shape.family == "mixtral":
        model.set_experts_implementation("eager")  # torch cannot count grouped matmuls
    ids = torch.randint(shape.vocab_size, (1, TOKENS))
    with FlopCounterMode(display=False) as counter:
        model(input_ids=ids, labels=ids).loss.backward()

    assert counter.get_total_flops() == TOKENS * flops_per_token(shape, Recipe.FULL, TOKENS, None, False).model
