"""The configurations that `config_diagnosis` compares with its baseline: data, not code."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from bench_image.contract.frozen import Frozen
from bench_image.contract.options import Attention, Optimizer, Precision, Recipe

BASELINE = "baseline"
PLAIN_QLORA = "QLoRA plain"
DISK = "data from disk"


class Variant(Frozen):
    """The baseline with `changes` to its parameters. `against`: a further variant to compare it with."""

    name: str
    changes: Mapping[str, Any]
    tests: str
    against: str | None = None


def _qlora(name: str, *, double: bool, checkpointing: bool, tests: str) -> Variant:
    changes = {"recipe": Recipe.QLORA, "double_quantisation": double, "gradient_checkpointing": checkpointing}
    return Variant(name=name, changes=changes, tests=tests, against=None if name == PLAIN_QLORA else PLAIN_QLORA)


_ALL = (
    Variant(name="adamw_torch", changes={"optimizer": Optimizer.ADAMW_TORCH}, tests="whether the optimizer costs time"),
    Variant(name="LoRA r8", changes={"lora_rank": 8}, tests="whether the adapters cost time"),
    Variant(name="seq 512", changes={"seq_length": 512}, tests="what shorter samples bring"),
    Variant(
        name="seq 512 + batch 8",
        changes={"seq_length": 512, "micro_batch_size": 8},
        tests="whether more of the shorter samples at once fill the GPU better",
        against="seq 512",
    ),
    Variant(name="fp16", changes={"precision": Precision.FP16}, tests="fp16 with loss scaling instead of bf16"),
    Variant(name="fp32", changes={"precision": Precision.FP32}, tests="what bf16 saves"),
    Variant(
        name="tf32",
        changes={"precision": Precision.TF32},
        tests="fp32 with products of fewer bits, which tensor cores compute",
        against="fp32",
    ),
    Variant(name="compile", changes={"compile": True}, tests="what torch.compile brings"),
    Variant(
        name="eager attention",
        changes={"attention": Attention.EAGER},
        tests="what the fused attention kernel saves in time and memory",
    ),
    Variant(name="flash attention", changes={"attention": Attention.FLASH}, tests="another fused kernel of torch"),
    Variant(
        name="checkpointing off",
        changes={"gradient_checkpointing": False},
        tests="what recomputing the forward pass costs, and which memory it saves",
    ),
    Variant(
        name=DISK,
        changes={},  # the plan adds the folder, which depends on the cluster
        tests="what reading ready tokens from shard files costs. In memory the tokens are ready as well, so this is "
        "not what tokenising ahead of time saves: no run tokenises text while it trains",
    ),
    _qlora(PLAIN_QLORA, double=False, checkpointing=False, tests="4-bit weights and nothing else"),
    _qlora("QLoRA + double quantisation", double=True, checkpointing=False, tests="quantised scales"),
    _qlora("QLoRA + checkpointing", double=False, checkpointing=True, tests="recomputed activations"),
    _qlora("QLoRA + both", double=True, checkpointing=True, tests="double quantisation and checkpointing together"),
)
VARIANTS: Mapping[str, Variant] = {variant.name: variant for variant in _ALL}
