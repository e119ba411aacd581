"""Peak memory of a rank: what torch's allocator counted on the GPU, or the process's resident memory on the CPU."""

from __future__ import annotations

import resource

import torch

from bench_image.contract.result_sections import Memory

ONLY_OF_GPUS = ("peak_allocated_bytes", "peak_reserved_bytes", "alloc_retries", "num_ooms")


def reset_peak_memory(device: torch.device) -> None:
    """Restarts the GPU allocator's peaks, so that they are those of the windows; the CPU's peak cannot be reset."""
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)


def read_peak_memory(device: torch.device, cuda_graph_peak_bytes: int = 0) -> tuple[Memory, dict[str, str]]:
    """Peaks since `reset_peak_memory`, retries and OOMs since process start; and a reason for each null field.

    `cuda_graph_peak_bytes`: the peak while a CUDA graph was captured, which torch does not count when it is replayed.
    """
    if device.type != "cuda":
        rss = Memory(kind="process_rss", peak_during_training=_peak_rss_bytes() / 1e9)
        return rss, dict.fromkeys(ONLY_OF_GPUS, "no GPU allocator on the CPU")
    allocated = max(torch.cuda.max_memory_allocated(device), cuda_graph_peak_bytes)
    stats = torch.cuda.memory_stats(device)
    memory = Memory(
        kind="cuda_allocated",
        peak_during_training=allocated / 1e9,
        peak_allocated_bytes=allocated,
        peak_reserved_bytes=torch.cuda.max_memory_reserved(device),
        alloc_retries=stats.get("num_alloc_retries", 0),
        num_ooms=stats.get("num_ooms", 0),
    )
    return memory, {}


def _peak_rss_bytes() -> int:
    """Peak resident memory since the process began; Linux counts ru_maxrss in KiB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
