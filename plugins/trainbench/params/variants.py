"""The configurations that `config_diagnosis` compares with its baseline: data, not code."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from bench_image.contract.options import Attention, Optimizer, Precision, Recipe

BASELINE = "baseline"
PLAIN_QLORA = "QLoRA plain"
DISK = "data from disk"


class Variant(NamedTuple):
    """The baseline with `changes` to its parameters. `against`: a further variant to compare it with."""

    name: str
    changes: Mapping[str, Any]
    tests: str
    against: str | None = None


def _qlora(name: str, *, double: bool, checkpointing: bool, tests: str) -> Variant:
    changes = {"recipe": Recipe.QLORA, "double_quantisation": double, "gradient_checkpointing": checkpointing}
    return Variant(name, changes, tests, None if name == PLAIN_QLORA else PLAIN_QLORA)


_ALL = (
    Variant("adamw_torch", {"optimizer": Optimizer.ADAMW_TORCH}, "whether the optimizer costs time"),
    Variant("LoRA r8", {"lora_rank": 8}, "whether the adapters cost time"),
    Variant("seq 512", {"seq_length": 512}, "what shorter samples bring"),
    Variant(
        "seq 512 + batch 8",
        {"seq_length": 512, "micro_batch_size": 8},
        "whether more of the shorter samples at once fill the GPU better",
        "seq 512",
    ),
    Variant(
        "batch 2 + accumulation 2",
        {"micro_batch_size": 2, "gradient_accumulation_steps": 2},
        "what half of the guide's batch saves in memory and costs in time, at as many samples a step",
    ),
    Variant("accumulation 4", {"gradient_accumulation_steps": 4}, "what four times the samples a step bring"),
    Variant("fp16", {"precision": Precision.FP16}, "fp16 with loss scaling instead of bf16"),
    Variant("fp32", {"precision": Precision.FP32}, "what bf16 saves"),
    Variant(
        "tf32", {"precision": Precision.TF32}, "fp32 with products of fewer bits, which tensor cores compute", "fp32"
    ),
    Variant("compile", {"compile": True}, "what torch.compile brings"),
    Variant(
        "eager attention", {"attention": Attention.EAGER}, "what the fused attention kernel saves in time and memory"
    ),
    Variant("flash attention", {"attention": Attention.FLASH}, "another fused kernel of torch"),
    Variant(
        "checkpointing off",
        {"gradient_checkpointing": False},
        "what recomputing the forward pass costs, and which memory it saves",
    ),
    Variant(
        DISK,
        {},  # the plan adds the folder, which depends on the cluster
        "what reading ready tokens from shard files costs. In memory the tokens are ready as well, so this is "
        "not what tokenising ahead of time saves: no run tokenises text while it trains",
    ),
    _qlora(PLAIN_QLORA, double=False, checkpointing=False, tests="4-bit weights and nothing else"),
    _qlora("QLoRA + double quantisation", double=True, checkpointing=False, tests="quantised scales"),
    _qlora("QLoRA + checkpointing", double=False, checkpointing=True, tests="recomputed activations"),
    _qlora("QLoRA + both", double=True, checkpointing=True, tests="double quantisation and checkpointing together"),
)
VARIANTS: Mapping[str, Variant] = {variant.name: variant for variant in _ALL}
