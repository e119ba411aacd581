"""The configuration of a known model and recipe that needs least memory, by which GPUs are chosen."""

from __future__ import annotations

from typing import Any

from bench_image.contract.flops import lora_targets
from bench_image.contract.model_shapes import MODELS
from bench_image.contract.options import Optimizer, Recipe
from bench_image.contract.spec import Identity, RunSpec
from bench_image.contract.work import Lora, Preset, Quantisation, Work

SIZED = (
    "mistral-7b",
    "llama2-7b",
    "llama2-13b",
    "llama2-70b",
    "yi-34b",
    "mixtral-8x7b",
    "gpt2",
    "gpt2-medium",
    "gpt2-large",
)


def least(model: str, recipe: Recipe) -> RunSpec:
    """One sample of up to 2,048 tokens, checkpointing, 8-bit AdamW, fused and compiled."""
    fields: dict[str, Any] = {
        "model": model, "recipe": recipe,
        "preset": Preset.TUNED, "micro_batch_size": 1, "seq_length": min(2048, MODELS[model].max_positions),
        "gradient_checkpointing": True, "optimizer": Optimizer.ADAMW_8BIT,
    }  # fmt: skip
    if recipe is not Recipe.FULL:
        fields["lora"] = Lora(targets=lora_targets(MODELS[model], "all"))
    if recipe is Recipe.QLORA:
        fields["quantisation"] = Quantisation()
    return RunSpec(
        identity=Identity(campaign_id="sizing", run_id="run", group_id="group", node="gpu"), work=Work(**fields)
    )
