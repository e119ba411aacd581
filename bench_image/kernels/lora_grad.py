"""Triton kernels of LoRA's gradients: both products with a layer's output gradient in one pass over it.

For layer i of n that read one input: d_i = scale grad_i B_i, the gradient of x A_i^T, and grad_B_i = scale grad_i^T
down_i, where down_i = x A_i^T. A first kernel (`_share`) reads each tile of grad_i once and writes partial sums of both
in fp32; a second (`_add_up`) adds the partial sums in a fixed order, so that results repeat.
"""

# mypy: disable-error-code="import-not-found, no-untyped-def, untyped-decorator"
from __future__ import annotations

from collections.abc import Sequence

import torch
import triton
import triton.language as tl

ROWS, COLUMNS, WARPS, STAGES = 64, 256, 8, 3  # of one tile of grad
PROGRAMS = 264  # two for each multiprocessor of an H200
ADDED, AT_ONCE = 512, 8  # sums that one program of the second kernel makes; partial sums that it reads at once
RANKS = (16, 32, 64)
MOST_MEMBERS = 3


@triton.jit
def _share(
    grad, down, b, parts_down, parts_b, num_rows, width, stride, down_stride, part_size, rows_each,
    rank: tl.constexpr, block: tl.constexpr, columns: tl.constexpr,
):  # fmt: skip
    # This program: columns [tile * columns, ...) of grad, rows [part * rows_each, ...).
    tile, part = tl.program_id(0), tl.program_id(1)
    column = tile * columns + tl.arange(0, columns)
    inside = column < width
    adapter = tl.arange(0, rank)
    b_at = column[:, None] * rank + adapter[None, :]
    mine_b = tl.load(b + b_at, inside[:, None], 0.0)
    total_b = tl.zeros((columns, rank), tl.float32)
    # Each tile of grad is loaded once: its share of grad_B stays in registers, its share of d is written per tile.
    for start in range(part * rows_each, min((part + 1) * rows_each, num_rows), block):
        row = start + tl.arange(0, block)
        there = row < num_rows
        piece = tl.load(
            grad + row[:, None].to(tl.int64) * stride + column[None, :], there[:, None] & inside[None, :], 0.0
        )
        mine_down = tl.load(down + row[:, None] * down_stride + adapter[None, :], there[:, None], 0.0)
        total_b = tl.dot(tl.trans(piece), mine_down, total_b)
        share_at = (tile * num_rows + row)[:, None] * rank + adapter[None, :]
        tl.store(parts_down + share_at, tl.dot(piece, mine_b), there[:, None])
    tl.store(parts_b + part * part_size + b_at, total_b, inside[:, None])


@triton.jit
def _add_up(
    parts_down, parts_b, grad_down, grad_b, tile_1, tile_2, num_tiles, num_parts, down_size, b_size, down_stride, scale,
    members: tl.constexpr, rank: tl.constexpr, added: tl.constexpr, at_once: tl.constexpr,
):  # fmt: skip
    # kind < members: d of that member, over its column tiles; kind == members: grad_B, over the row parts.
    kind = tl.program_id(1)
    number = tl.program_id(0) * added + tl.arange(0, added)
    parts, size, first, last = parts_down, down_size, 0, tile_1
    if kind == members:
        parts, size, first, last = parts_b, b_size, 0, num_parts
    elif kind == 1:
        first, last = tile_1, tile_2
    elif kind == 2:
        first, last = tile_2, num_tiles
    # Sum the partial sums in ascending order, at_once of them at a time.
    total = tl.zeros((added,), tl.float32)
    for start in range(first, last, at_once):
        index = start + tl.arange(0, at_once)
        shares = parts + index[:, None] * size + number[None, :]
        total += tl.sum(tl.load(shares, (index < last)[:, None] & (number < size)[None, :], 0.0), 0)
    total = (total * scale).to(grad_b.dtype.element_ty)
    if kind == members:
        tl.store(grad_b + number, total, number < size)
    else:
        tl.store(grad_down + number // rank * down_stride + kind * rank + number % rank, total, number < size)


def suits(grads: Sequence[torch.Tensor], down: torch.Tensor, b: torch.Tensor) -> bool:
    """Whether the kernels support these matrices: 16-bit, a known rank, few members, row-major, 32-bit offsets."""
    narrow = b.dtype in (torch.bfloat16, torch.float16) and b.shape[1] in RANKS and len(grads) <= MOST_MEMBERS
    shares = down.shape[0] * b.shape[0] // COLUMNS * b.shape[1]
    in_order = b.is_contiguous() and all(matrix.stride(1) == 1 for matrix in (down, *grads))
    return narrow and in_order and shares < 2**31 - 1


def gradients(
    grads: Sequence[torch.Tensor], down: torch.Tensor, b: torch.Tensor, scale: float
) -> tuple[torch.Tensor, torch.Tensor]:
    """d (tokens, n r), side by side as in `down` (tokens, n r), and the gradient of b (sum of widths, r).

    grads: (tokens, width_i) for each of n layers, at most MOST_MEMBERS; r: the adapters' rank.
    """
    # Grid: every column tile of every grad, times row parts, so that about PROGRAMS programs run per grad.
    num_rows, rank, members = down.shape[0], b.shape[1], len(grads)
    tiles = [triton.cdiv(grad.shape[1], COLUMNS) for grad in grads]
    num_parts = min(triton.cdiv(num_rows, ROWS), max(1, PROGRAMS // max(tiles)))
    rows_each = triton.cdiv(triton.cdiv(num_rows, num_parts), ROWS) * ROWS
    num_parts = triton.cdiv(num_rows, rows_each)
    parts_down = torch.empty(sum(tiles), num_rows, rank, device=b.device, dtype=torch.float32)
    parts_b = torch.empty(num_parts, *b.shape, device=b.device, dtype=torch.float32)
    # First kernel, once per layer: partial sums.
    widths = [grad.shape[1] for grad in grads]
    for grad, mine_down, mine_b, shares_down, shares_b in zip(
        grads, torch.split(down, rank, 1), torch.split(b, widths), torch.split(parts_down, tiles),
        torch.split(parts_b, widths, 1), strict=True,
    ):  # fmt: skip
        _share[(shares_down.shape[0], num_parts)](
            grad, mine_down, mine_b, shares_down, shares_b, num_rows, grad.shape[1], grad.stride(0), down.stride(0),
            b.numel(), rows_each, rank=rank, block=ROWS, columns=COLUMNS, num_warps=WARPS, num_stages=STAGES,
        )  # fmt: skip
    # Second kernel, once for all layers: their sums, scaled and cast.
    grad_down, grad_b = torch.empty_like(down, memory_format=torch.contiguous_format), torch.empty_like(b)
    ends = [sum(tiles[: member + 1]) for member in range(MOST_MEMBERS)]
    _add_up[(triton.cdiv(max(num_rows * rank, b.numel()), ADDED), members + 1)](
        parts_down, parts_b, grad_down, grad_b, *ends, num_parts, num_rows * rank, b.numel(), grad_down.stride(0),
        scale, members=members, rank=rank, added=ADDED, at_once=AT_ONCE,
    )  # fmt: skip
    return grad_down, grad_b
