"""Triton kernels of cross_entropy.py, each at the speed of memory."""

# mypy: disable-error-code="import-not-found, no-untyped-def, untyped-decorator"
from __future__ import annotations

import torch
import triton
import triton.language as tl

COLUMNS, WARPS = 2048, 4  # of a row at once; the fastest of 12 pairs on an H200


@triton.jit
def _losses(
    logits, labels, losses, normalisers, width: tl.constexpr, vocabulary: tl.constexpr, columns: tl.constexpr
):  # fmt: skip
    # One program reads one row: the largest logit so far, and the sum of exponentials below it.
    row = tl.program_id(0).to(tl.int64)
    column = tl.arange(0, columns)
    mine = logits + row * width
    top, total = float("-inf"), 0.0
    for start in range(0, width, columns):
        # The load ends at `width`, a multiple of 16 by which it is wide; the vocabulary may be any number.
        x = tl.load(mine + start + column, start + column < width, float("-inf")).to(tl.float32)
        x = tl.where(start + column < vocabulary, x, float("-inf"))
        above = tl.maximum(top, tl.max(x))
        total = total * tl.exp(top - above) + tl.sum(tl.exp(x - above))
        top = above
    normaliser = top + tl.log(total)
    label = tl.load(labels + row)
    own = tl.load(mine + tl.maximum(label, 0)).to(tl.float32)
    tl.store(losses + row, tl.where(label < 0, 0.0, normaliser - own))
    tl.store(normalisers + row, normaliser)


@triton.jit
def _gradients(
    logits, labels, normalisers, scale, width: tl.constexpr, vocabulary: tl.constexpr, columns: tl.constexpr
):  # fmt: skip
    # One program replaces `columns` logits of a row by their gradients.
    row = tl.program_id(0).to(tl.int64)
    column = tl.program_id(1) * columns + tl.arange(0, columns)
    label = tl.load(labels + row)
    factor = tl.where(label < 0, 0.0, tl.load(scale))
    at = logits + row * width + column
    share = tl.exp(tl.load(at, column < width, 0.0).to(tl.float32) - tl.load(normalisers + row))
    gradient = tl.where(column < vocabulary, (share - tl.where(column == label, 1.0, 0.0)) * factor, 0.0)
    tl.store(at, gradient.to(logits.dtype.element_ty), column < width)


def forward(logits: torch.Tensor, labels: torch.Tensor, vocabulary: int) -> tuple[torch.Tensor, torch.Tensor]:
    """See cross_entropy.forward; logits contiguous."""
    rows, width = logits.shape
    losses, normalisers = (torch.empty(rows, device=logits.device, dtype=torch.float32) for _ in range(2))
    _losses[(rows,)](
        logits, labels, losses, normalisers, width=width, vocabulary=vocabulary, columns=COLUMNS, num_warps=WARPS
    )
    return losses, normalisers


def backward(
    logits: torch.Tensor, labels: torch.Tensor, normalisers: torch.Tensor, scale: torch.Tensor, vocabulary: int
) -> None:
    """See cross_entropy.backward; logits contiguous."""
    rows, width = logits.shape
    grid = (rows, triton.cdiv(width, COLUMNS))
    _gradients[grid](
        logits, labels, normalisers, scale, width=width, vocabulary=vocabulary, columns=COLUMNS, num_warps=WARPS
    )
