"""A Triton kernel that casts the rows of matrices that lie side by side to float8 (e4m3), with one scale for each row.

One program casts one row: it reads it twice, the second time out of the cache, so that memory sees one reading.
"""

# mypy: disable-error-code="import-not-found, no-untyped-def, untyped-decorator"
from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import triton
import triton.language as tl

from bench_image.kernels.float8_casts import _power_of_two

BLOCK, WARPS = 4096, 8  # numbers that a program reads at once
MOST_MEMBERS = 3


@triton.jit
def _largest_of(numbers, width, block: tl.constexpr):
    largest = tl.zeros((block,), tl.float32)
    for start in range(0, width, block):
        at = start + tl.arange(0, block)
        largest = tl.maximum(largest, tl.abs(tl.load(numbers + at, at < width, 0.0).to(tl.float32)))
    return tl.max(largest, 0)


@triton.jit
def _cast_row(numbers, out, width, scale, block: tl.constexpr):
    for start in range(0, width, block):
        at = start + tl.arange(0, block)
        wide = tl.load(numbers + at, at < width, 0.0).to(tl.float32)
        tl.store(out + at, (wide * scale).to(tl.float8e4nv), at < width)


@triton.jit
def _cast_rows(
    first, second, third, out, scales, width_1, width_2, width_3, stride_1, stride_2, stride_3,
    members: tl.constexpr, block: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0).to(tl.int64)
    first += row * stride_1
    second += row * stride_2
    third += row * stride_3
    largest = _largest_of(first, width_1, block)
    if members > 1:
        largest = tl.maximum(largest, _largest_of(second, width_2, block))
    if members > 2:
        largest = tl.maximum(largest, _largest_of(third, width_3, block))
    scale = _power_of_two(largest)
    tl.store(scales + row, 1.0 / scale)
    out += row * (width_1 + width_2 + width_3)
    _cast_row(first, out, width_1, scale, block)
    if members > 1:
        _cast_row(second, out + width_1, width_2, scale, block)
    if members > 2:
        _cast_row(third, out + width_1 + width_2, width_3, scale, block)


def cast_rows(matrices: Sequence[torch.Tensor]) -> tuple[torch.Tensor, torch.Tensor]:
    """8-bit numbers (rows, sum of widths) and scales (rows, 1) of up to MOST_MEMBERS matrices (rows, width_i).

    The numbers of a row of a matrix must be adjacent; rows may lie apart. Number = 8-bit number x scale.
    """
    num_rows, unused = matrices[0].shape[0], MOST_MEMBERS - len(matrices)
    widths = [matrix.shape[1] for matrix in matrices]
    out = matrices[0].new_empty(num_rows, sum(widths), dtype=torch.float8_e4m3fn)
    scales = matrices[0].new_empty(num_rows, 1, dtype=torch.float32)
    kernel: Any = _cast_rows
    kernel[(num_rows,)](
        *matrices, *[matrices[0]] * unused, out, scales, *widths, *[0] * unused,
        *(matrix.stride(0) for matrix in matrices), *[0] * unused,
        members=len(matrices), block=BLOCK, num_warps=WARPS,
    )  # fmt: skip
    return out, scales
