"""A training step as one CUDA graph: captured once, then launched as a whole instead of kernel by kernel."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence

import torch


class CudaGraphStep:
    """Replays the kernels that `body` launches for the batches of one step, NCCL's among them.

    `body` must have run before on batches of the same size, on `stream` if there is one. The captured kernels use
    memory of the graph's own, which torch counts during the capture only: `peak_bytes` keeps that peak.
    """

    def __init__(
        self,
        body: Callable[[Sequence[torch.Tensor]], torch.Tensor],
        batches: Sequence[torch.Tensor],
        optimizer: torch.optim.Optimizer,
        device: torch.device,
        stream: torch.cuda.Stream | None = None,
    ) -> None:
        for group in optimizer.param_groups:
            group["capturable"] = True  # torch's fused AdamW counts its steps on the GPU
        self._inputs = [batch.to(device) for batch in batches]
        self._graph = torch.cuda.CUDAGraph()
        torch.cuda.synchronize(device)
        torch.cuda.empty_cache()  # the graph cannot use memory that earlier steps cached
        torch.cuda.reset_peak_memory_stats(device)
        # thread_local: the thread that reads data may pin memory during the capture.
        with torch.cuda.graph(self._graph, stream=stream, capture_error_mode="thread_local"):
            self._loss = body(self._inputs)
        self.peak_bytes = torch.cuda.max_memory_allocated(device)

    def __call__(self, batches: Sequence[torch.Tensor]) -> torch.Tensor:
        """Copies the batches to the graph's inputs and launches it; returns the loss on the device, without waiting."""
        for mine, batch in zip(self._inputs, batches, strict=True):
            mine.copy_(batch, non_blocking=True)
        self._graph.replay()
        return self._loss.clone()

    def close(self) -> None:
        """Frees the graph: NCCL cannot close a communicator that one still uses."""
        self._graph.reset()


@contextlib.contextmanager
def on_stream(stream: torch.cuda.Stream | None) -> Iterator[None]:
    """Launches on `stream`, after what the current stream holds and before what it gets next; None: no other stream."""
    if stream is None:
        yield
        return
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        yield
    torch.cuda.current_stream().wait_stream(stream)
