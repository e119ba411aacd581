"""The head and the loss of a model as one operation, which keeps one tensor of logits and passes twice over it.

The product is made with the vocabulary padded to a multiple of PADDED_TO: no tensor core reads 50,257 columns well. The
loss leaves the padding out. The logits stay in the run's precision and are read as fp32, as transformers does.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional

from bench_image.kernels import cross_entropy

PADDED_TO = 64  # 128 bytes in 16 bits
IGNORED = cross_entropy.IGNORED


class Loss(NamedTuple):
    """What a model returns whose head and loss are one."""

    loss: Tensor


class HeadLoss(torch.autograd.Function):
    """Mean cross-entropy of x W^T + b over the labels that are not IGNORED.

    x (tokens, hidden); W (vocabulary, hidden); b (vocabulary,) or None; labels (tokens,). All floats of one dtype.
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None, labels: Tensor) -> Tensor:
        vocabulary = weight.shape[0]
        padding = -vocabulary % PADDED_TO
        weight = functional.pad(weight, (0, 0, 0, padding)) if padding else weight
        logits = functional.linear(x, weight, functional.pad(bias, (0, padding)) if bias is not None else None)
        losses, normaliser = cross_entropy.forward(logits, labels, vocabulary)
        count = (labels != IGNORED).sum()
        ctx.save_for_backward(x, weight, labels, logits, normaliser, count)
        ctx.vocabulary = vocabulary
        return losses.sum() / count

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Any, ...]:
        x, weight, labels, logits, normaliser, count = ctx.saved_tensors
        wants_x, wants_weight, wants_bias, _ = ctx.needs_input_grad
        cross_entropy.backward(logits, labels, normaliser, grads[0] / count, ctx.vocabulary)
        return (
            logits @ weight if wants_x else None,
            (logits.t() @ x)[: ctx.vocabulary] if wants_weight else None,
            logits.sum(0)[: ctx.vocabulary] if wants_bias else None,
            None,
        )


def head_loss(hidden: Tensor, head: Any, labels: Tensor) -> Loss:
    """The loss of `head` over hidden (batch, seq, hidden) with labels (batch, seq); under autocast in its dtype."""
    device = hidden.device.type
    dtype = torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else head.weight.dtype
    bias = head.bias if head.bias is None else head.bias.to(dtype)
    apply: Any = HeadLoss.apply
    with torch.autocast(device, enabled=False):
        return Loss(apply(hidden.flatten(0, 1).to(dtype), head.weight.to(dtype), bias, labels.flatten()))


def next_tokens(ids: Tensor) -> Tensor:
    """The label of each position of a decoder: the token after it; of the last one IGNORED."""
    return functional.pad(ids[:, 1:], (0, 1), value=IGNORED)
