"""Probes before training: what this GPU's units, memory and links can do, and the share of its data sheet.

All together take at most 3 s: each one repeats until it has REPEATS times or has taken BUDGET_S.
"""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Protocol

import torch
import torch.distributed as dist

from bench_image.contract.gpu_specs import data_sheet
from bench_image.contract.links import Collective, bus_gb_per_s
from bench_image.contract.result_sections import Probes, share_field

COPY_BYTES = 256 * 2**20
MEMORY_COPY_BYTES = 512 * 2**20  # several times a GPU's cache
ALLREDUCE_BYTES = 256 * 2**20
CPU_ALLREDUCE_BYTES = 2**20
MATMUL_SIZE = 8192
CPU_MATMUL_SIZE = 512
REPEATS = 12
WARMUP = 2
BUDGET_S = 0.3
BF16_SINCE, FP8_SINCE = (8, 0), (8, 9)  # compute capabilities
RATES = (
    "h2d_gb_per_s", "d2h_gb_per_s", "memory_gb_per_s", "peer_gb_per_s", "matmul_bf16_tflops", "matmul_fp8_tflops",
)  # fmt: skip
RATE_OF = {torch.bfloat16: "matmul_bf16_tflops", torch.float8_e4m3fn: "matmul_fp8_tflops"}
NO_GPU = "the run uses no GPU"


class CannotProbe(Exception):
    """Why a probe measures nothing here."""


class Ranks(Protocol):
    """Of a process group what the probes need."""

    device: torch.device
    world_size: int

    def max_over_ranks(self, values: Sequence[float]) -> list[float]: ...


def probe(group: Ranks, gpu_name: str | None, dtype: torch.dtype) -> tuple[Probes, dict[str, str]]:
    """The rates of the slowest GPU of the run, and a reason for each null (paths relative to `probes`).

    `gpu_name`: this rank's, None on the CPU. `dtype`: of the numbers that the run multiplies. All ranks call it.
    """
    device = group.device
    rates, missing = gpu_rates(device)
    own = rates | shares_pct(rates, gpu_name)
    own["matmul_tflops"] = rates.get(RATE_OF.get(dtype, "")) or matmul_tflops(device, dtype)
    allreduce = allreduce_bus_gb_per_s(group) if group.world_size > 1 else None
    # The minimum over ranks, as the maximum of negative rates; of a rank that lacks one it is unknown.
    names = ("matmul_tflops", *RATES, *map(share_field, RATES))
    slowest = [-rate for rate in group.max_over_ranks([-own.get(name, -math.inf) for name in names])]
    known = {name: rate if math.isfinite(rate) else None for name, rate in zip(names, slowest, strict=True)}
    for name in RATES:
        if known[name] is None:
            missing.setdefault(name, "another rank of the run could not measure it")
        no_share = missing.get(name) or f"the data sheet of '{gpu_name}' is not in the GPU table, or names no such rate"
        if known[share_field(name)] is None:
            missing[share_field(name)] = no_share
    if allreduce is None:
        missing["allreduce_bus_gb_per_s"] = "one rank has no peer"
    return Probes(**known, allreduce_bus_gb_per_s=allreduce), missing


def gpu_rates(device: torch.device) -> tuple[dict[str, float], dict[str, str]]:
    """The rates of RATES that this GPU has, and why it lacks the others.

    Products come first, in one order in every run: what the GPU just did decides its clock for some tenths of a second.
    """
    if device.type != "cuda":
        return {}, dict.fromkeys(RATES, NO_GPU)
    probes: dict[str, Callable[[], float]] = {
        "matmul_bf16_tflops": partial(_units_tflops, device, torch.bfloat16, BF16_SINCE),
        "matmul_fp8_tflops": partial(_units_tflops, device, torch.float8_e4m3fn, FP8_SINCE),
        "h2d_gb_per_s": partial(host_copy_gb_per_s, device, to_host=False),
        "d2h_gb_per_s": partial(host_copy_gb_per_s, device, to_host=True),
        "memory_gb_per_s": partial(memory_gb_per_s, device),
        "peer_gb_per_s": partial(peer_gb_per_s, device),
    }
    rates, missing = {}, {}
    for name, measure in probes.items():
        try:
            rates[name] = measure()
        except CannotProbe as why:
            missing[name] = str(why)
        except RuntimeError as error:  # too little memory beside the model, a link or a format that is not there
            missing[name] = f"it could not be measured: {error}"[:400]
    return rates, missing


def shares_pct(rates: Mapping[str, float], gpu_name: str | None) -> dict[str, float]:
    """Share field -> 100 x rate / the rate of the data sheet, where that is known."""
    promised = data_sheet(gpu_name) if gpu_name else {}
    return {share_field(name): 100 * rate / promised[name] for name, rate in rates.items() if name in promised}


def host_copy_gb_per_s(device: torch.device, *, to_host: bool) -> float:
    """Rate of copies from pinned host memory, or into it, in GB/s (1e9 bytes)."""
    host = torch.empty(COPY_BYTES, dtype=torch.uint8).pin_memory()
    on_gpu = torch.empty_like(host, device=device)
    target, source = (host, on_gpu) if to_host else (on_gpu, host)
    return COPY_BYTES / _median_s(device, lambda: target.copy_(source, non_blocking=True)) / 1e9


def memory_gb_per_s(device: torch.device) -> float:
    """Rate of a copy within the GPU's memory in GB/s: each byte is read once and written once."""
    source = torch.zeros(MEMORY_COPY_BYTES, dtype=torch.uint8, device=device)
    target = torch.empty_like(source)
    return 2 * MEMORY_COPY_BYTES / _median_s(device, lambda: target.copy_(source)) / 1e9


def peer_gb_per_s(device: torch.device) -> float:
    """Rate of copies to the next GPU that this process sees, in GB/s. Raises CannotProbe where it sees one only.

    When all ranks of a node copy at once, each link carries one copy in each direction.
    """
    count = torch.cuda.device_count()
    if count < 2:
        raise CannotProbe("the rank sees no other GPU")
    neighbour = torch.device("cuda", ((device.index or 0) + 1) % count)
    source = torch.zeros(COPY_BYTES, dtype=torch.uint8, device=device)
    target = torch.empty_like(source, device=neighbour)
    # torch copies on the source's stream, where the events are that time it.
    return COPY_BYTES / _median_s(device, lambda: target.copy_(source, non_blocking=True)) / 1e9


def _units_tflops(device: torch.device, dtype: torch.dtype, since: tuple[int, int]) -> float:
    capability = torch.cuda.get_device_capability(device)
    if capability < since:
        raise CannotProbe(f"the GPU has no units for {str(dtype).removeprefix('torch.')}")
    return matmul_tflops(device, dtype)


def matmul_tflops(device: torch.device, dtype: torch.dtype) -> float:
    """Rate of a square matmul of n x n in TFLOP/s: 2 n^3 / t. Random data, because zeros run faster.

    8-bit numbers are multiplied as by the layers of precision fp8: with a scale for each row, written in bf16. Timed by
    the clock of training, whose rate is compared with it: on the CPU the CPU time of the process.
    """
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


def allreduce_bus_gb_per_s(group: Ranks) -> float:
    """Bus bandwidth of an all-reduce in GB/s, by the slowest rank. All ranks call it."""
    size = ALLREDUCE_BYTES if group.device.type == "cuda" else CPU_ALLREDUCE_BYTES
    buffer = torch.zeros(size // 4, device=group.device, dtype=torch.float32)
    # Each rank calls it as often as the others: a rank's own budget of time would leave them waiting.
    own_s = _median_s(group.device, lambda: dist.all_reduce(buffer), budget_s=math.inf)
    [slowest_s] = group.max_over_ranks([own_s])
    return bus_gb_per_s(Collective.ALL_REDUCE, size, slowest_s, group.world_size)


def _median_s(
    device: torch.device,
    work: Callable[[], object],
    cpu_clock: Callable[[], float] = time.perf_counter,
    budget_s: float = BUDGET_S,
) -> float:
    """Median seconds of one call of `work`, without the first WARMUP calls."""
    clock = _cuda_s if device.type == "cuda" else partial(_cpu_s, clock=cpu_clock)
    seconds: list[float] = []
    end_at = time.monotonic() + budget_s
    while len(seconds) <= WARMUP or (len(seconds) < REPEATS and time.monotonic() < end_at):
        seconds.append(clock(work))
    return statistics.median(seconds[WARMUP:])


def _cuda_s(work: Callable[[], object]) -> float:
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
