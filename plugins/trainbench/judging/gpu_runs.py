"""The GPUs of a node: one result of independent ranks -> one single-GPU result for each, and the GPU that explains why
its node is off.

The ranks of one job wait for each other, so their step times hardly differ; the SM clock shows which rank is slow.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from bench_image.contract.frozen import Frozen
from bench_image.contract.options import Strategy
from bench_image.contract.result import Phase, RankSummary, RunError, RunResult, Status
from bench_image.contract.result_sections import Gpu, GpuTelemetry, Memory, Performance
from trainbench.core.formats import degrees, figure
from trainbench.core.grouping import grouped
from trainbench.core.verdicts import Metric
from trainbench.judging.node_runs import GpuPlace, NodeRuns


def is_split(result: RunResult) -> bool:
    """Whether a result has several independent ranks; False where it failed before it had ranks."""
    spec = result.spec
    return spec.placement.strategy is Strategy.INDEPENDENT and spec.placement.gpus_per_node > 1 and bool(result.ranks)


def by_gpu(result: RunResult) -> dict[GpuPlace, RunResult]:
    """Each GPU's own run, by index: its rank's figures and status, its own telemetry; host and versions are the node's.

    A GPU whose rank did not report is a failed run. Empty where `is_split` is False.
    """
    if not is_split(result):
        return {}
    gpus = result.context.gpus if result.context else ()
    places = {gpu.uuid: GpuPlace(gpu.index, gpu.uuid) for gpu in gpus if gpu.uuid}
    runs = {
        places.get(rank.gpu_uuid or "", GpuPlace(rank.rank, rank.gpu_uuid)): _of_rank(result, rank)
        for rank in result.ranks
    }
    for place in [place for place in places.values() if place not in runs]:
        runs[place] = _without_rank(result, place)
    return dict(sorted(runs.items(), key=lambda item: (item[0].index, item[0].uuid or "")))


def units(members: Sequence[NodeRuns]) -> list[NodeRuns]:
    """The units to judge: nodes, and of nodes with independent ranks each GPU. Results without ranks stay with the
    node.
    """
    return [unit for member in members for unit in _of_node(member)]


def _of_node(member: NodeRuns) -> list[NodeRuns]:
    runs = grouped((place, own) for run in member.runs for place, own in by_gpu(run).items())
    if not runs:
        return [member]
    whole = tuple(run for run in member.runs if not is_split(run))
    gpus = [
        replace(member, runs=tuple(own), gpu=place)
        for place, own in sorted(runs.items(), key=lambda item: (item[0].index, item[0].uuid or ""))
    ]
    return [*gpus, replace(member, runs=whole)] if whole else gpus


def _of_rank(result: RunResult, rank: RankSummary) -> RunResult:
    """The figures of one rank as a run on one GPU, without those that the contract has for the whole run only."""
    error = None
    if rank.status is not Status.OK:
        cause = result.error if result.error and result.error.rank in (None, rank.rank) else None
        message = cause.message if cause else f"rank {rank.rank} ended as {rank.status.value}: see the pod's log"
        error = RunError(
            kind=cause.kind if cause else rank.status.value,
            message=message,
            phase=cause.phase if cause else Phase.MEASURE,
            rank=rank.rank,
        )
    return _part(
        result,
        rank.gpu_uuid,
        status=rank.status,
        error=error,
        ranks=(rank,),
        performance=rank.performance or Performance.unmeasured(result.performance.clock),
        memory=_memory(result.memory, rank.peak_allocated_bytes),
        probes=rank.probes or result.probes,
    )


def _without_rank(result: RunResult, place: GpuPlace) -> RunResult:
    why = result.error.message if result.error else "its rank wrote no report"
    status = result.status if result.status is not Status.OK else Status.INCOMPLETE
    return _part(
        result,
        place.uuid,
        status=status,
        error=RunError(kind=status.value, message=f"no rank reported: {why}", phase=Phase.MEASURE),
        ranks=(),
        performance=Performance.unmeasured(result.performance.clock),
        memory=_memory(result.memory, None),
    )


def _part(result: RunResult, uuid: str | None, **fields: object) -> RunResult:
    """The part of `result` that belongs to the GPU `uuid`; of no GPU where `uuid` is unknown."""
    context = result.context
    gpus: tuple[Gpu, ...] = tuple(gpu for gpu in context.gpus if gpu.uuid == uuid) if context else ()
    records: tuple[GpuTelemetry, ...] = tuple(gpu for gpu in result.telemetry.gpus if gpu.uuid == uuid)
    return result.model_copy(
        update={
            "spec": result.spec.changed(placement={"gpus_per_node": 1}),
            "context": context and context.model_copy(update={"gpus": gpus}),
            "telemetry": result.telemetry.model_copy(update={"gpus": records}),
            **fields,
        }
    )


def _memory(whole: Memory, peak_bytes: int | None) -> Memory:
    gb = None if peak_bytes is None else peak_bytes / 1e9
    return whole.model_copy(update={"peak_during_training": gb, "peak_allocated_bytes": peak_bytes})


# A GPU closer to its neighbours than this is not named: healthy boards of one host differ as much.
MIN_GAP_PCT = 2.0
MIN_GAP_C = 5.0

# Of one run: (index, UUID) of each GPU that has the figure -> the figure.
_Read = Callable[[RunResult], Iterator[tuple[tuple[int, str | None], float]]]


class OddGpu(Frozen):
    gpu: str  # "GPU 3 (GPU-5f3c...)", as nvidia-smi -L names it
    text: str  # one phrase with its figure and that of the others


class _Look(NamedTuple):
    word: str
    read: _Read
    lowest: bool
    write: Callable[[float | None], str]
    gap_is_pct: bool = True


def odd_gpu(runs: Sequence[RunResult], metric: Metric) -> OddGpu | None:
    """The GPU that differs most to the bad side; None for a single GPU, and where none differs enough."""
    candidates = (_stands_out(runs, look) for look in _LOOKS[metric])
    return next((odd for odd in candidates if odd), None)


def _stands_out(runs: Sequence[RunResult], look: _Look) -> OddGpu | None:
    values = _by_gpu(runs, look.read)
    if len(values) < 2:
        return None
    odd = (min if look.lowest else max)(values, key=lambda gpu: values[gpu])
    others = statistics.median(value for gpu, value in values.items() if gpu != odd)
    gap = abs(values[odd] - others)
    if look.gap_is_pct:
        gap = 100 * gap / others if others else 0.0
    if gap < (MIN_GAP_PCT if look.gap_is_pct else MIN_GAP_C):
        return None
    name = f"GPU {odd[0]}" + (f" ({odd[1]})" if odd[1] else "")
    others_name = "the other" if len(values) == 2 else "the others"
    return OddGpu(gpu=name, text=f"{look.word} {name}: {look.write(values[odd])}, {others_name} {look.write(others)}")


def _by_gpu(runs: Sequence[RunResult], read: _Read) -> Mapping[tuple[int, str | None], float]:
    """The median over the runs."""
    of_gpu = grouped((gpu, value) for run in runs for gpu, value in read(run))
    return {gpu: statistics.median(values) for gpu, values in of_gpu.items()}


def _clock(run: RunResult) -> Iterator[tuple[tuple[int, str | None], float]]:
    return (((g.index, g.uuid), mhz) for g in run.telemetry.gpus if (mhz := g.sm_clock_mean_mhz) is not None)


def _temperature(run: RunResult) -> Iterator[tuple[tuple[int, str | None], float]]:
    return (((g.index, g.uuid), mean) for g in run.telemetry.gpus if (mean := g.temperature_mean_c) is not None)


def _step_time(run: RunResult) -> Iterator[tuple[tuple[int, str | None], float]]:
    places = _places(run)
    for rank in run.ranks:
        if rank.gpu_uuid in places and rank.step_time_median_s is not None:
            yield (places[rank.gpu_uuid], rank.gpu_uuid), rank.step_time_median_s


def _allocated(run: RunResult) -> Iterator[tuple[tuple[int, str | None], float]]:
    places = _places(run)
    for rank in run.ranks:
        if rank.gpu_uuid in places and rank.peak_allocated_bytes is not None:
            yield (places[rank.gpu_uuid], rank.gpu_uuid), float(rank.peak_allocated_bytes)


def _places(run: RunResult) -> dict[str | None, int]:
    """UUID -> the GPU's index on its node, which may differ from the rank."""
    return {gpu.uuid: gpu.index for gpu in (run.context.gpus if run.context else ()) if gpu.uuid}


_LOOKS: dict[Metric, tuple[_Look, ...]] = {
    Metric.SAMPLES_PER_SECOND: (
        _Look("slowest", _step_time, False, lambda s: f"{figure(s and s * 1000)} ms per step"),
        _Look("lowest clock", _clock, True, lambda mhz: f"{figure(mhz)} MHz"),
    ),
    Metric.TEMPERATURE_C: (_Look("hottest", _temperature, False, degrees, gap_is_pct=False),),
    Metric.MEMORY_GB: (
        _Look("most memory", _allocated, False, lambda number: f"{figure(number and number / 1e9)} GB"),
    ),
}
