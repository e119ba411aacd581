"""Hardware probes before training: rates of host-to-device copy, matmul and all-reduce."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch

COPY_BYTES = 256 * 2**20
ALLREDUCE_BYTES = 256 * 2**20
CPU_ALLREDUCE_BYTES = 2**20
MATMUL_SIZE = 8192
CPU_MATMUL_SIZE = 512
REPEATS = 12
WARMUP = 2


def h2d_gb_per_s(device: torch.device) -> float | None:
    """Rate of pinned host-to-device copies in GB/s (1e9 bytes); None on the CPU, where nothing is copied."""
    import torch

    if device.type != "cuda":
        return None
    host = torch.empty(COPY_BYTES, dtype=torch.uint8).pin_memory()
    target = torch.empty_like(host, device=device)
    return COPY_BYTES / _median_s(device, lambda: target.copy_(host, non_blocking=True)) / 1e9


def matmul_tflops(device: torch.device, dtype: torch.dtype) -> float:
    """Rate of a square matmul of n x n in TFLOP/s: 2 n^3 / t. Random data, because zeros run faster.

    8-bit numbers are multiplied as by the layers of precision fp8: with a scale for each row, written in bf16. Timed by
    the clock of training, whose rate is compared with it: on the CPU the CPU time of the process.
    """
    import torch

    size = MATMUL_SIZE if device.type == "cuda" else CPU_MATMUL_SIZE
    left, right = (torch.randn(size, size, device=device).to(dtype) for _ in range(2))
    if dtype is torch.float8_e4m3fn:
        scales = torch.ones(size, 1, device=device)
        # The very call of the layers (kernels/float8_linear.py): a GPU that cannot do it cannot train either.
        multiply = partial(
            torch._scaled_mm, left, right.t(), scale_a=scales, scale_b=scales.t(), out_dtype=torch.bfloat16,
            use_fast_accum=True,
        )  # fmt: skip
    else:
        multiply = partial(torch.mm, left, right, out=torch.empty_like(left))
    return 2 * size**3 / _median_s(device, multiply, cpu_clock=time.process_time) / 1e12


def allreduce_bus_gb_per_s(device: torch.device) -> float:
    """Bus bandwidth of an all-reduce in GB/s: 2 (n-1)/n * bytes / t, t of the slowest of n ranks. All ranks call it.

    The factor makes figures of different n comparable (nccl-tests, PERFORMANCE.md).
    """
    import torch
    import torch.distributed as dist

    ranks = dist.get_world_size()
    size = ALLREDUCE_BYTES if device.type == "cuda" else CPU_ALLREDUCE_BYTES
    buffer = torch.zeros(size // 4, device=device, dtype=torch.float32)
    slowest = torch.tensor([_median_s(device, lambda: dist.all_reduce(buffer))], device=device, dtype=torch.float64)
    dist.all_reduce(slowest, op=dist.ReduceOp.MAX)
    return 2 * (ranks - 1) / ranks * size / slowest.item() / 1e9


def _median_s(
    device: torch.device, work: Callable[[], object], cpu_clock: Callable[[], float] = time.perf_counter
) -> float:
    """Median seconds of one call of `work`, without the first WARMUP calls."""
    clock = _cuda_s if device.type == "cuda" else partial(_cpu_s, clock=cpu_clock)
    return statistics.median([clock(work) for _ in range(REPEATS)][WARMUP:])


def _cuda_s(work: Callable[[], object]) -> float:
    import torch

    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))  # type: ignore[no-untyped-call]
    start.record()
    work()
    end.record()
    end.synchronize()
    return float(start.elapsed_time(end)) / 1e3


def _cpu_s(work: Callable[[], object], clock: Callable[[], float]) -> float:
    start = clock()
    work()
    return clock() - start
