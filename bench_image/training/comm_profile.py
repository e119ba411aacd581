"""Measures communication from a profiler's timeline: its share of a step, and the exposed part (no computation)."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, NamedTuple

from bench_image.contract.result_sections import Communication

if TYPE_CHECKING:
    from bench_image.parallel.process_group import ProcessGroup

STEPS = 3
Interval = tuple[float, float]
# Prefixes of NCCL's kernels and of gloo's spans; everything else on the timeline is computation.
COMMUNICATION = ("nccldevkernel", "ncclkernel", "gloo:")


class Timeline(NamedTuple):
    """Intervals of one rank, and the duration of the profiled steps, in the same unit of time."""

    communication: Sequence[Interval]
    computation: Sequence[Interval]
    span: float


def measure_communication(step: Callable[[], object], group: ProcessGroup) -> Communication:
    """Profiles STEPS steps. Every rank must call it; the shares are means over ranks, in percent."""
    seen = _profiled(step, group)
    shares = [100 * part / seen.span for part in exposed(seen.communication, seen.computation)]
    total_pct, exposed_pct = group.mean_over_ranks(shares)
    return Communication(total_pct=total_pct, exposed_pct=exposed_pct, profiled_steps=STEPS)


def exposed(communication: Iterable[Interval], computation: Iterable[Interval]) -> tuple[float, float]:
    """Length of the union of `communication`, and of the part of it that no `computation` covers."""
    exchanges, computes = union(communication), union(computation)
    total = sum(end - begin for begin, end in exchanges)
    covered = 0.0
    first = 0  # both lists are sorted and disjoint: what ends before this exchange covers no later one
    for begin, end in exchanges:
        while first < len(computes) and computes[first][1] <= begin:
            first += 1
        for compute_begin, compute_end in computes[first:]:
            if compute_begin >= end:
                break
            covered += min(end, compute_end) - max(begin, compute_begin)
    return total, total - covered


def union(intervals: Iterable[Interval]) -> list[Interval]:
    """The union of the intervals, as sorted, disjoint intervals."""
    merged: list[Interval] = []
    for begin, end in sorted(intervals):
        if merged and begin <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(merged[-1][1], end))
        else:
            merged.append((begin, end))
    return merged


def _profiled(step: Callable[[], object], group: ProcessGroup) -> Timeline:
    """The timeline of STEPS steps in ns. On a GPU its kernels; on the CPU torch's operators and gloo's spans."""
    from torch.profiler import ProfilerActivity, profile

    from bench_image.training.stopwatch import synchronize

    on_gpu = group.device.type == "cuda"
    group.barrier()
    synchronize(group.device)
    with profile(activities=[ProfilerActivity.CUDA if on_gpu else ProfilerActivity.CPU]) as profiler:
        begin = time.perf_counter_ns()
        for _ in range(STEPS):
            step()
        synchronize(group.device)
        span = time.perf_counter_ns() - begin
    assert profiler.profiler is not None
    assert profiler.profiler.kineto_results is not None
    work = []
    for event in profiler.profiler.kineto_results.events():
        # Neither an annotation nor, on the CPU, a span that waits for another thread.
        on_cpu, name = event.device_type().name == "CPU", event.name()
        if name.startswith(("aten::", *COMMUNICATION)) if on_cpu else not event.is_user_annotation():
            work.append((name, event.start_ns(), event.end_ns()))
    return timeline(work, span)


def timeline(events: Iterable[tuple[str, float, float]], span: float) -> Timeline:
    """Sorts named intervals into communication and computation, by the prefixes of their names."""
    communication: list[Interval] = []
    computation: list[Interval] = []
    for name, begin, end in events:
        is_exchange = name.lower().startswith(COMMUNICATION)
        (communication if is_exchange else computation).append((begin, end))
    return Timeline(communication, computation, span)
