"""What the preset `tuned` does to a model on a GPU, beside its dtypes: compiled layers, fused adapters, compiled loss.

Nothing here changes what is computed, or which parameters there are: docs/performance.md has what each part is worth.
"""

from __future__ import annotations

from typing import Any

import torch

from bench_image.architectures import layers_of
from bench_image.contract import RunSpec
from bench_image.presets import compiles, fuses

# 'auto' tries several micro-batches in one process, and the first layer, whose input needs no gradient, is a graph of
# its own. Beyond the limit torch would run the layers uncompiled without a word.
COMPILATIONS = 64


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


def tune(base: Any, spec: RunSpec) -> None:
    """The rest, once the weights are in place; `base` without what PEFT puts around it."""
    if fuses(spec):
        from bench_image.fused import fuse

        fuse(base)
    if compiles(spec):
        compile_loss(base)


def compile_loss(base: Any) -> None:
    """One kernel each way, instead of an fp32 copy of the logits and several passes over it."""
    if hasattr(base, "loss_function"):  # the encoder-decoder model has its loss in its forward pass
        base.loss_function = torch.compile(base.loss_function, dynamic=False)
