"""LoRA linear layers that read the same input, as one operation, whose frozen weights are multiplied in 8 bits.

y_i = x W_i^T + s (x A_i^T) B_i^T: the first product has 8-bit operands (e4m3, a scale for each row), the adapters' stay
in the run's dtype and are added onto it. A frozen weight is cast once, in both forms that the products need: W by its
rows for y, W^T by its rows for the input's gradient, because 8-bit products exist as (rows) x (rows)^T only. Two forms
of one byte take the memory of the 16-bit weight, which is dropped. The gradients of layers that read one input are cast
side by side with one scale for each token, so that one product adds them up: grad_x = sum of grad_i W_i.

Shapes: x (..., in); W = all W_i stacked (sum of rows, in); A (n r, in); B (sum of rows, r); y_i (..., rows_i).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from bench_image.kernels.float8_linear import cast_columns, cast_rows, product
from bench_image.kernels.lora_linear import adapter_gradients, columns_of


class FrozenWeights(NamedTuple):
    """The weights of layers that read one input, stacked: (out, in) with scales (out, 1); (in, out) with (in, 1)."""

    by_rows: Tensor
    row_scales: Tensor
    by_columns: Tensor
    column_scales: Tensor


@torch.no_grad()
def cast_weights(weights: Sequence[Tensor]) -> FrozenWeights:
    """Both forms of the weights (rows_i, in)."""
    stacked = torch.cat(list(weights)) if len(weights) > 1 else weights[0].detach()
    return FrozenWeights(*cast_rows(stacked), *cast_columns(stacked))


class Float8LoraLinear(torch.autograd.Function):
    """The outputs of all layers, as views of one matrix. Without adapters only the gradients need the weights."""

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, a: Tensor | None, b: Tensor | None, scale: float, rows: tuple[int, ...],
        by_rows: Tensor, row_scales: Tensor, by_columns: Tensor, column_scales: Tensor,
    ) -> tuple[Tensor, ...]:  # fmt: skip
        out, down = float8_lora(x, by_rows, row_scales, list(rows), a, b, scale)
        ctx.rows, ctx.scale, ctx.adapted = rows, scale, a is not None
        ctx.save_for_backward(by_columns, column_scales, *((x, down, a, b) if a is not None else ()))
        return tuple(torch.split(out, list(rows), -1))

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Any, ...]:
        saved = ctx.saved_tensors  # read once: under checkpointing, reading runs the layer again
        by_columns, column_scales = saved[:2]
        if not ctx.adapted:
            return float8_frozen_backward(list(grads), by_columns, column_scales), *[None] * 8
        x, down, a, b = saved[2:]
        wants_x = ctx.needs_input_grad[0]
        grad_x, grad_a, grad_b = float8_lora_backward(
            list(grads), x, down, by_columns, column_scales, list(ctx.rows), a, b, ctx.scale, wants_x
        )
        return grad_x if wants_x else None, grad_a, grad_b, *[None] * 6


@torch.library.custom_op("trainbench::float8_lora", mutates_args=())
def float8_lora(
    x: Tensor, by_rows: Tensor, row_scales: Tensor, rows: list[int], a: Tensor | None, b: Tensor | None, scale: float
) -> tuple[Tensor, Tensor]:
    """[x W_i^T + scale (x A_i^T) B_i^T for each i], side by side (..., sum of rows); and x A^T (..., n r)."""
    flat = x.reshape(-1, x.shape[-1])
    out = product(*_cast_side_by_side([flat]), by_rows, row_scales, x.dtype)
    down = flat.new_empty(flat.shape[0], 0) if a is None else flat @ a.t()
    if b is not None:
        for mine, b_i, down_i in zip(torch.split(out, rows, 1), torch.split(b, rows), columns_of(down, b), strict=True):
            torch.addmm(mine, down_i, b_i.t(), alpha=scale, out=mine)
    return out.view(*x.shape[:-1], -1), down.view(*x.shape[:-1], -1)


@float8_lora.register_fake
def _(
    x: Tensor, by_rows: Tensor, row_scales: Tensor, rows: list[int], a: Tensor | None, b: Tensor | None, scale: float
) -> tuple[Tensor, Tensor]:
    adapters = 0 if a is None else a.shape[0]
    return x.new_empty(*x.shape[:-1], sum(rows)), x.new_empty(*x.shape[:-1], adapters)


@torch.library.custom_op("trainbench::float8_lora_backward", mutates_args=())
def float8_lora_backward(
    grads: list[Tensor], x: Tensor, down: Tensor, by_columns: Tensor, column_scales: Tensor, rows: list[int],
    a: Tensor, b: Tensor, scale: float, wants_x: bool,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    """The gradients of x (empty unless wanted), a and b.

    grad_x = sum of grad_i W_i + d_i A_i; grad_A_i = d_i^T x; grad_B_i = scale grad_i^T (x A_i^T); d_i = scale grad_i
    B_i. Only the products with W are in 8 bits.
    """
    flat_x, flat_down = x.reshape(-1, x.shape[-1]), down.reshape(-1, a.shape[0])
    flat_grads = [grad.reshape(-1, grad.shape[-1]) for grad in grads]
    grad_down, grad_b = adapter_gradients(flat_grads, flat_down, rows, b, scale)
    grad_a = grad_down.t() @ flat_x
    if not wants_x:  # the first layer's input
        return x.new_empty(0), grad_a, grad_b
    grad_x = _input_grad(flat_grads, by_columns, column_scales)
    torch.addmm(grad_x, grad_down, a, out=grad_x)
    return grad_x.view(x.shape), grad_a, grad_b


@float8_lora_backward.register_fake
def _(
    grads: list[Tensor], x: Tensor, down: Tensor, by_columns: Tensor, column_scales: Tensor, rows: list[int],
    a: Tensor, b: Tensor, scale: float, wants_x: bool,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    return x.new_empty(x.shape if wants_x else 0), a.new_empty(a.shape), b.new_empty(b.shape)


@torch.library.custom_op("trainbench::float8_frozen_backward", mutates_args=())
def float8_frozen_backward(grads: list[Tensor], by_columns: Tensor, column_scales: Tensor) -> Tensor:
    """Sum of grad_i W_i (..., in): the input's gradient of layers without adapters."""
    grad_x = _input_grad([grad.reshape(-1, grad.shape[-1]) for grad in grads], by_columns, column_scales)
    return grad_x.view(*grads[0].shape[:-1], -1)


@float8_frozen_backward.register_fake
def _(grads: list[Tensor], by_columns: Tensor, column_scales: Tensor) -> Tensor:
    return grads[0].new_empty(*grads[0].shape[:-1], by_columns.shape[0])


def _input_grad(grads: list[Tensor], by_columns: Tensor, column_scales: Tensor) -> Tensor:
    """Sum of grad_i W_i, (tokens, in)."""
    return product(*_cast_side_by_side(grads), by_columns, column_scales, grads[0].dtype)


def _cast_side_by_side(matrices: list[Tensor]) -> tuple[Tensor, Tensor]:
    """8-bit numbers (tokens, sum of widths) with one scale for each token, (tokens, 1)."""
    if not matrices[0].is_cuda:
        by_rows, scales = cast_rows(torch.cat(matrices, 1))
        return by_rows, scales
    from bench_image.kernels import float8_casts

    # A row of a matrix must be dense; rows may lie apart.
    dense = [matrix if matrix.stride(1) == 1 else matrix.contiguous() for matrix in matrices]
    by_rows, scales = float8_casts.cast_rows(dense)
    return by_rows, scales
