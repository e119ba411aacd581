"""FSDP2: each rank keeps a slice of each weight, gradient and optimizer state, and gathers one layer at a time."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable
from itertools import pairwise
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FSDPModule, fully_shard

from bench_image.contract.memory_estimate import has_room
from bench_image.contract.options import Optimizer
from bench_image.contract.spec import RunSpec
from bench_image.contract.work import Preset
from bench_image.model.build import BuiltModel
from bench_image.optimizer.adamw import make_optimizer
from bench_image.optimizer.step import OptimizerStep
from bench_image.parallel.process_group import DistributedGroup


class FsdpStep(OptimizerStep):
    """Clips and updates this rank's slices as plain tensors.

    AdamW works element by element, so the update is the same, and neither the 8-bit optimizers nor fused kernels have
    to support sharded tensors. `_keeps_weights`: layers stay whole from forward to backward; `_keeps_gradients`:
    gradients stay whole until the last micro-step.
    """

    model: Any

    def __init__(self, spec: RunSpec, built: BuiltModel, device: torch.device) -> None:
        self._slices: list[tuple[Any, nn.Parameter]] = []
        self._keeps_weights = spec.work.preset is Preset.TUNED and _has_room(built.model.parameters(), device)
        self._keeps_gradients = _has_room(built.trainable, device)
        super().__init__(spec, built.model, built.trainable, device)
        # Each layer gathers the next one's weights while it computes.
        modules = built.model.modules()
        layers = [module for module in modules if isinstance(module, FSDPModule) and module is not built.model]
        for layer in layers:
            layer.set_reshard_after_forward(not self._keeps_weights)
        for layer, following in pairwise(layers):
            layer.set_modules_to_forward_prefetch([following])

    def make_optimizer(self, spec: RunSpec, device: torch.device) -> torch.optim.Optimizer:
        slices = [(whole, nn.Parameter(_local(whole))) for whole in self.trainable]
        # A short tensor has no slice on some ranks.
        self._slices = [(whole, part) for whole, part in slices if part.numel()]
        optimizer = make_optimizer(spec, tuple(part for _, part in self._slices), device)
        if spec.work.optimizer is not Optimizer.ADAMW_TORCH:
            # bitsandbytes keeps the states of small tensors in fp32; what counts is the size of the whole tensor.
            args: Any = optimizer.args  # type: ignore[attr-defined]
            args.min_8bit_size = args.min_8bit_size // spec.placement.world_size
        return optimizer

    def gradient_sync(self, last: bool) -> contextlib.AbstractContextManager[None]:
        """Before the last micro-step gradients and weights stay whole, where there is room for them."""
        if self.num_micro_steps > 1:
            self.model.set_requires_gradient_sync(last or not self._keeps_gradients)
            self.model.set_reshard_after_backward(last or not self._keeps_weights)
        return contextlib.nullcontext()

    def update(self) -> None:
        """Clips the gradients and steps the optimizer on this rank's slices; gradients are dropped afterwards."""
        # The slices share memory with the sharded tensors, so updating them updates the model.
        for whole, part in self._slices:
            part.data, part.grad = _local(whole), None if whole.grad is None else _local(whole.grad)
        self._clip([part.grad for _, part in self._slices if part.grad is not None])
        self.scaler.step(self.optimizer)
        self.scaler.update()
        for whole, part in self._slices:
            whole.grad = part.grad = None

    def forget_launched_steps(self) -> None:
        """Drops the last gathered layer: a captured step cannot wait for an event of a launched one."""
        self.model._get_fsdp_state()._comm_ctx.all_gather_state = None

    def describe_sharding(self, spec: RunSpec) -> dict[str, str]:
        after = "kept whole until backward" if self._keeps_weights else "sharded again, and gathered for backward"
        shared = {"sharded": "weights, gradients, optimizer states", "layers after forward": after}
        if self.num_micro_steps > 1:
            every = "step" if self._keeps_gradients else "micro-step"
            shared["gradients exchanged"] = f"once per {every}"
        return shared

    def sum_over_ranks(self, squares: torch.Tensor) -> torch.Tensor:
        dist.all_reduce(squares)
        return squares


class FsdpGroup(DistributedGroup):
    """Gathers weights and averages gradients in their own dtype, without a mixed-precision policy.

    The model is sharded layer by layer while it is built, so that a rank never holds more than its slices and one
    layer. Where memory allows it (`memory_estimate.WHOLE_SHARE`), `tuned` leaves layers whole between forward and
    backward, which saves one of three exchanges, and accumulated gradients are exchanged once per step, not per
    micro-step.
    """

    def __init__(self, device: torch.device, timeout_s: float) -> None:
        super().__init__(device, timeout_s, FsdpStep)
        self.mesh = init_device_mesh(device.type, (self.world_size,))

    def shard(self, module: nn.Module) -> None:
        fully_shard(module, mesh=self.mesh)


def _has_room(parameters: Iterable[nn.Parameter], device: torch.device) -> bool:
    num_bytes = sum(parameter.numel() * parameter.element_size() for parameter in parameters)
    on_gpu = device.type == "cuda"
    return has_room(num_bytes, torch.cuda.get_device_properties(device).total_memory if on_gpu else None)


def _local(tensor: Any) -> torch.Tensor:
    """This rank's slice of a sharded tensor, in the same memory."""
    with torch.no_grad():
        local: torch.Tensor = tensor.to_local()
    return local
