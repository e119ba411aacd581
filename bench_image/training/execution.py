"""Describes how a run executes its work, for the result and the tables: dtypes, kernels, compilation, sharding."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import torch

from bench_image.contract.model_shapes import ConfiguredShape
from bench_image.contract.options import Attention, Optimizer, Precision
from bench_image.contract.pod_io import ALLOCATOR_ENV, NCCL_PREFIX
from bench_image.contract.preset_switches import (
    attends_eagerly,
    clips_within_update,
    compiles_whole,
    fuses_head,
    has_narrow_window,
    makes_product_anew,
    uses_compile,
    uses_cuda_graph,
    uses_fused_lora,
)
from bench_image.contract.spec import RunSpec
from bench_image.contract.work import Preset
from bench_image.model.architectures import layers_of
from bench_image.model.dtypes import model_dtypes
from bench_image.model.head import PADDED_TO

if TYPE_CHECKING:
    from bench_image.training.train_step import TrainStep

NAMES = {torch.float32: "fp32", torch.float16: "fp16", torch.bfloat16: "bf16"}
ATTENTION = {
    None: "sdpa", Attention.SDPA: "sdpa", Attention.FLASH: "sdpa, flash kernel",
    Attention.EAGER: "eager: products and softmax",
}  # fmt: skip
OFF = "off"
KEPT = "kept from forward to backward"


def describe_execution(step: TrainStep) -> dict[str, str]:
    """Name -> value, in plain text. How memory and communication are shared comes from the strategy's step."""
    spec = step.spec
    dtypes = model_dtypes(spec)
    trained = NAMES[dtypes.adapters if spec.work.lora else dtypes.weights]
    together = ", with its communication" if step.group.world_size > 1 else ""
    execution = {
        "weights": NAMES[dtypes.weights],
        "gradients": f"{trained}, averaged in {trained}",
        "master weights": f"none wider than the weights ({trained})",
        "optimizer": _optimizer(spec, step.group.device),
        "optimizer states": trained,
        "autocast": NAMES[dtypes.autocast] if dtypes.autocast else OFF,
        "loss scaling": "dynamic" if dtypes.scaled else OFF,
        "gradient clipping": "global norm of 1, computed in fp32",
        "attention": ATTENTION[Attention.EAGER if attends_eagerly(spec) else spec.work.attention],
        "compile": _compiled(spec) if uses_compile(spec) else OFF,
        "allocator": os.environ.get(ALLOCATOR_ENV) or "torch's own settings",
        "CUDA graph": f"the whole step{together}" if uses_cuda_graph(spec) else OFF,
    }
    if fuses_head(spec):
        padding = -spec.work.shape.vocab_size % PADDED_TO
        padded = f", its product made with {padding} more columns" if padding else ""
        execution["head and loss"] = f"one operation{padded}; the gradient takes the place of the logits"
    if makes_product_anew(spec):
        execution["product within the MLP"] = "made anew for backward"
    layers = layers_of(step.base)
    checkpointed = sum(getattr(layer, "gradient_checkpointing", False) for layer in layers)
    if 0 < checkpointed < len(layers):
        execution["checkpointing"] = f"the first {checkpointed} of {len(layers)} layers"
    if spec.work.precision is Precision.FP8:
        in_bf16 = "adapters, head and attention" if spec.work.lora else "head and attention"
        execution["products"] = f"layers: fp8 (e4m3), a scale for each row; {in_bf16}: bf16"
        if uses_fused_lora(spec):
            execution["weights"] = "frozen ones of the layers: fp8, by rows and by columns; the rest bf16"
    if spec.work.precision is Precision.TF32:
        execution["products"] = "tf32"
    if spec.work.quantisation:
        packed = f"{spec.work.quantisation.kind}{', scales quantised too' if spec.work.quantisation.double else ''}"
        execution["weights"] = f"{packed}, computed in {NAMES[dtypes.weights]}; the rest {NAMES[dtypes.unquantised]}"
        execution["unpacked weights"] = KEPT if step.keeps_unpacked else "made anew for backward"
    if spec.work.lora:
        execution["adapters"] = f"{trained}, fused with the frozen weights" if uses_fused_lora(spec) else trained
    if spec.work.optimizer is not Optimizer.ADAMW_TORCH:
        execution["optimizer states"] = "8-bit with a scale per 256 numbers; fp32 for tensors of less than 4096"
    without = left_out(spec)
    execution |= {"left out of tuned": without} if without else {}
    return execution | step.optimizer_step.describe_sharding(spec) | _nccl_variables(step)


def _nccl_variables(step: TrainStep) -> dict[str, str]:
    """Those that were given, of several ranks; a sweep of links sets its own, by its spec."""
    if step.group.world_size == 1 or step.spec.link_sweep:
        return {}
    return {name: value or "empty" for name, value in os.environ.items() if name.startswith(NCCL_PREFIX)}


def left_out(spec: RunSpec) -> str | None:
    """What of `tuned` a configured model cannot have, with the reason; None: it has all, or another preset."""
    shape = spec.work.shape
    if spec.work.preset is not Preset.TUNED or not isinstance(shape, ConfiguredShape):
        return None
    if not shape.is_known:
        return (
            f"compiled layers, head and loss as one, CUDA graph: a model of type '{shape.kind}' is not known to "
            "work with them"
        )
    reasons = {
        "a mixture of experts counts its tokens": shape.is_mixture,
        "a softmax with a sink is no kernel of torch's": shape.attends_by_itself,
        "a sliding window needs its mask": has_narrow_window(spec),
    }
    why = [reason for reason, holds in reasons.items() if holds]
    return f"CUDA graph: {', and '.join(why)}" if why else None


def _compiled(spec: RunSpec) -> str:
    if compiles_whole(spec):
        return "all layers as one graph"
    return "each layer" if fuses_head(spec) else "each layer, and the loss"


def _optimizer(spec: RunSpec, device: torch.device) -> str:
    if spec.work.optimizer is Optimizer.ADAMW_TORCH:
        if clips_within_update(spec):
            return "AdamW as torch's fused one; all tensors are clipped and updated in one pass"
        return "torch AdamW, fused" if device.type == "cuda" else "torch AdamW"
    return "bitsandbytes AdamW" + (", paged" if spec.work.optimizer is Optimizer.PAGED_ADAMW_8BIT else "")
