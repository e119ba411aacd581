"""What the preset `tuned` does to a model on a GPU, beside its dtypes: compiled layers, fused adapters, compiled loss,
and no questions about masks.

Nothing here changes what is computed, or which parameters there are: docs/performance.md has what each part is worth.
"""

from __future__ import annotations

import functools
import sys
from typing import TYPE_CHECKING, Any

import torch

from bench_image.contract.presets import uses_compile, uses_fused_lora
from bench_image.contract.spec import RunSpec
from bench_image.model.architectures import layers_of

if TYPE_CHECKING:
    from bench_image.kernels.fused_lora import FusedLayers

# 'auto' tries several micro-batches in one process, and the first layer, whose input needs no gradient, is a graph of
# its own. Beyond the limit torch would run the layers uncompiled without a word.
COMPILATIONS = 64
MASKS = ("create_causal_mask", "create_sliding_window_causal_mask")  # of transformers' model files


def compile_layers(base: Any) -> None:
    """To be called before a strategy shards the layers."""
    from torch._dynamo import config as dynamo

    # DDP would split each layer's graph at its buckets, and cannot where the graph holds a checkpoint; the layers'
    # borders already let communication overlap.
    dynamo.optimize_ddp = False
    dynamo.recompile_limit = COMPILATIONS
    for layer in layers_of(base):
        # A second micro-batch size must not turn every size into a variable: those kernels are slower.
        layer.compile(dynamic=False)


def apply_preset(base: Any, spec: RunSpec) -> tuple[FusedLayers, ...]:
    """The rest, once the weights are in place; `base` without what PEFT puts around it. Returns the fused layers."""
    if uses_compile(spec):
        compile_loss(base)
        leave_masks_out(base, spec.seq_length)
    if not uses_fused_lora(spec):
        return ()
    from bench_image.kernels.fused_lora import fuse

    return fuse(base)


def compile_loss(base: Any) -> None:
    """One kernel each way, instead of an fp32 copy of the logits and several passes over it."""
    if hasattr(base, "loss_function"):  # the encoder-decoder model has its loss in its forward pass
        base.loss_function = torch.compile(base.loss_function, dynamic=False)


def leave_masks_out(base: Any, seq_length: int) -> None:
    """Attention is causal without a mask: every sample is one sequence that fills its row.

    transformers finds that out itself, by asking the GPU in each forward pass whether several sequences are packed into
    a row, and so waits for all that is under way. Not where a sliding window is shorter than the sequence.
    """
    inner = getattr(base, getattr(base, "base_model_prefix", ""), None)
    if inner is None or seq_length >= (getattr(base.config, "sliding_window", None) or sys.maxsize):
        return
    library, forward = sys.modules[type(inner).__module__], inner.forward
    names = [name for name in MASKS if hasattr(library, name)]

    @functools.wraps(forward)
    def unmasked(*args: Any, **kwargs: Any) -> Any:
        known = {name: getattr(library, name) for name in names}
        vars(library).update(dict.fromkeys(names, _no_mask))
        try:
            return forward(*args, **kwargs)
        finally:
            vars(library).update(known)

    inner.forward = unmasked


def _no_mask(*_args: Any, **_kwargs: Any) -> None:
    """What transformers' functions return where attention needs no mask beside being causal."""
