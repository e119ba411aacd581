"""The sweep of collectives over sizes: bus bandwidth and latency between all ranks of a run."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable

import torch
import torch.distributed as dist

from bench_image.contract.links import Collective, LinkFigure, Links, LinkSweep, bus_gb_per_s
from bench_image.telemetry.probes import Ranks

BATCHES = 3
MOST_CALLS = 20  # in a batch, as nccl-tests make
BATCH_S = 0.05  # a batch of long calls has fewer, at least one
WARMUP = 2
FLOAT_BYTES = 4


def sweep_links(asked: LinkSweep, group: Ranks) -> Links:
    """Times each collective at each size. All ranks call it, and make the same calls in the same order."""
    ranks, device = group.world_size, group.device
    elements = max(asked.top_bytes // FLOAT_BYTES, ranks)
    send, receive = (torch.zeros(elements, device=device) for _ in range(2))
    figures = []
    for collective in Collective:
        for size in asked.sizes:
            # A multiple of the number of ranks, because each rank has an equal part.
            part = max(size // FLOAT_BYTES // ranks, 1)
            call = _call(collective, send, receive, part, ranks)
            latency_s = _latency_s(call, group)
            num_bytes = part * ranks * FLOAT_BYTES
            bus = bus_gb_per_s(collective, num_bytes, latency_s, ranks)
            figures.append(
                LinkFigure(collective=collective, num_bytes=num_bytes, latency_s=latency_s, bus_gb_per_s=bus)
            )
    return Links(backend="nccl" if device.type == "cuda" else "gloo", figures=tuple(figures))


def _call(
    collective: Collective, send: torch.Tensor, receive: torch.Tensor, part: int, ranks: int
) -> Callable[[], object]:
    """One call of the collective, whose larger buffer has `part` x `ranks` elements."""
    whole_in, whole_out = send[: part * ranks], receive[: part * ranks]
    match collective:
        case Collective.ALL_REDUCE:
            return lambda: dist.all_reduce(whole_in)
        case Collective.ALL_GATHER:
            return lambda: _all_gather(whole_out, send[:part])
        case Collective.REDUCE_SCATTER:
            return lambda: _reduce_scatter(receive[:part], whole_in)
        case Collective.ALL_TO_ALL:
            return lambda: dist.all_to_all_single(whole_out, whole_in)


# torch 2.13 gave them other names and warns of the old ones.
_all_gather = getattr(dist, "all_gather_single", None) or dist.all_gather_into_tensor
_reduce_scatter = getattr(dist, "reduce_scatter_single", None) or dist.reduce_scatter_tensor


def _latency_s(call: Callable[[], object], group: Ranks) -> float:
    """Seconds of one call: of the slowest rank, the median of batches of calls that follow each other, as nccl-tests
    time them.
    """
    _batch_s(call, WARMUP, group.device)
    # Every rank takes the slowest rank's time, so that all make equally many calls.
    [first_s] = group.max_over_ranks([_batch_s(call, 1, group.device)])
    calls = max(1, min(MOST_CALLS, int(BATCH_S / first_s)))
    batches = [_batch_s(call, calls, group.device) / calls for _ in range(BATCHES)]
    [slowest_s] = group.max_over_ranks([statistics.median(batches)])
    return slowest_s


def _batch_s(call: Callable[[], object], calls: int, device: torch.device) -> float:
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    started = time.perf_counter()
    for _ in range(calls):
        call()
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return time.perf_counter() - started
