"""Triton kernel of swiglu.py: one pass over its three inputs."""

# mypy: disable-error-code="import-not-found, no-untyped-def, untyped-decorator"
from __future__ import annotations

import torch
import triton
import triton.language as tl

COLUMNS, WARPS = 2048, 8  # of one row per program


@triton.jit
def _backward(grad, gate, up, grad_gate, grad_up, width, gate_stride, up_stride, columns: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    column = tl.program_id(1) * columns + tl.arange(0, columns)
    inside = column < width
    kind = grad.dtype.element_ty
    at = row * width + column
    d = tl.load(grad + at, inside, 0.0).to(tl.float32)
    g = tl.load(gate + row * gate_stride + column, inside, 0.0).to(tl.float32)
    u = tl.load(up + row * up_stride + column, inside, 0.0).to(tl.float32)
    sigmoid = tl.sigmoid(g)
    silu = g * sigmoid
    tl.store(grad_gate + at, (d * u * sigmoid * (1 + g * (1 - sigmoid))).to(kind), inside)
    tl.store(grad_up + at, (d * silu).to(kind), inside)
    tl.store(grad + at, (silu * u).to(kind), inside)


def backward(
    grad: torch.Tensor, gate: torch.Tensor, up: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """See swiglu.backward; `grad` contiguous, the rows of gate and up may lie apart."""
    rows, width = grad.shape
    grad_gate, grad_up = torch.empty_like(grad), torch.empty_like(grad)
    _backward[(rows, triton.cdiv(width, COLUMNS))](
        grad, gate, up, grad_gate, grad_up, width, gate.stride(0), up.stride(0), columns=COLUMNS, num_warps=WARPS
    )
    return grad, grad_gate, grad_up
