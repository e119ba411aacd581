"""Applies a preset to a model on a GPU: compiled layers and loss; `tuned` also fused adapters and no attention masks.

None of it changes what is computed or which parameters exist. docs/internals/performance-tries.md has what each gained.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from bench_image.contract.preset_switches import (
    compiles_as_tuned,
    compiles_whole,
    fuses_head,
    needs_mask,
    uses_compile,
    uses_fused_lora,
)
from bench_image.contract.spec import RunSpec
from bench_image.model.architectures import layers_of
from bench_image.model.encoder_decoder import EncoderDecoder, attend
from bench_image.model.head import Loss, head_loss, next_tokens

if TYPE_CHECKING:
    from bench_image.kernels.fused_lora import FusedLayers

# 'auto' tries several micro-batches in one process, and the first layer, whose input needs no gradient, is a graph of
# its own. Beyond this limit torch runs the layers uncompiled, silently.
COMPILATIONS = 64
MASKS = ("create_causal_mask", "create_sliding_window_causal_mask")  # of transformers' model files


def compile_layers(base: Any, *, within_hooks: bool = False) -> None:
    """Marks each layer for compilation; call it before a strategy shards the layers.

    `within_hooks`: compiles the forward pass alone, so that hooks on the layer gather its weights before and release
    them after.
    """
    from torch._dynamo import config as dynamo

    # DDP would split each layer's graph at its buckets, and fails where the graph holds a checkpoint. The borders of
    # the layers already let communication overlap.
    dynamo.optimize_ddp = False
    for layer in layers_of(base):
        # dynamic=False: a second micro-batch size would make all sizes variables, whose kernels are slower.
        if within_hooks:
            layer.forward = torch.compile(layer.forward, dynamic=False)
        else:
            layer.compile(dynamic=False)


def apply_preset(base: Any, spec: RunSpec) -> tuple[FusedLayers, ...]:
    """Applies the rest of the preset, once the weights have values. `base`: without PEFT's wrapper.

    Returns the groups of fused layers.
    """
    if uses_compile(spec):
        from torch._dynamo import config as dynamo

        dynamo.recompile_limit = COMPILATIONS
    if compiles_as_tuned(spec):
        for module in base.modules():
            if isinstance(module, nn.MultiheadAttention):
                module.forward = functools.partial(attend, module)  # type: ignore[method-assign]
    if fuses_head(spec):
        base.forward = with_fused_head(base, whole=compiles_whole(spec))
    elif uses_compile(spec):
        compile_loss(base)
    if compiles_as_tuned(spec) and not needs_mask(spec):
        leave_masks_out(base, spec.work.seq_length)
    if not uses_fused_lora(spec):
        return ()
    from bench_image.kernels.fused_lora import fuse

    cache_own_operations()
    return fuse(base)


def with_fused_head(base: Any, *, whole: bool = False) -> Callable[..., Loss]:
    """A forward pass of `base` that returns the loss alone. `whole`: what comes before the head is one graph."""
    if isinstance(base, EncoderDecoder):
        decoded = torch.compile(base.decoded, dynamic=False) if whole else base.decoded

        def of_encoder_decoder(input_ids: torch.Tensor, labels: torch.Tensor, **_: Any) -> Loss:
            return head_loss(decoded(input_ids), base.head, labels[:, labels.shape[1] // 2 :])

        return of_encoder_decoder
    body = getattr(base, base.base_model_prefix)

    def of_decoder(input_ids: torch.Tensor, labels: torch.Tensor, **_: Any) -> Loss:
        return head_loss(body(input_ids=input_ids).last_hidden_state, base.lm_head, next_tokens(labels))

    return of_decoder


def cache_own_operations() -> None:
    """Lets torch cache layers with fused adapters as it caches others, so that a warm start need not trace them again.

    torch's key of a graph holds what both passes of an autograd function compute, with the numbers in them.
    """
    from torch._functorch import config as functorch

    functorch.autograd_cache_allow_custom_autograd_functions = True


def compile_loss(base: Any) -> None:
    """Compiles the loss: one kernel each way, instead of several passes over an fp32 copy of the logits."""
    if hasattr(base, "loss_function"):  # the encoder-decoder model has its loss in its forward pass
        base.loss_function = torch.compile(base.loss_function, dynamic=False)


def leave_masks_out(base: Any, seq_length: int) -> None:
    """Replaces transformers' mask functions during forward by ones that return no mask.

    Each sample is one sequence that fills its row, so attention is causal without a mask. transformers would find that
    out by reading from the GPU in each forward pass, and so wait for it. A sliding window shorter than the sequence
    needs its mask: such models are left alone.
    """
    inner = getattr(base, getattr(base, "base_model_prefix", ""), None)
    if inner is None or seq_length >= (getattr(base.config, "sliding_window", None) or sys.maxsize):
        return
    library, forward = sys.modules[type(inner).__module__], base.forward
    names = [name for name in MASKS if hasattr(library, name)]

    # Around the whole forward pass, which may be one compiled graph: torch cannot follow this.
    @functools.wraps(forward)
    def unmasked(*args: Any, **kwargs: Any) -> Any:
        known = {name: getattr(library, name) for name in names}
        # None, as transformers' functions return where attention needs no mask.
        vars(library).update(dict.fromkeys(names, lambda *_args, **_kwargs: None))
        try:
            return forward(*args, **kwargs)
        finally:
            vars(library).update(known)

    base.forward = unmasked
