"""LoRA linear layers that read the same input, as one operation: frozen weights (plain or 4-bit) and their adapters.

PEFT computes y = x W^T + s (x A^T) B^T (arXiv 2106.09685) as three products and two additions, for q, k and v (gate and
up) each. Here the layers that read one input are one operation: x is read once for all adapters, the small products are
written first, and the large product is added onto them within its own matrix multiplication (addmm). Saved for backward
are only x and x A^T and, where there is room, the unpacked 4-bit weights; else backward unpacks them again.

Shapes: x (tokens, in); W_i (out_i, in); A_i (r, in); B_i (out_i, r); y_i (tokens, out_i).
The operations are opaque to torch.compile, which fuses what lies between them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from bench_image.kernels import swiglu

NF4_BLOCK, SCALE_BLOCK = 64, 256  # bitsandbytes' block sizes of 4-bit weights and of their 8-bit scales


class LoraLinear(torch.autograd.Function):
    """The outputs of all layers, as views of one matrix. Their gradients arrive one by one and are not concatenated."""

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, a: Tensor | None, b: Tensor | None, scale: float, rows: tuple[int, ...], keep: bool,
        *weights: Tensor,
    ) -> tuple[Tensor, ...]:  # fmt: skip
        keep = keep and _is_4bit(weights, rows)
        out, down, unpacked = lora_linear(x, list(weights), list(rows), a, b, scale, keep)
        ctx.rows, ctx.scale, ctx.shape, ctx.adapted, ctx.num_weights = rows, scale, x.shape, a is not None, len(weights)
        ctx.save_for_backward(*((x, down, a, b) if a is not None else ()), *((unpacked,) if keep else weights))
        return tuple(torch.split(out, list(rows), -1))

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Any, ...]:
        saved = ctx.saved_tensors  # read once: under checkpointing, reading runs the layer again
        if not ctx.adapted:
            grad_x = frozen_linear_backward(list(grads), list(saved), list(ctx.rows), ctx.shape[-1])
            return grad_x, *[None] * (5 + ctx.num_weights)
        x, down, a, b = saved[:4]
        wants_x = ctx.needs_input_grad[0]
        grad_x, grad_a, grad_b = lora_linear_backward(
            list(grads), x, down, list(saved[4:]), list(ctx.rows), a, b, ctx.scale, wants_x
        )
        return grad_x if wants_x else None, grad_a, grad_b, *[None] * (3 + ctx.num_weights)


class GatedLoraLinear(torch.autograd.Function):
    """One layer of silu(gate) up, the product of an MLP. Backward computes that again: nothing else needs it."""

    @staticmethod
    def forward(
        ctx: Any, gate: Tensor, up: Tensor, a: Tensor, b: Tensor, scale: float, keep: bool, *weights: Tensor
    ) -> Tensor:
        rows = [b.shape[0]]
        keep = keep and _is_4bit(weights, rows)
        x = torch.nn.functional.silu(gate) * up
        out: Tensor
        out, down, unpacked = lora_linear(x, list(weights), rows, a, b, scale, keep)
        ctx.scale, ctx.num_weights = scale, len(weights)
        ctx.save_for_backward(gate, up, down, a, b, *((unpacked,) if keep else weights))
        return out

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Any, ...]:
        gate, up, down, a, b, *weights = ctx.saved_tensors
        gradients = gated_lora_backward(grads[0], gate, up, down, list(weights), a, b, ctx.scale)
        return *gradients, *[None] * (2 + ctx.num_weights)


@torch.library.custom_op("trainbench::lora_linear", mutates_args=())
def lora_linear(
    x: Tensor, weights: list[Tensor], rows: list[int], a: Tensor | None, b: Tensor | None, scale: float, keep: bool
) -> tuple[Tensor, Tensor, Tensor]:
    """[x W_i^T + scale (x A_i^T) B_i^T for each i], side by side; x A^T; and 4-bit weights unpacked, for backward.

    x (..., in); weights: each W_i (rows_i, in), or packed with its 2 or 5 scale tensors; a (n r, in) and b (sum of
    rows, r): the adapters of all layers stacked, None without. Returns (..., sum of rows), (..., n r) and, with `keep`
    and 4-bit weights, the result of `_unpack_weights`; else an empty tensor.
    """
    # The small product of all adapters: x A^T.
    flat = x.reshape(-1, x.shape[-1])
    down = flat.new_empty(flat.shape[0], 0) if a is None else flat @ a.t()
    matrix = _unpack_weights(weights, rows, flat, a, b, scale) if _is_4bit(weights, rows) else None
    if matrix is not None and matrix.shape[1] > flat.shape[1]:
        # scale B_i lies beside W_i: one product computes both terms.
        out = torch.cat([flat, down], 1) @ matrix.t()
    else:
        # First out := scale (x A_i^T) B_i^T, then out += x W_i^T within the large product (beta = 1).
        out, beta = flat.new_empty(flat.shape[0], sum(rows)), 0
        if b is not None:
            beta = 1
            for mine, b_i, down_i in zip(
                torch.split(out, rows, 1), torch.split(b, rows), columns_of(down, b), strict=True
            ):
                torch.addmm(mine, down_i, b_i.t(), beta=0, alpha=scale, out=mine)
        large = _plain(weights, rows) if matrix is None else [matrix[: sum(rows)]]
        for mine, weight in zip(torch.split(out, [w.shape[0] for w in large], 1), large, strict=True):
            torch.addmm(mine, flat, weight.t(), beta=beta, out=mine)
    kept = matrix if keep and matrix is not None else flat.new_empty(0)
    return out.view(*x.shape[:-1], -1), down.view(*x.shape[:-1], -1), kept


@lora_linear.register_fake
def _(
    x: Tensor, weights: list[Tensor], rows: list[int], a: Tensor | None, b: Tensor | None, scale: float, keep: bool
) -> tuple[Tensor, Tensor, Tensor]:
    adapters = 0 if a is None else a.shape[0]
    kept = _unpacked_shape(rows, x.shape[-1], adapters) if keep and _is_4bit(weights, rows) else (0,)
    return x.new_empty(*x.shape[:-1], sum(rows)), x.new_empty(*x.shape[:-1], adapters), x.new_empty(kept)


# `weights` of the backward operations: as in forward, or one matrix of all, unpacked in forward.
@torch.library.custom_op("trainbench::lora_linear_backward", mutates_args=())
def lora_linear_backward(
    grads: list[Tensor], x: Tensor, down: Tensor, weights: list[Tensor], rows: list[int], a: Tensor, b: Tensor,
    scale: float, wants_x: bool,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    """The gradients of x (empty unless wanted), a and b.

    grad_x = sum of grad_i W_i + d_i A_i; grad_A_i = d_i^T x; grad_B_i = scale grad_i^T (x A_i^T); d_i = scale grad_i
    B_i.
    """
    flat_x, flat_down = x.reshape(-1, x.shape[-1]), down.reshape(-1, a.shape[0])
    flat_grads = [grad.reshape(-1, grad.shape[-1]) for grad in grads]
    grad_down, grad_b = adapter_gradients(flat_grads, flat_down, rows, b, scale)
    grad_a = grad_down.t() @ flat_x
    if not wants_x:  # the first layer's input
        return x.new_empty(0), grad_a, grad_b
    return _input_grad(flat_grads, grad_down, weights, rows, a, b, scale).view(x.shape), grad_a, grad_b


@lora_linear_backward.register_fake
def _(
    grads: Any, x: Tensor, down: Any, weights: Any, rows: Any, a: Tensor, b: Tensor, scale: Any, wants_x: bool
) -> Any:
    return x.new_empty(x.shape if wants_x else 0), a.new_empty(a.shape), b.new_empty(b.shape)


@torch.library.custom_op("trainbench::frozen_linear_backward", mutates_args=())
def frozen_linear_backward(grads: list[Tensor], weights: list[Tensor], rows: list[int], features: int) -> Tensor:
    """Sum of grad_i W_i (..., in): the input's gradient of 4-bit layers without adapters; features = in."""
    flat_grads = [grad.reshape(-1, grad.shape[-1]) for grad in grads]
    grad_x = flat_grads[0].new_empty(flat_grads[0].shape[0], features)
    if _is_4bit(weights, rows):
        weights = [_unpack_weights(weights, rows, grad_x, None, None, 0.0)]
    _add_input_grad(grad_x, flat_grads, weights, rows, beta=0)
    return grad_x.view(*grads[0].shape[:-1], features)


@frozen_linear_backward.register_fake
def _(grads: list[Tensor], weights: Any, rows: Any, features: int) -> Tensor:
    return grads[0].new_empty(*grads[0].shape[:-1], features)


@torch.library.custom_op("trainbench::gated_lora_backward", mutates_args=())
def gated_lora_backward(
    grad: Tensor, gate: Tensor, up: Tensor, down: Tensor, weights: list[Tensor], a: Tensor, b: Tensor, scale: float
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """The gradients of gate, up, a and b, where the layer's input x = silu(gate) up is computed again."""
    rows, features = [grad.shape[-1]], gate.shape[-1]
    flat_grads = [grad.reshape(-1, rows[0])]
    grad_down, grad_b = adapter_gradients(flat_grads, down.reshape(-1, a.shape[0]), rows, b, scale)
    grad_x = _input_grad(flat_grads, grad_down, weights, rows, a, b, scale)
    x, grad_gate, grad_up = swiglu.backward(grad_x, gate.reshape(-1, features), up.reshape(-1, features))
    return grad_gate.view(gate.shape), grad_up.view(up.shape), grad_down.t() @ x, grad_b


@gated_lora_backward.register_fake
def _(grad: Any, gate: Tensor, up: Tensor, down: Any, weights: Any, a: Tensor, b: Tensor, scale: Any) -> Any:
    return gate.new_empty(gate.shape), up.new_empty(up.shape), a.new_empty(a.shape), b.new_empty(b.shape)


def adapter_gradients(
    grads: list[Tensor], down: Tensor, rows: list[int], b: Tensor, scale: float
) -> tuple[Tensor, Tensor]:
    """d_i = scale grad_i B_i side by side, (tokens, n r), and grad_B_i = scale grad_i^T (x A_i^T) stacked."""
    if b.is_cuda:
        from bench_image.kernels import lora_grad

        if lora_grad.suits(grads, down, b):
            return lora_grad.gradients(grads, down, b, scale)
    grad_down, grad_b = torch.empty_like(down), torch.empty_like(b)
    for grad, b_i, down_i, mine_down, mine_b in zip(
        grads, torch.split(b, rows), columns_of(down, b), columns_of(grad_down, b), torch.split(grad_b, rows),
        strict=True,
    ):  # fmt: skip
        torch.addmm(mine_down, grad, b_i, beta=0, alpha=scale, out=mine_down)
        torch.addmm(mine_b, grad.t(), down_i, beta=0, alpha=scale, out=mine_b)
    return grad_down, grad_b


def columns_of(down: Tensor, b: Tensor) -> tuple[Tensor, ...]:
    """Each layer's columns of x A^T, or of its gradient."""
    return torch.split(down, b.shape[1], 1)


def _input_grad(
    flat_grads: list[Tensor], grad_down: Tensor, weights: list[Tensor], rows: list[int], a: Tensor, b: Tensor,
    scale: float,
) -> Tensor:  # fmt: skip
    """Sum of grad_i W_i + d_i A_i: the gradient of the layers' input, (tokens, in)."""
    if _is_4bit(weights, rows):
        weights = [_unpack_weights(weights, rows, a, a, b, scale)]
    if weights[0].shape[0] > sum(rows):
        # A lies below W: one product computes both terms.
        return torch.cat([flat_grads[0], grad_down], 1) @ weights[0]
    grad_x = grad_down @ a
    _add_input_grad(grad_x, flat_grads, weights, rows, beta=1)
    return grad_x


def _add_input_grad(
    grad_x: Tensor, flat_grads: list[Tensor], weights: list[Tensor], rows: list[int], beta: int
) -> None:
    """grad_x := beta grad_x + sum of grad_i W_i."""
    parts = weights if len(weights) == len(rows) > 1 else torch.split(weights[0][: sum(rows), : grad_x.shape[1]], rows)
    for grad, weight in zip(flat_grads, parts, strict=True):
        torch.addmm(grad_x, grad, weight, beta=beta, out=grad_x)
        beta = 1


def _is_4bit(weights: Sequence[Tensor], rows: Sequence[int]) -> bool:
    """Whether the weights are packed: then each brings its scale tensors."""
    return len(weights) > len(rows)


def _unpacked_shape(rows: list[int], features: int, adapters: int) -> tuple[int, int]:
    """Shape of the unpacked weights, with columns for B where out > 2 in and with rows for A where in > 2 out."""
    beside = adapters if sum(rows) > 2 * features else 0
    below = adapters if len(rows) == 1 and features > 2 * rows[0] else 0
    return sum(rows) + below, features + beside


def _unpack_weights(
    weights: list[Tensor], rows: list[int], like: Tensor, a: Tensor | None, b: Tensor | None, scale: float
) -> Tensor:
    """The 4-bit weights unpacked into one matrix, stacked, with the adapters where one product then computes both.

    Beside W_i, in the columns of x A_i^T, lies scale B_i: [x, x A^T] times it saves writing (x A^T) B^T, which is as
    wide as y. Below W lies A: [grad, d] times it saves writing d A, which is as wide as x.
    """
    features, total, each = like.shape[-1], sum(rows), len(weights) // len(rows)
    matrix = like.new_empty(_unpacked_shape(rows, features, 0 if a is None else a.shape[0]))
    for index, mine in enumerate(torch.split(matrix[:total, :features], rows)):
        _unpack_into(mine, weights[index * each : (index + 1) * each])
    if a is not None and len(matrix) > total:
        matrix[total:] = a
    if b is not None and matrix.shape[1] > features:
        beside = matrix[:, features:]
        beside.zero_()
        rank = b.shape[1]  # each layer's block lies on the diagonal
        for index, (mine, b_i) in enumerate(zip(torch.split(beside, rows), torch.split(b, rows), strict=True)):
            torch.mul(b_i, scale, out=mine[:, index * rank : (index + 1) * rank])
    return matrix


def _plain(weights: list[Tensor], rows: list[int]) -> list[Tensor]:
    """The plain weights, as one matrix where they are adjacent in memory."""
    first, features, width = weights[0], weights[0].shape[1], weights[0].element_size()
    starts = [sum(rows[:index]) * features * width for index in range(len(rows))]
    adjacent = all(
        weight.is_contiguous() and weight.data_ptr() == first.data_ptr() + start
        for weight, start in zip(weights, starts, strict=True)
    )
    same = len({weight.untyped_storage().data_ptr() for weight in weights}) == 1
    return [first.as_strided((sum(rows), features), (features, 1))] if adjacent and same else weights


def _unpack_into(out: Tensor, weight: list[Tensor]) -> None:
    """Unpacks one layer's 4-bit weight into `out` (rows, in)."""
    packed, absmax, levels, *double = weight
    if out.is_cuda:
        from bench_image.kernels.nf4_dequant import unpack

        unpack(packed, absmax, tuple(double), levels, out)
    else:
        ops = torch.ops.bitsandbytes
        if double:
            offset, blocks, code = double
            absmax = ops.dequantize_blockwise(absmax, blocks, code, SCALE_BLOCK, torch.float32) + offset
        out.copy_(ops.dequantize_4bit(packed, absmax, NF4_BLOCK, "nf4", out.shape, out.dtype))
