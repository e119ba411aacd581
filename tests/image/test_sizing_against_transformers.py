"""The formulas of `sizing` against what transformers builds and what torch counts."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from peft import LoraConfig, get_peft_model
from torch.utils.flop_counter import FlopCounterMode
from transformers import AutoModelForCausalLM, LlamaConfig, MistralConfig

from bench_image.contract import Lora, Recipe
from bench_image.sizing import MODELS, DecoderShape, flops_per_token, num_lora_parameters, num_parameters

ALL_LINEARS = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")
TOKENS = 64


def transformers_model(shape: DecoderShape, device: str) -> Any:
    config = (MistralConfig if shape.family == "mistral" else LlamaConfig)(
        vocab_size=shape.vocab_size,
        hidden_size=shape.hidden_size,
        intermediate_size=shape.intermediate_size,
        num_hidden_layers=shape.num_layers,
        num_attention_heads=shape.num_heads,
        num_key_value_heads=shape.num_kv_heads,
        tie_word_embeddings=shape.tie_embeddings,
        use_cache=False,
    )
    with torch.device(device):
        return AutoModelForCausalLM.from_config(config, attn_implementation="eager")  # type: ignore[no-untyped-call]


@pytest.mark.parametrize("model", list(MODELS))
def test_parameters_are_those_of_the_model_that_transformers_builds(model: str) -> None:
    built = transformers_model(MODELS[model], "meta")

    assert num_parameters(MODELS[model]) == sum(parameter.numel() for parameter in built.parameters())


@pytest.mark.parametrize("targets", [ALL_LINEARS, ("q_proj", "v_proj")])
def test_lora_parameters_are_those_that_peft_adds(targets: tuple[str, ...]) -> None:
    config = LoraConfig(r=16, target_modules=list(targets), task_type="CAUSAL_LM")
    built = get_peft_model(transformers_model(MODELS["mistral-7b"], "meta"), config, low_cpu_mem_usage=True)
    trainable = sum(parameter.numel() for parameter in built.parameters() if parameter.requires_grad)

    assert num_lora_parameters(MODELS["mistral-7b"], Lora(rank=16, targets=targets)) == trainable


def test_flops_of_full_training_are_those_that_torch_counts() -> None:
    """Eager attention, because torch cannot count the fused kernel of the CPU; it computes the masked half as well."""
    shape = MODELS["tiny"]
    model = transformers_model(shape, "cpu").train()
    ids = torch.randint(shape.vocab_size, (1, TOKENS))
    with FlopCounterMode(display=False) as counter:
        model(input_ids=ids, labels=ids).loss.backward()

    assert counter.get_total_flops() == TOKENS * flops_per_token(shape, Recipe.FULL, TOKENS, None, False).model
