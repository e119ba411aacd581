"""One result of independent ranks -> one single-GPU result for each of its GPUs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from bench_image.contract.options import Strategy
from bench_image.contract.result import Phase, RankSummary, RunError, RunResult, Status
from bench_image.contract.result_sections import Gpu, GpuTelemetry, Memory, Performance
from trainbench.core.grouping import grouped
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
