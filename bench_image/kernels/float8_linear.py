"""Linear layers whose three products have float8 operands (e4m3), each scaled by its rows along the summed dimension.

y = x W^T, grad_x = grad W and grad_W = grad^T x: a product sums over the columns of its left and the rows of its right
operand, so every matrix is needed with a scale for each row and, transposed, with a scale for each column. Scales are
powers of two. For backward only the 8-bit input is saved, transposed. Products accumulate in the tensor cores' own
precision and are written in bf16; see torchao's recipe `rowwise` (arXiv 2209.05433 for the format).

Shapes: x (..., in); W (out, in); grad, y (..., out). in, out and the number of tokens must be multiples of 16.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

MAX_E4M3, LEAST = 448.0, 1e-12


class Float8Linear(nn.Linear):
    """A torch.nn.Linear with 8-bit products; its weight stays as it is, and so does the optimizer's work."""

    def forward(self, input: Tensor) -> Tensor:  # torch's name
        out: Tensor = Float8Product.apply(input, self.weight)  # type: ignore[no-untyped-call]
        return out if self.bias is None else out + self.bias


class Float8Product(torch.autograd.Function):
    """x W^T and its gradients."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor) -> Tensor:
        flat = x.reshape(-1, x.shape[-1])
        rows, row_scales, columns, column_scales = cast_both(flat)
        weight_rows, weight_scales = cast_rows(weight)
        ctx.save_for_backward(columns, column_scales, weight)
        out = product(rows, row_scales, weight_rows, weight_scales, x.dtype)
        return out.view(*x.shape[:-1], weight.shape[0])

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor | None]:
        x_columns, x_scales, weight = ctx.saved_tensors
        rows, row_scales, columns, column_scales = cast_both(grad.reshape(-1, grad.shape[-1]))
        weight_columns, weight_scales = cast_columns(weight)
        grad_x = product(rows, row_scales, weight_columns, weight_scales, grad.dtype)
        if not ctx.needs_input_grad[1]:  # frozen, below an adapter that is not fused
            return grad_x.view(*grad.shape[:-1], weight.shape[1]), None
        grad_weight = product(columns, column_scales, x_columns, x_scales, weight.dtype)
        return grad_x.view(*grad.shape[:-1], weight.shape[1]), grad_weight


def product(left: Tensor, left_scales: Tensor, right: Tensor, right_scales: Tensor, dtype: torch.dtype) -> Tensor:
    """left right^T, (m, n) in `dtype`, of 8-bit left (m, k) and right (n, k) with scales (m, 1) and (n, 1).

    On a GPU it adds up in the tensor cores' own precision, of about 14 bits: losses are the same as with fp32, and a
    product in fp32 is slower (docs/internals/performance.md).
    """
    if left.is_cuda:
        return torch._scaled_mm(
            left, right.t(), scale_a=left_scales, scale_b=right_scales.t(), out_dtype=dtype, use_fast_accum=True
        )
    return ((left.float() * left_scales) @ (right.float() * right_scales).t()).to(dtype)


@torch.library.custom_op("trainbench::cast_both", mutates_args=())
def cast_both(matrix: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Cast by rows and by columns: (m, k), (m, 1), (k, m), (k, 1). Layers that read one input share one cast."""
    by_rows, row_scales, by_columns, column_scales = _cast(matrix, by_row=True, by_column=True)
    return by_rows, row_scales, by_columns, column_scales


@torch.library.custom_op("trainbench::cast_rows", mutates_args=())
def cast_rows(matrix: Tensor) -> tuple[Tensor, Tensor]:
    """8-bit numbers (m, k) with a scale for each row, (m, 1)."""
    by_rows, scales = _cast(matrix, by_row=True, by_column=False)
    return by_rows, scales


@torch.library.custom_op("trainbench::cast_columns", mutates_args=())
def cast_columns(matrix: Tensor) -> tuple[Tensor, Tensor]:
    """8-bit numbers transposed, (k, m), with a scale for each column, (k, 1).

    An operation of its own: else the compiler would keep a weight's cast from forward to backward.
    """
    by_columns, scales = _cast(matrix, by_row=False, by_column=True)
    return by_columns, scales


@cast_both.register_fake
def _(matrix: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    return *_like(matrix, *matrix.shape), *_like(matrix, *reversed(matrix.shape))


@cast_rows.register_fake
def _(matrix: Tensor) -> tuple[Tensor, Tensor]:
    return _like(matrix, *matrix.shape)


@cast_columns.register_fake
def _(matrix: Tensor) -> tuple[Tensor, Tensor]:
    return _like(matrix, *reversed(matrix.shape))


def _like(matrix: Tensor, num_rows: int, width: int) -> tuple[Tensor, Tensor]:
    numbers = matrix.new_empty(num_rows, width, dtype=torch.float8_e4m3fn)
    return numbers, matrix.new_empty(num_rows, 1, dtype=torch.float32)


def _cast(matrix: Tensor, *, by_row: bool, by_column: bool) -> list[Tensor]:
    if not matrix.is_cuda:
        turned = ([matrix] if by_row else []) + ([matrix.t()] if by_column else [])
        return [tensor for each in turned for tensor in _cast_on_cpu(each)]
    from bench_image.kernels import float8_casts

    # A row of the matrix must be dense; rows may lie apart.
    dense = matrix if matrix.stride(1) == 1 else matrix.contiguous()
    return float8_casts.cast(dense, by_row, by_column)


def _cast_on_cpu(matrix: Tensor) -> tuple[Tensor, Tensor]:
    """Rows with their scales, as the kernels cast them."""
    largest = matrix.float().abs().amax(1, keepdim=True).clamp(min=LEAST)
    scale = torch.exp2(torch.floor(torch.log2(MAX_E4M3 / largest)))
    return (matrix.float() * scale).to(torch.float8_e4m3fn).contiguous(), 1 / scale
