"""How long a step waits for other ranks: communication that no computation covers, from a profiler's timeline."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from bench_image.contract.result_sections import Communication

if TYPE_CHECKING:
    from bench_image.parallel.process_group import ProcessGroup

STEPS = 3
Interval = tuple[float, float]
# Kernels of NCCL, and the spans that gloo's backend records; everything else on the same timeline is computation.
COMMUNICATION = ("nccldevkernel", "ncclkernel", "gloo:")


class Timeline(NamedTuple):
    """Intervals of one rank in any one unit, and how long the profiled steps took in that unit."""

    communication: Sequence[Interval]
    computation: Sequence[Interval]
    span: float


def measure_communication(step: Callable[[], object], group: ProcessGroup) -> Communication:
    """Profiles a few steps. Every rank must call it; the shares are means over ranks."""
    timeline = _profiled(step, group)
    shares = [100 * part / timeline.span for part in exposed(timeline.communication, timeline.computation)]
    total_pct, exposed_pct = group.mean_over_ranks(shares)
    return Communication(total_pct=total_pct, exposed_pct=exposed_pct, profiled_steps=STEPS)


def exposed(communication: Iterable[Interval], computation: Iterable[Interval]) -> tuple[float, float]:
    """Length of the union of `communication`, and of that part of it which no `computation` covers."""
    talking, working = union(communication), union(computation)
    total = sum(end - begin for begin, end in talking)
    covered = 0.0
    first = 0  # both lists are sorted and disjoint, so earlier work cannot cover later talk
    for begin, end in talking:
        while first < len(working) and working[first][1] <= begin:
            first += 1
        for work_begin, work_end in working[first:]:
            if work_begin >= end:
                break
            covered += min(end, work_end) - max(begin, work_begin)
    return total, total - covered


def union(intervals: Iterable[Interval]) -> list[Interval]:
    """The same points as sorted, disjoint intervals."""
    merged: list[Interval] = []
    for begin, end in sorted(intervals):
        if merged and begin <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(merged[-1][1], end))
        else:
            merged.append((begin, end))
    return merged


def _profiled(step: Callable[[], object], group: ProcessGroup) -> Timeline:
    """The steps' timeline in nanoseconds. On the GPU: its kernels; on the CPU: torch's operators and gloo's spans."""
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
    events = profiler.profiler.kineto_results.events()
    return timeline(((event.name(), event.start_ns(), event.end_ns()) for event in events if _counts(event)), span)


def timeline(events: Iterable[tuple[str, float, float]], span: float) -> Timeline:
    """Named intervals of one rank, told apart by their names."""
    communication: list[Interval] = []
    computation: list[Interval] = []
    for name, begin, end in events:
        talks = name.lower().startswith(COMMUNICATION)
        (communication if talks else computation).append((begin, end))
    return Timeline(communication, computation, span)


def _counts(event: Any) -> bool:
    """Work itself: not the annotations around it, nor on the CPU the spans that wait for other threads."""
    if event.device_type().name == "CPU":
        return bool(event.name().startswith(("aten::", *COMMUNICATION)))
    return not event.is_user_annotation()
