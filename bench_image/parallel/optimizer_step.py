"""What one optimizer step is made of: forward and backward of each micro-batch, clipping, the update."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import Any

import torch
from torch import nn

from bench_image.contract.spec import RunSpec
from bench_image.model.build import make_optimizer
from bench_image.model.dtypes import model_dtypes

MAX_GRAD_NORM = 1.0


class OptimizerStep:
    """For a rank that holds whole gradients. Strategies change where gradients are exchanged and what is updated."""

    def __init__(
        self, spec: RunSpec, model: nn.Module, trainable: Sequence[nn.Parameter], device: torch.device
    ) -> None:
        dtypes = model_dtypes(spec)
        self.model, self.trainable = model, tuple(trainable)
        self.num_micro_steps = spec.gradient_accumulation_steps
        self.autocast: Any = torch.autocast(device.type, dtype=dtypes.autocast, enabled=dtypes.autocast is not None)
        self.scaler: Any = torch.amp.GradScaler(device.type, enabled=dtypes.scaled)
        self._one = torch.ones((), device=device)
        self.optimizer = self.make_optimizer(spec, device)

    def make_optimizer(self, spec: RunSpec, device: torch.device) -> torch.optim.Optimizer:
        return make_optimizer(spec, self.trainable, device)

    def micro_step(self, ids: torch.Tensor, *, last: bool) -> torch.Tensor:
        """Adds the gradients of one micro-batch; returns its loss, on the device. `last` one of the step or not."""
        with self.gradient_sync(last):
            with self.autocast:
                loss: torch.Tensor = self.model(input_ids=ids, labels=ids).loss
            self.scaler.scale(loss / self.num_micro_steps).backward()
        return loss.detach().float()

    def gradient_sync(self, last: bool) -> contextlib.AbstractContextManager[None]:
        """Around a micro-step: gradients need not be exchanged before the last one."""
        return contextlib.nullcontext()

    def update(self) -> None:
        """Clips the gradients, steps, and forgets them."""
        self._clip([parameter.grad for parameter in self.trainable if parameter.grad is not None])
        self.scaler.step(self.optimizer)
        self.scaler.update()
        self.optimizer.zero_grad(set_to_none=True)

    def describe_sharding(self, spec: RunSpec) -> dict[str, str]:
        """What the strategy does to memory and communication, and where its library changes a number; name -> value."""
        return {}

    def sum_over_ranks(self, squares: torch.Tensor) -> torch.Tensor:
        """The sum of squares of all gradients, from this rank's sum."""
        return squares

    def _clip(self, gradients: list[torch.Tensor]) -> None:
        """To a global norm of at most MAX_GRAD_NORM, computed in fp32 whatever the gradients' dtype.

        Loss scaling is still in the gradients. A norm that is not finite makes all of them NaN, on every rank: so the
        scaler skips the step everywhere, or the loss says what happened.
        """
        norms = torch._foreach_norm(gradients, 2, dtype=torch.float32)
        norm = self.sum_over_ranks(torch.stack(norms).square().sum()).sqrt() / self.scaler.scale(self._one)
        factor = (MAX_GRAD_NORM / (norm + 1e-6)).clamp(max=1.0)
        # In their dtype, to which a multiplication on the GPU would round it anyway: then one kernel does for many.
        factor = torch.where(norm.isfinite(), factor, torch.nan).to(gradients[0].dtype)
        torch._foreach_mul_(gradients, factor)
