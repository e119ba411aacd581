"""Triton kernels that cast matrices to float8 (e4m3), with one scale for each row, for each column, or both.

`cast`: a first kernel reads the matrix and finds the largest magnitude of each row and column; a second reads it again,
scales, casts, and writes the rows and the transposed columns. So both forms cost two readings, whatever consumes them.
`cast_rows`: one scale for each row of matrices that lie side by side. One program casts one row: it reads it twice, the
second time out of the cache, so that memory sees one reading.
"""

# mypy: disable-error-code="import-not-found, no-untyped-def, untyped-decorator"
from __future__ import annotations

from collections.abc import Sequence

import torch
import triton
import triton.language as tl

# Rows and columns of a tile, and warps: the fastest of 17 for matrices of 16,384 x 4,096 and x 14,336 on an H200.
TALL, WIDE, CAST = (256, 64, 4), (64, 128, 4), (64, 256, 4)
ROW_BLOCK, ROW_WARPS = 4096, 8  # numbers of a row that a program of `cast_rows` reads at once
MOST_MEMBERS = 3
MAX_E4M3 = tl.constexpr(448.0)
LEAST = tl.constexpr(1e-12)  # a row of zeros has this magnitude
EXPONENT = tl.constexpr(0x7F800000)  # the bits of an fp32 number's exponent


@triton.jit
def _load_tile(matrix, row, column, num_rows, width, stride):
    inside = (row < num_rows)[:, None] & (column < width)[None, :]
    return tl.load(matrix + row[:, None].to(tl.int64) * stride + column[None, :], inside, 0.0).to(tl.float32)


@triton.jit
def _magnitudes(
    matrix, of_rows, of_columns, num_rows, width, stride, by_row: tl.constexpr, by_column: tl.constexpr,
    rows: tl.constexpr, columns: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0) * rows + tl.arange(0, rows)
    column = tl.program_id(1) * columns + tl.arange(0, columns)
    tile = tl.abs(_load_tile(matrix, row, column, num_rows, width, stride))
    if by_row:
        tl.atomic_max(of_rows + row, tl.max(tile, 1), row < num_rows, sem="relaxed")
    if by_column:
        tl.atomic_max(of_columns + column, tl.max(tile, 0), column < width, sem="relaxed")


@triton.jit
def _power_of_two(largest):
    # The largest power of two by which the numbers still fit: then scaling rounds nothing.
    scale = MAX_E4M3 / tl.maximum(largest, LEAST)
    return (scale.to(tl.int32, bitcast=True) & EXPONENT).to(tl.float32, bitcast=True)


@triton.jit
def _cast(
    matrix, of_rows, of_columns, by_rows, by_columns, row_scales, column_scales, num_rows, width, stride,
    by_row: tl.constexpr, by_column: tl.constexpr, rows: tl.constexpr, columns: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0) * rows + tl.arange(0, rows)
    column = tl.program_id(1) * columns + tl.arange(0, columns)
    tile = _load_tile(matrix, row, column, num_rows, width, stride)
    inside = (row < num_rows)[:, None] & (column < width)[None, :]
    if by_row:
        scale = _power_of_two(tl.load(of_rows + row, row < num_rows, 1.0))
        at = row[:, None].to(tl.int64) * width + column[None, :]
        tl.store(by_rows + at, (tile * scale[:, None]).to(tl.float8e4nv), inside)
        if tl.program_id(1) == 0:
            tl.store(row_scales + row, 1.0 / scale, row < num_rows)
    if by_column:
        scale = _power_of_two(tl.load(of_columns + column, column < width, 1.0))
        at = column[:, None].to(tl.int64) * num_rows + row[None, :]
        turned = tl.trans((tile * scale[None, :]).to(tl.float8e4nv))
        tl.store(by_columns + at, turned, (column < width)[:, None] & (row < num_rows)[None, :])
        if tl.program_id(0) == 0:
            tl.store(column_scales + column, 1.0 / scale, column < width)


def cast(matrix: torch.Tensor, by_row: bool, by_column: bool) -> list[torch.Tensor]:
    """The matrix (rows, width) by rows, (rows, width) with scales (rows, 1); then by columns, (width, rows) with scales
    (width, 1): those of the two that are wanted. Number = 8-bit number x scale. Its rows may lie apart.
    """
    num_rows, width = matrix.shape
    largest = torch.zeros(num_rows + width, device=matrix.device, dtype=torch.float32)
    of_rows, of_columns = largest[:num_rows], largest[num_rows:]
    made = []
    for wanted, shape in ((by_row, (num_rows, width)), (by_column, (width, num_rows))):
        shape = shape if wanted else (0, 0)
        made.append(matrix.new_empty(shape, dtype=torch.float8_e4m3fn))
        made.append(matrix.new_empty((shape[0], 1), dtype=torch.float32))
    by_rows, row_scales, by_columns, column_scales = made
    # Magnitudes: tall tiles where columns are wanted, for fewer atomic operations on each column.
    grid, settings = _launch(TALL if by_column else WIDE, num_rows, width)
    forms = {"by_row": by_row, "by_column": by_column}
    _magnitudes[grid](matrix, of_rows, of_columns, num_rows, width, matrix.stride(0), **forms, **settings)
    grid, settings = _launch(CAST, num_rows, width)
    _cast[grid](
        matrix, of_rows, of_columns, by_rows, by_columns, row_scales, column_scales, num_rows, width, matrix.stride(0),
        **forms, **settings,
    )  # fmt: skip
    return [tensor for tensor in made if tensor.numel()]


def _launch(tile: tuple[int, int, int], num_rows: int, width: int) -> tuple[tuple[int, int], dict[str, int]]:
    """The grid of programs and a kernel's settings, for tiles of (rows, columns, warps)."""
    rows, columns, warps = tile
    grid = (triton.cdiv(num_rows, rows), triton.cdiv(width, columns))
    return grid, {"rows": rows, "columns": columns, "num_warps": warps}


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
    _cast_rows[(num_rows,)](
        *matrices, *[matrices[0]] * unused, out, scales, *widths, *[0] * unused,
        *(matrix.stride(0) for matrix in matrices), *[0] * unused,
        members=len(matrices), block=ROW_BLOCK, num_warps=ROW_WARPS,
    )  # fmt: skip
    return out, scales
