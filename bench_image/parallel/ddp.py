"""DDP: each rank holds the whole model and averages its gradients with the other ranks."""

from __future__ import annotations

import contextlib

from torch.nn.parallel import DistributedDataParallel

from bench_image.contract.spec import RunSpec
from bench_image.model.build import BuiltModel
from bench_image.optimizer.step import OptimizerStep
from bench_image.parallel.process_group import DistributedGroup


class DdpStep(OptimizerStep):
    """Exchanges gradients in the backward pass of the last micro-step."""

    def gradient_sync(self, last: bool) -> contextlib.AbstractContextManager[None]:
        assert isinstance(self.model, DistributedDataParallel)
        return contextlib.nullcontext() if last else self.model.no_sync()


class DdpGroup(DistributedGroup):
    """Gradients are averaged in buckets, in their own dtype, while backward still runs."""

    def optimizer_step(self, spec: RunSpec, built: BuiltModel) -> OptimizerStep:
        # The only buffers are rotary frequencies, equal everywhere: nothing to broadcast at each step.
        model = DistributedDataParallel(
            built.model,
            device_ids=[self.device.index] if self.device.type == "cuda" else None,
            gradient_as_bucket_view=True,
            broadcast_buffers=False,
        )
        return DdpStep(spec, model, built.trainable, self.device)
