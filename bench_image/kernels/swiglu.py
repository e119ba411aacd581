"""The backward pass of silu(gate) up, which also makes that product anew."""

from __future__ import annotations

import torch
from torch import Tensor


def backward(grad: Tensor, gate: Tensor, up: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """silu(gate) up, in the place of `grad`, and the gradients of gate and up; all (tokens, features).

    With s = sigmoid(gate): silu = gate s, d silu = s (1 + gate (1 - s)).
    """
    if grad.is_cuda:
        from bench_image.kernels import swiglu_gpu

        return swiglu_gpu.backward(grad, gate, up)
    sigmoid = torch.sigmoid(gate.float())
    silu = gate * sigmoid
    grad_gate, grad_up = grad * up * sigmoid * (1 + gate * (1 - sigmoid)), grad * silu
    return grad.copy_(silu * up), grad_gate.to(grad.dtype), grad_up.to(grad.dtype)
