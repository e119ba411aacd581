"""Cross-entropy of wide logits in two passes: one reads them, one puts their gradient in their place.

For a row x with label y: n = log sum exp x, loss = n - x_y, gradient = exp(x - n) - [column = y]. Columns from the
vocabulary's size on are padding and do not count; rows whose label is IGNORED have loss and gradient 0.
"""

from __future__ import annotations

import torch
from torch import Tensor

IGNORED = -100


def forward(logits: Tensor, labels: Tensor, vocabulary: int) -> tuple[Tensor, Tensor]:
    """Loss and n of each row, in fp32. logits (rows, padded vocabulary), labels (rows,)."""
    if logits.is_cuda:
        from bench_image.kernels import cross_entropy_gpu

        return cross_entropy_gpu.forward(logits, labels, vocabulary)
    known = logits[:, :vocabulary].float()
    normaliser = known.logsumexp(1)
    losses = normaliser - known.gather(1, labels.clamp(min=0)[:, None])[:, 0]
    return losses.masked_fill(labels == IGNORED, 0), normaliser


def backward(logits: Tensor, labels: Tensor, normaliser: Tensor, scale: Tensor, vocabulary: int) -> None:
    """Replaces the logits by the gradient of `scale` times the sum of the losses."""
    if logits.is_cuda:
        from bench_image.kernels import cross_entropy_gpu

        return cross_entropy_gpu.backward(logits, labels, normaliser, scale, vocabulary)
    gradient = (logits.float() - normaliser[:, None]).exp()
    gradient[torch.arange(len(labels)), labels.clamp(min=0)] -= 1
    gradient[:, vocabulary:] = 0
    logits.copy_(gradient.masked_fill((labels == IGNORED)[:, None], 0) * scale)
    return None
