"""Measures communication from a profiler's timeline: its share of a step, and the exposed part (no computation)."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, NamedTuple

from bench_image.contract.result_sections import Communication

if TYPE_CHECKING:
    from bench_image.parallel.process_group import ProcessGroup

LEAST_STEPS, MOST_STEPS = 3, 8  # short ones are profiled for a second
Interval = tuple[float, float]
# Prefixes of NCCL's kernels and of gloo's spans; everything else on the timeline is computation.
COMMUNICATION = ("nccldevkernel", "ncclkernel", "gloo:")


class Timeline(NamedTuple):
    """Intervals of one rank in a step, and the step's duration, in the same unit of time."""

    communication: Sequence[Interval]
    computation: Sequence[Interval]
    span: float


class Profiled(NamedTuple):
    """`own_steps_s` and `step_waits_s` are this rank's, by step: without exposed communication, and that alone."""

    communication: Communication
    own_steps_s: tuple[float, ...]
    step_waits_s: tuple[float, ...]


def measure_communication(step: Callable[[], object], group: ProcessGroup, step_s: float) -> Profiled:
    """Profiles steps, which all ranks begin together. The shares are means over ranks, in percent.

    `step_s`: the seconds of a step, on all ranks the same. A profiler sees the communication that a CUDA graph replays,
    as no hook does, and costs the measured windows nothing.
    """
    num_steps = max(LEAST_STEPS, min(MOST_STEPS, int(1 / step_s)))
    seen = [_profiled(step, group) for _ in range(num_steps)]
    parts = [exposed(one.communication, one.computation) for one in seen]
    span = sum(one.span for one in seen)
    total_pct, exposed_pct = group.mean_over_ranks([100 * sum(part) / span for part in zip(*parts, strict=True)])
    return Profiled(
        Communication(total_pct=total_pct, exposed_pct=exposed_pct, profiled_steps=num_steps),
        own_steps_s=tuple((one.span - waited) / 1e9 for one, (_, waited) in zip(seen, parts, strict=True)),
        step_waits_s=tuple(waited / 1e9 for _, waited in parts),
    )


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
    """The timeline of one step in ns. On a GPU its kernels; on the CPU torch's operators and gloo's spans."""
    from torch.profiler import ProfilerActivity, profile

    from bench_image.training.stopwatch import synchronize

    on_gpu = group.device.type == "cuda"
    synchronize(group.device)
    with profile(activities=[ProfilerActivity.CUDA if on_gpu else ProfilerActivity.CPU]) as profiler:
        group.barrier()  # a profiler takes longer to start on one rank than on another
        begin = time.time_ns()  # the profiler's clock
        step()
        synchronize(group.device)
        end = time.time_ns()
    assert profiler.profiler is not None
    assert profiler.profiler.kineto_results is not None
    work = []
    for event in profiler.profiler.kineto_results.events():
        # Neither an annotation nor, on the CPU, a span that waits for another thread.
        on_cpu, name = event.device_type().name == "CPU", event.name()
        if name.startswith(("aten::", *COMMUNICATION)) if on_cpu else not event.is_user_annotation():
            work.append((name, max(begin, event.start_ns()), min(end, event.end_ns())))
    return timeline([(name, first, last) for name, first, last in work if first < last], end - begin)


def timeline(events: Iterable[tuple[str, float, float]], span: float) -> Timeline:
    """Sorts named intervals into communication and computation, by the prefixes of their names."""
    communication: list[Interval] = []
    computation: list[Interval] = []
    for name, begin, end in events:
        is_exchange = name.lower().startswith(COMMUNICATION)
        (communication if is_exchange else computation).append((begin, end))
    return Timeline(communication, computation, span)
