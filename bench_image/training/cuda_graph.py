"""A training step as one CUDA graph: recorded once, then launched as a whole instead of kernel by kernel."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch


class CudaGraphStep:
    """What `body` does with the batches of one step, on the GPU; `body` must have run before on batches of that size.

    The recorded kernels work on memory of the graph's own, which torch counts while they are recorded, and never again:
    so the peak is kept here.
    """

    def __init__(
        self,
        body: Callable[[Sequence[torch.Tensor]], torch.Tensor],
        batches: Sequence[torch.Tensor],
        optimizer: torch.optim.Optimizer,
        device: torch.device,
    ) -> None:
        for group in optimizer.param_groups:
            group["capturable"] = True  # torch's fused AdamW is: its step counts lie on the GPU
        self._inputs = [batch.to(device) for batch in batches]
        self._graph = torch.cuda.CUDAGraph()
        torch.cuda.synchronize(device)
        torch.cuda.empty_cache()  # what the steps before used cannot be used by the graph
        torch.cuda.reset_peak_memory_stats(device)
        # Threads that read data may pin memory meanwhile.
        with torch.cuda.graph(self._graph, capture_error_mode="thread_local"):
            self._loss = body(self._inputs)
        self.peak_bytes = torch.cuda.max_memory_allocated(device)

    def __call__(self, batches: Sequence[torch.Tensor]) -> torch.Tensor:
        """The step's loss; nothing here waits for the GPU."""
        for mine, batch in zip(self._inputs, batches, strict=True):
            mine.copy_(batch, non_blocking=True)
        self._graph.replay()
        return self._loss.clone()
