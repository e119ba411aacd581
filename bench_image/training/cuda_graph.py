"""A training step as one CUDA graph: captured once, then launched as a whole instead of kernel by kernel."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch


class CudaGraphStep:
    """Replays the kernels that `body` launches for the batches of one step.

    `body` must have run before on batches of the same size. The captured kernels use memory of the graph's own, which
    torch counts during the capture only: `peak_bytes` keeps that peak.
    """

    def __init__(
        self,
        body: Callable[[Sequence[torch.Tensor]], torch.Tensor],
        batches: Sequence[torch.Tensor],
        optimizer: torch.optim.Optimizer,
        device: torch.device,
    ) -> None:
        for group in optimizer.param_groups:
            group["capturable"] = True  # torch's fused AdamW counts its steps on the GPU
        self._inputs = [batch.to(device) for batch in batches]
        self._graph = torch.cuda.CUDAGraph()
        torch.cuda.synchronize(device)
        torch.cuda.empty_cache()  # the graph cannot use memory that earlier steps cached
        torch.cuda.reset_peak_memory_stats(device)
        # thread_local: the thread that reads data may pin memory during the capture.
        with torch.cuda.graph(self._graph, capture_error_mode="thread_local"):
            self._loss = body(self._inputs)
        self.peak_bytes = torch.cuda.max_memory_allocated(device)

    def __call__(self, batches: Sequence[torch.Tensor]) -> torch.Tensor:
        """Copies the batches to the graph's inputs and launches it; returns the loss on the device, without waiting."""
        for mine, batch in zip(self._inputs, batches, strict=True):
            mine.copy_(batch, non_blocking=True)
        self._graph.replay()
        return self._loss.clone()
