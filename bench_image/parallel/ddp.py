"""DDP: each rank holds the whole model and averages its gradients with the other ranks."""

from __future__ import annotations

import contextlib

import torch
from torch.nn.parallel import DistributedDataParallel

from bench_image.contract.spec import RunSpec
from bench_image.model.build import BuiltModel
from bench_image.optimizer.step import OptimizerStep


class DdpStep(OptimizerStep):
    """Exchanges gradients in the backward pass of the last micro-step, averaged in buckets, in their own dtype."""

    def __init__(self, spec: RunSpec, built: BuiltModel, device: torch.device) -> None:
        # The only buffers are rotary frequencies, equal everywhere: nothing to broadcast at each step.
        model = DistributedDataParallel(
            built.model,
            device_ids=[device.index] if device.type == "cuda" else None,
            gradient_as_bucket_view=True,
            broadcast_buffers=False,
        )
        super().__init__(spec, model, built.trainable, device)

    def gradient_sync(self, last: bool) -> contextlib.AbstractContextManager[None]:
        assert isinstance(self.model, DistributedDataParallel)
        return contextlib.nullcontext() if last else self.model.no_sync()
