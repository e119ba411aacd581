"""AdamW that clips while it updates: large tensors take one pass over their memory, at its speed.

As torch.optim.AdamW (arXiv 1711.05101), in fp32 whatever the tensors' dtype. With g the clipped gradient and t the
number of the step: p -= lr decay p; m = b1 m + (1 - b1) g; v = b2 v + (1 - b2) g^2;
p -= lr / (1 - b1^t) m / (sqrt(v) / sqrt(1 - b2^t) + eps).
"""

# mypy: disable-error-code="import-not-found, no-untyped-def, untyped-decorator"
from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import triton
import triton.language as tl

LARGE = 2**16  # numbers from which a tensor is updated by a launch of its own; torch updates the smaller ones together
BLOCK, WARPS = 2048, 4


@triton.jit
def _update(
    parameter, gradient, mean, square, factor, scales, size, decay, beta1, beta2, eps, block: tl.constexpr
):  # fmt: skip
    at = tl.program_id(0).to(tl.int64) * block + tl.arange(0, block)
    inside = at < size
    kind = parameter.dtype.element_ty
    g = tl.load(gradient + at, inside, 0.0).to(tl.float32) * tl.load(factor)
    m = tl.load(mean + at, inside, 0.0).to(tl.float32)
    v = tl.load(square + at, inside, 0.0).to(tl.float32)
    p = tl.load(parameter + at, inside, 0.0).to(tl.float32)
    m += (1 - beta1) * (g - m)
    v = beta2 * v + (1 - beta2) * g * g
    # scales: lr / (1 - b1^t), 1 / sqrt(1 - b2^t)
    p = p - decay * p - tl.load(scales) * m / (tl.sqrt(v) * tl.load(scales + 1) + eps)
    tl.store(mean + at, m.to(kind), inside)
    tl.store(square + at, v.to(kind), inside)
    tl.store(parameter + at, p.to(kind), inside)


class ClippingAdamW(torch.optim.AdamW):
    """torch's fused AdamW whose gradients are multiplied by `factor`, a tensor, on the way."""

    factor: torch.Tensor

    def __init__(self, parameters: Sequence[torch.nn.Parameter], lr: float) -> None:
        super().__init__(parameters, lr=lr, fused=True)
        self._large = [parameter for parameter in parameters if parameter.numel() >= LARGE]
        device = parameters[0].device
        self._steps = torch.zeros((), device=device, dtype=torch.float64)
        self._betas = torch.tensor(self.defaults["betas"], device=device, dtype=torch.float64)

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        """Updates every parameter that has a gradient; the gradients of large ones are gone afterwards."""
        gradients = [parameter.grad for parameter in self._large]
        for parameter in self._large:
            parameter.grad = None
        small = [p.grad for group in self.param_groups for p in group["params"] if p.grad is not None]
        if small:
            torch._foreach_mul_(small, self.factor.to(small[0].dtype))
            super().step(closure)
        lr, (beta1, beta2) = self.defaults["lr"], self.defaults["betas"]
        eps, decay = self.defaults["eps"], self.defaults["weight_decay"]
        self._steps += 1
        left = 1 - self._betas**self._steps
        scales = torch.stack([lr / left[0], left[1].rsqrt()]).float()
        kernel: Any = _update
        for parameter, gradient in zip(self._large, gradients, strict=True):
            if gradient is None:
                continue
            state = self.state[parameter]
            if not state:
                state["exp_avg"], state["exp_avg_sq"] = (torch.zeros_like(parameter) for _ in range(2))
            size = parameter.numel()
            kernel[(triton.cdiv(size, BLOCK),)](
                parameter, gradient, state["exp_avg"], state["exp_avg_sq"], self.factor, scales, size, lr * decay,
                beta1, beta2, eps, block=BLOCK, num_warps=WARPS,
            )  # fmt: skip
