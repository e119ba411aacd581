"""The formulas of `sizing` against what transformers builds and what torch counts."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from peft import LoraConfig, get_peft_model

from bench_image.contract.flops import lora_targets, num_lora_parameters, num_parameters
from bench_image.contract.model_shapes import MODELS, Gpt2Shape, MixtralShape, ModelShape
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


def built_model(shape: ModelShape, device: str) -> Any:
    """The model that the benchmark trains, with eager attention and experts, whose FLOPs torch can count."""
    model = skeleton(shape, torch.float32)
    if device == "cpu":
        init_weights(model, CPU, random_weights(0))
        rebuild_buffers(model, CPU)
        model.tie_weights()
        model.set_attn_implementation("eager")
        if hasattr(model, "set_experts_implementation"):
            model.set_experts_implementation("eager")  # torch cannot count grouped matmuls
    return model


@pytest.mark.parametrize("model", DECODERS)
def test_parameters_are_those_of_the_model_that_transformers_builds(model: str) -> None:
    built = built_model(MODELS[model], "meta")

    assert num_parameters(MODELS[model]) == sum(parameter.numel() for parameter in built.parameters())


@pytest.mark.parametrize(
    ("shape", "targets"),
    [
        (MODELS["mistral-7b"], ALL_LINEARS),
        (MODELS["mistral-7b"], ("q_proj", "v_proj")),
        (TINY_GPT2, lora_targets(TINY_GPT2, "attention")),
        (TINY_GPT2, lora_targets(TINY_GPT2, "all")),
    ],
)
def test_lora_parameters_are_those_that_peft_adds(shape: ModelShape, targets: tuple[str, ...]) -> None:
    turned = shape.family == "gpt2"
    config = LoraConfig(r=16, target_modules=list(targets), task_type="CAUSAL_LM", fan_in_fan_out=turned)
    built = get_peft_model(built_model(shape, "meta"), config, low_cpu_mem_usage=True)
    trainable = sum(parameter.numel() for parameter in built.parameters() if parameter.requires_grad)

    assert num_lora_parameters(shape, Lora(rank=16, targets=targets)) == trainable
