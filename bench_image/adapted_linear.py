"""One operation for frozen weights (plain or 4-bit) that read the same input, and their LoRA adapters.

PEFT computes y = x W^T + s (x A^T) B^T as three products and two additions, for q, k and v (gate and up) each. Here the
layers that read one input are one operation: x is read once for all adapters, the small products are written first and
the large one is added onto them within its own matrix product. Nothing is kept for backward but x and x A^T; a 4-bit
weight is unpacked in forward and once more in backward.

The operations are opaque to torch.compile, which fuses everything between them.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

NF4_BLOCK, SCALE_BLOCK = 64, 256  # bitsandbytes' block sizes of 4-bit weights and of their 8-bit scales


class AdaptedLinear(torch.autograd.Function):
    """Outputs of all members as views of one matrix; their gradients arrive, and stay, apart."""

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, a: Tensor | None, b: Tensor | None, scale: float, rows: tuple[int, ...], *weights: Tensor
    ) -> tuple[Tensor, ...]:
        out, down = adapted_linear(x, list(weights), list(rows), a, b, scale)
        ctx.rows, ctx.scale, ctx.shape, ctx.adapted = rows, scale, x.shape, a is not None
        ctx.save_for_backward(*((x, down, a, b) if a is not None else ()), *weights)
        return tuple(torch.split(out, list(rows), -1))

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Any, ...]:
        rows, saved = list(ctx.rows), ctx.saved_tensors  # to be read once: under checkpointing that runs the layer
        if not ctx.adapted:
            grad_x = frozen_linear_backward(list(grads), list(saved), rows, ctx.shape[-1])
            return grad_x, None, None, None, None, *[None] * len(saved)
        x, down, a, b, *weights = saved
        wants_x = ctx.needs_input_grad[0]
        grad_x, grad_a, grad_b = adapted_linear_backward(list(grads), x, down, weights, rows, a, b, ctx.scale, wants_x)
        return grad_x if wants_x else None, grad_a, grad_b, None, None, *[None] * len(weights)


@torch.library.custom_op("trainbench::adapted_linear", mutates_args=())
def adapted_linear(
    x: Tensor, weights: list[Tensor], rows: list[int], a: Tensor | None, b: Tensor | None, scale: float
) -> tuple[Tensor, Tensor]:
    """[x W_i^T + scale (x A_i^T) B_i^T for each i], side by side, and x A^T, which backward needs.

    x (..., in); weights: W_i (rows_i, in) each, or a packed one with its 2 or 5 scale tensors each; a (n r, in) and
    b (sum of rows, r): the adapters of all i on top of each other, None without. Returns (..., sum of rows) and
    (..., n r).
    """
    flat = x.reshape(-1, x.shape[-1])
    if a is None or b is None:
        out, down = flat.new_empty(flat.shape[0], sum(rows)), flat.new_empty(flat.shape[0], 0)
        for mine, weight in _against(_frozen(weights, rows, flat), out):
            torch.mm(flat, weight.t(), out=mine)
    else:
        down = flat @ a.t()
        if len(weights) > len(rows) and sum(rows) > 2 * flat.shape[1]:
            # B beside the unpacked weight, x A^T beside x: one product. It spares writing (x A^T) B^T, as wide as y.
            out = torch.cat([flat, down], 1) @ _widened(weights, rows, b, scale, flat, a.shape[0]).t()
        else:
            out = flat.new_empty(flat.shape[0], sum(rows))
            for mine, b_i, down_i in zip(
                torch.split(out, rows, 1), torch.split(b, rows), _columns(down, b), strict=True
            ):
                torch.addmm(mine, down_i, b_i.t(), beta=0, alpha=scale, out=mine)
            for mine, weight in _against(_frozen(weights, rows, flat), out):
                mine.addmm_(flat, weight.t())
    return out.view(*x.shape[:-1], -1), down.view(*x.shape[:-1], -1)


@adapted_linear.register_fake
def _(
    x: Tensor, weights: list[Tensor], rows: list[int], a: Tensor | None, b: Tensor | None, scale: float
) -> tuple[Tensor, Tensor]:
    adapters = 0 if a is None else a.shape[0]
    return x.new_empty(*x.shape[:-1], sum(rows)), x.new_empty(*x.shape[:-1], adapters)


@torch.library.custom_op("trainbench::adapted_linear_backward", mutates_args=())
def adapted_linear_backward(
    grads: list[Tensor], x: Tensor, down: Tensor, weights: list[Tensor], rows: list[int], a: Tensor, b: Tensor,
    scale: float, wants_x: bool,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    """Gradients of x (empty if not wanted), a, b: sum of grad_i W_i + d_i A_i; d^T x; scale grad_i^T (x A_i^T).

    d_i = scale grad_i B_i.
    """
    flat_x, flat_down = x.reshape(-1, x.shape[-1]), down.reshape(-1, a.shape[0])
    flat_grads = [grad.reshape(-1, grad.shape[-1]) for grad in grads]
    grad_down, grad_b = _adapter_gradients(flat_grads, flat_down, rows, b, scale)
    grad_a = grad_down.t() @ flat_x
    if not wants_x:
        return x.new_empty(0), grad_a, grad_b
    if len(weights) > len(rows) == 1 and x.shape[-1] > 2 * rows[0]:
        # A on top of the weight, d beside the gradient: one product. It spares writing d A, which is as wide as x.
        tall = flat_x.new_empty(rows[0] + a.shape[0], x.shape[-1])
        _unpack_into(tall[: rows[0]], weights)
        tall[rows[0] :] = a
        grad_x = torch.cat([flat_grads[0], grad_down], 1) @ tall
    else:
        grad_x = grad_down @ a
        _add_input_grad(grad_x, flat_grads, weights, rows)
    return grad_x.view(x.shape), grad_a, grad_b


@adapted_linear_backward.register_fake
def _(
    grads: list[Tensor], x: Tensor, down: Tensor, weights: list[Tensor], rows: list[int], a: Tensor, b: Tensor,
    scale: float, wants_x: bool,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    return x.new_empty(x.shape if wants_x else 0), a.new_empty(a.shape), b.new_empty(b.shape)


@torch.library.custom_op("trainbench::frozen_linear_backward", mutates_args=())
def frozen_linear_backward(grads: list[Tensor], weights: list[Tensor], rows: list[int], features: int) -> Tensor:
    """Sum of grad_i W_i: the input's gradient of layers without adapters; features = in."""
    flat_grads = [grad.reshape(-1, grad.shape[-1]) for grad in grads]
    grad_x = flat_grads[0].new_empty(flat_grads[0].shape[0], features)
    _add_input_grad(grad_x, flat_grads, weights, rows, beta=0)
    return grad_x.view(*grads[0].shape[:-1], features)


@frozen_linear_backward.register_fake
def _(grads: list[Tensor], weights: list[Tensor], rows: list[int], features: int) -> Tensor:
    return grads[0].new_empty(*grads[0].shape[:-1], features)


def _adapter_gradients(
    grads: list[Tensor], down: Tensor, rows: list[int], b: Tensor, scale: float
) -> tuple[Tensor, Tensor]:
    """d = scale grad_i B_i, side by side, and scale grad_i^T (x A_i^T), on top of each other."""
    if b.is_cuda:
        from bench_image import adapter_kernel

        if adapter_kernel.suits(grads, down, b):
            return adapter_kernel.gradients(grads, down, b, scale)
    grad_down, grad_b = torch.empty_like(down), torch.empty_like(b)
    for grad, b_i, down_i, mine_down, mine_b in zip(
        grads, torch.split(b, rows), _columns(down, b), _columns(grad_down, b), torch.split(grad_b, rows), strict=True
    ):
        torch.addmm(mine_down, grad, b_i, beta=0, alpha=scale, out=mine_down)
        torch.addmm(mine_b, grad.t(), down_i, beta=0, alpha=scale, out=mine_b)
    return grad_down, grad_b


def _columns(down: Tensor, b: Tensor) -> tuple[Tensor, ...]:
    """Each member's columns of x A^T, or of its gradient."""
    return torch.split(down, b.shape[1], 1)


def _against(weights: list[Tensor], out: Tensor) -> list[tuple[Tensor, Tensor]]:
    """The columns of the output that each weight makes."""
    return list(zip(torch.split(out, [weight.shape[0] for weight in weights], 1), weights, strict=True))


def _add_input_grad(
    grad_x: Tensor, flat_grads: list[Tensor], weights: list[Tensor], rows: list[int], beta: int = 1
) -> None:
    """grad_x := beta grad_x + sum of grad_i W_i."""
    matrix = _frozen(weights, rows, grad_x)
    parts = matrix if len(matrix) == len(rows) else torch.split(matrix[0], rows)
    for grad, weight in zip(flat_grads, parts, strict=True):
        torch.addmm(grad_x, grad, weight, beta=beta, out=grad_x)
        beta = 1


def _widened(weights: list[Tensor], rows: list[int], b: Tensor, scale: float, like: Tensor, adapters: int) -> Tensor:
    """(sum of rows, in + n r): the weights, and beside them scale B_i in the columns of x A_i^T."""
    features, rank = like.shape[-1], b.shape[1]
    wide = like.new_empty(sum(rows), features + adapters)
    wide[:, features:] = 0
    each = len(weights) // len(rows)
    for index, (mine, b_i) in enumerate(zip(torch.split(wide, rows), torch.split(b, rows), strict=True)):
        _unpack_into(mine[:, :features], weights[index * each : (index + 1) * each])
        start = features + index * rank
        torch.mul(b_i, scale, out=mine[:, start : start + rank])
    return wide


def _frozen(weights: list[Tensor], rows: list[int], like: Tensor) -> list[Tensor]:
    """The weights as matrices: a single one where they lie on top of each other in memory, or are unpacked so."""
    features = like.shape[-1]
    if len(weights) > len(rows):
        each = len(weights) // len(rows)
        out = like.new_empty(sum(rows), features)
        for index, mine in enumerate(torch.split(out, rows)):
            _unpack_into(mine, weights[index * each : (index + 1) * each])
        return [out]
    first, width = weights[0], weights[0].element_size()
    starts = [sum(rows[:index]) * features * width for index in range(len(rows))]
    adjacent = all(
        weight.is_contiguous() and weight.data_ptr() == first.data_ptr() + start
        for weight, start in zip(weights, starts, strict=True)
    )
    same = len({weight.untyped_storage().data_ptr() for weight in weights}) == 1
    return [first.as_strided((sum(rows), features), (features, 1))] if adjacent and same else weights


def _unpack_into(out: Tensor, weight: list[Tensor]) -> None:
    """One member's weight, plain or packed, as a matrix."""
    packed, *scales = weight
    if not scales:
        out.copy_(packed)
    elif out.is_cuda:
        from bench_image.nf4_kernel import unpack

        absmax, levels, *double = scales
        unpack(packed, absmax, tuple(double), levels, out)
    else:
        ops = torch.ops.bitsandbytes
        absmax, _levels, *double = scales
        if double:
            offset, blocks, code = double
            absmax = ops.dequantize_blockwise(absmax, blocks, code, SCALE_BLOCK, torch.float32) + offset
        out.copy_(ops.dequantize_4bit(packed, absmax, NF4_BLOCK, "nf4", out.shape, out.dtype))
