"""DistributedDataParallel: each rank holds the whole model and averages its gradients with the others."""

from __future__ import annotations

import contextlib

from torch.nn.parallel import DistributedDataParallel

from bench_image.contract.spec import RunSpec
from bench_image.model.build import Built
from bench_image.parallel.optimizer_step import Engine
from bench_image.parallel.process_group import Gang


class DdpEngine(Engine):
    def exchanging(self, last: bool) -> contextlib.AbstractContextManager[None]:
        assert isinstance(self.model, DistributedDataParallel)
        return contextlib.nullcontext() if last else self.model.no_sync()


class Ddp(Gang):
    """Gradients are averaged in buckets, in their own dtype, while backward still runs."""

    def engine(self, spec: RunSpec, built: Built) -> Engine:
        # The only buffers are rotary frequencies, equal everywhere: nothing to broadcast at each step.
        model = DistributedDataParallel(
            built.model,
            device_ids=[self.device.index] if self.device.type == "cuda" else None,
            gradient_as_bucket_view=True,
            broadcast_buffers=False,
        )
        return DdpEngine(spec, model, built.trainable, self.device)
