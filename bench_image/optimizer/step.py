"""The parts of one optimizer step: forward and backward of each micro-batch, gradient clipping, the update."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import Any

import torch
from torch import nn

from bench_image.contract.preset_switches import clips_within_update
from bench_image.contract.spec import RunSpec
from bench_image.model.dtypes import model_dtypes
from bench_image.optimizer.adamw import make_optimizer

MAX_GRAD_NORM = 1.0


class OptimizerStep:
    """The step of a rank that holds whole gradients; strategies override where gradients are exchanged and updated."""

    def __init__(
        self, spec: RunSpec, model: nn.Module, trainable: Sequence[nn.Parameter], device: torch.device
    ) -> None:
        dtypes = model_dtypes(spec)
        self.model, self.trainable = model, tuple(trainable)
        self.num_micro_steps = spec.work.gradient_accumulation_steps
        self.autocast: Any = torch.autocast(device.type, dtype=dtypes.autocast, enabled=dtypes.autocast is not None)
        self.scaler: Any = torch.amp.GradScaler(device.type, enabled=dtypes.scaled)
        self._one = torch.ones((), device=device)
        self.clips_within_update = clips_within_update(spec)
        self.optimizer: Any = self.make_optimizer(spec, device)

    def make_optimizer(self, spec: RunSpec, device: torch.device) -> torch.optim.Optimizer:
        """The optimizer over what this rank updates."""
        return make_optimizer(spec, self.trainable, device)

    def micro_step(self, ids: torch.Tensor, *, last: bool) -> torch.Tensor:
        """Forward and backward of one micro-batch: adds its gradients, returns its loss on the device.

        `ids`: (micro batch, tokens), also the labels. `last`: whether it is the last micro-step of the step.
        """
        with self.gradient_sync(last):
            with self.autocast:
                loss: torch.Tensor = self.model(input_ids=ids, labels=ids).loss
            self.scaler.scale(loss / self.num_micro_steps).backward()
        return loss.detach().float()

    def gradient_sync(self, last: bool) -> contextlib.AbstractContextManager[None]:
        """The context of a micro-step; only the `last` one has to exchange gradients between ranks."""
        return contextlib.nullcontext()

    def update(self) -> None:
        """Clips the gradients, steps the optimizer, and drops the gradients."""
        self._clip([parameter.grad for parameter in self.trainable if parameter.grad is not None])
        self.scaler.step(self.optimizer)
        self.scaler.update()
        self.optimizer.zero_grad(set_to_none=True)

    def forget_launched_steps(self) -> None:
        """Drops what the next step would wait for from the last one; called on an idle GPU, before a capture."""

    def describe_sharding(self, spec: RunSpec) -> dict[str, str]:
        """How the strategy shares memory and communication between ranks, for the result: name -> value."""
        return {}

    def sum_over_ranks(self, squares: torch.Tensor) -> torch.Tensor:
        """The sum over ranks of each rank's sum of squared gradients."""
        return squares

    def _clip(self, gradients: list[torch.Tensor]) -> None:
        """Scales the gradients to a global norm of at most MAX_GRAD_NORM, computed in fp32 whatever their dtype.

        factor = min(1, MAX_GRAD_NORM / (norm + 1e-6)), as torch.nn.utils.clip_grad_norm_. A norm that is not finite
        makes all gradients NaN on every rank: so the scaler skips the step everywhere, or the loss becomes NaN.
        """
        # The gradients still hold the loss scale; the norm is that of the unscaled ones.
        if self.clips_within_update:
            squares = self.optimizer.sum_of_squares()
        else:
            squares = torch.stack(torch._foreach_norm(gradients, 2, dtype=torch.float32)).square().sum()
        norm = self.sum_over_ranks(squares).sqrt() / self.scaler.scale(self._one)
        factor = (MAX_GRAD_NORM / (norm + 1e-6)).clamp(max=1.0)
        factor = torch.where(norm.isfinite(), factor, torch.nan)
        if self.clips_within_update:
            self.optimizer.factor = factor
            return
        # The factor is cast to the gradients' dtype, as the multiplication would round it: so one kernel does them all.
        torch._foreach_mul_(gradients, factor.to(gradients[0].dtype))
