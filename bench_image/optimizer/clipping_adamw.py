"""AdamW that clips while it updates: one pass over all tensors for their norm and one for the update, at memory speed.

As torch.optim.AdamW (arXiv 1711.05101), in fp32 whatever the tensors' dtype. With g the clipped gradient and t the
number of the step: p -= lr decay p; m = b1 m + (1 - b1) g; v = b2 v + (1 - b2) g^2;
p -= lr / (1 - b1^t) m / (sqrt(v) / sqrt(1 - b2^t) + eps).

A pass is one launch: a table on the GPU has the address of each tensor, and a program updates one block of one of them.
"""

# mypy: disable-error-code="import-not-found, no-untyped-def, untyped-decorator"
from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
import triton
import triton.language as tl

VECTOR = 8  # numbers that a thread reads at once: tensors of another size, and unlike dtypes, are left to torch
BLOCK, WARPS = 4096, 8


@triton.jit
def _squares(addresses, sizes, owners, firsts, sums, like, block: tl.constexpr):
    # The sum of squares of one block of one gradient.
    program = tl.program_id(0)
    tensor = tl.load(owners + program)
    at = (program - tl.load(firsts + tensor)).to(tl.int64) * block + tl.arange(0, block)
    inside = at < tl.multiple_of(tl.load(sizes + tensor), 8)
    gradient = tl.load(addresses + tensor).to(tl.pointer_type(like.dtype.element_ty))
    g = tl.load(tl.multiple_of(gradient + at, 16), inside, 0.0).to(tl.float32)
    tl.store(sums + program, tl.sum(g * g))


@triton.jit
def _update(
    addresses, sizes, owners, firsts, like, factor, scales, num_tensors, decay, beta1, beta2, eps, block: tl.constexpr
):  # fmt: skip
    program = tl.program_id(0)
    tensor = tl.load(owners + program)
    at = (program - tl.load(firsts + tensor)).to(tl.int64) * block + tl.arange(0, block)
    inside = at < tl.multiple_of(tl.load(sizes + tensor), 8)
    kind = like.dtype.element_ty
    # Rows of `addresses`: gradients, parameters, means, squares.
    mine = addresses + tensor
    gradient = tl.multiple_of(tl.load(mine).to(tl.pointer_type(kind)) + at, 16)
    parameter = tl.multiple_of(tl.load(mine + num_tensors).to(tl.pointer_type(kind)) + at, 16)
    mean = tl.multiple_of(tl.load(mine + 2 * num_tensors).to(tl.pointer_type(kind)) + at, 16)
    square = tl.multiple_of(tl.load(mine + 3 * num_tensors).to(tl.pointer_type(kind)) + at, 16)
    g = tl.load(gradient, inside, 0.0).to(tl.float32) * tl.load(factor)
    m = tl.load(mean, inside, 0.0).to(tl.float32)
    v = tl.load(square, inside, 0.0).to(tl.float32)
    p = tl.load(parameter, inside, 0.0).to(tl.float32)
    m += (1 - beta1) * (g - m)
    v = beta2 * v + (1 - beta2) * g * g
    # scales: lr / (1 - b1^t), 1 / sqrt(1 - b2^t)
    p = p - decay * p - tl.load(scales) * m / (tl.sqrt(v) * tl.load(scales + 1) + eps)
    tl.store(mean, m.to(kind), inside)
    tl.store(square, v.to(kind), inside)
    tl.store(parameter, p.to(kind), inside)


class Table(NamedTuple):
    """Where tensors lie. On the GPU but `gradients`, the first row of `addresses` on the host, in pinned memory."""

    parameters: list[torch.nn.Parameter]
    gradients: torch.Tensor
    addresses: torch.Tensor  # (4, tensors): of gradients, parameters, means, squares
    sizes: torch.Tensor
    owners: torch.Tensor  # of each block: its tensor
    firsts: torch.Tensor  # of each tensor: its first block
    sums: torch.Tensor  # of each block: its sum of squares


class ClippingAdamW(torch.optim.AdamW):
    """torch's fused AdamW whose gradients are multiplied by `factor`, a tensor, on the way.

    Each step: `sum_of_squares`, set `factor`, `step`. The first steps are launched, the last one is captured.
    """

    factor: torch.Tensor

    def __init__(self, parameters: Sequence[torch.nn.Parameter], lr: float) -> None:
        super().__init__(parameters, lr=lr, fused=True)
        device = parameters[0].device
        self._steps = torch.zeros((), device=device, dtype=torch.float64)
        self._betas = torch.tensor(self.defaults["betas"], device=device, dtype=torch.float64)
        self._table: Table | None = None

    @torch.no_grad()
    def sum_of_squares(self) -> torch.Tensor:
        """Of all gradients, in fp32."""
        trained = [p for group in self.param_groups for p in group["params"] if p.grad is not None]
        table = self._table = self._table or self._make_table(trained)
        listed = set(table.parameters)
        if not torch.cuda.is_current_stream_capturing():
            torch.cuda.current_stream().synchronize()  # the last step reads the addresses that are written now
        for number, parameter in enumerate(table.parameters):
            if parameter.grad.data_ptr() % 16:  # type: ignore[union-attr]
                parameter.grad = parameter.grad.clone()  # type: ignore[union-attr]
            table.gradients[number] = parameter.grad.data_ptr()  # type: ignore[union-attr]
        table.addresses[0].copy_(table.gradients, non_blocking=True)
        _squares[(len(table.owners),)](
            table.addresses, table.sizes, table.owners, table.firsts, table.sums, table.parameters[0], block=BLOCK,
            num_warps=WARPS,
        )  # fmt: skip
        total = table.sums.sum()
        if rest := [p.grad for p in trained if p not in listed]:
            total += torch.stack(torch._foreach_norm(rest, 2, dtype=torch.float32)).square().sum()
        return total

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        """Updates every parameter that has a gradient; most gradients are gone afterwards."""
        table = self._table
        assert table
        lr, (beta1, beta2) = self.defaults["lr"], self.defaults["betas"]
        eps, decay = self.defaults["eps"], self.defaults["weight_decay"]
        self._steps += 1
        left = 1 - self._betas**self._steps
        scales = torch.stack([lr / left[0], left[1].rsqrt()]).float()
        _update[(len(table.owners),)](
            table.addresses, table.sizes, table.owners, table.firsts, table.parameters[0], self.factor, scales,
            len(table.parameters), lr * decay, beta1, beta2, eps, block=BLOCK, num_warps=WARPS,
        )  # fmt: skip
        for parameter in table.parameters:
            parameter.grad = None
        rest = [p.grad for group in self.param_groups for p in group["params"] if p.grad is not None]
        if rest:
            torch._foreach_mul_(rest, self.factor.to(rest[0].dtype))
            super().step(closure)

    def _make_table(self, trained: list[torch.nn.Parameter]) -> Table:
        """Of the parameters with gradients, in the first step; all later ones have the same."""
        parameters = [p for p in trained if p.numel() % VECTOR == 0 and p.dtype == trained[0].dtype]
        device = trained[0].device
        for parameter in parameters:
            self.state[parameter] = {name: torch.zeros_like(parameter) for name in ("exp_avg", "exp_avg_sq")}
        tensors = [[p.data_ptr(), *(state.data_ptr() for state in self.state[p].values())] for p in parameters]
        addresses = torch.tensor([[0, *each] for each in tensors], dtype=torch.int64).t().contiguous()
        sizes = torch.tensor([p.numel() for p in parameters])
        blocks = (sizes + BLOCK - 1) // BLOCK
        owners = torch.arange(len(parameters), dtype=torch.int32).repeat_interleave(blocks)
        firsts = (blocks.cumsum(0) - blocks).int()
        return Table(
            parameters, torch.zeros(len(parameters), dtype=torch.int64, pin_memory=True),
            addresses.to(device), sizes.to(device), owners.to(device), firsts.to(device),
            torch.empty(len(owners), device=device, dtype=torch.float32),
        )  # fmt: skip
