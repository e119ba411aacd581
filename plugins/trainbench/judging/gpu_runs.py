"""The GPUs of a node: one result of independent ranks -> one single-GPU result for each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from bench_image.contract.options import Strategy
from bench_image.contract.result import Phase, RankSummary, RunError, RunResult, Status
from bench_image.contract.result_sections import Performance
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
    ranks: dict[GpuPlace, RankSummary | None] = {
        places.get(rank.gpu_uuid or "", GpuPlace(rank.rank, rank.gpu_uuid)): rank for rank in result.ranks
    }
    ranks |= {place: None for place in places.values() if place not in ranks}
    return {place: _of_rank(result, place.uuid, ranks[place]) for place in sorted(ranks, key=GpuPlace.order)}


def units(members: Sequence[NodeRuns]) -> list[NodeRuns]:
    """The units to judge: nodes, and of nodes with independent ranks each GPU. Results without ranks stay with the
    node.
    """
    found = []
    for member in members:
        of_gpus = grouped((place, own) for run in member.runs for place, own in by_gpu(run).items())
        whole = tuple(run for run in member.runs if not is_split(run)) if of_gpus else member.runs
        found += [
            replace(member, runs=tuple(of_gpus[place]), gpu=place) for place in sorted(of_gpus, key=GpuPlace.order)
        ]
        if whole or not of_gpus:
            found.append(replace(member, runs=whole))
    return found


def _of_rank(result: RunResult, uuid: str | None, rank: RankSummary | None) -> RunResult:
    """The part of the run on the GPU `uuid`, as a run on one GPU, without the figures that the contract has for the
    whole run only. None: the GPU's rank did not report, so the run failed there.
    """
    status, cause, error = result.status, result.error, None
    if rank is None:
        status = result.status if result.status is not Status.OK else Status.INCOMPLETE
        why = cause.message if cause else "its rank wrote no report"
        error = RunError(kind=status.value, message=f"no rank reported: {why}", phase=Phase.MEASURE)
    elif (status := rank.status) is not Status.OK:
        own = cause if cause and cause.rank in (None, rank.rank) else None
        error = RunError(
            kind=own.kind if own else status.value,
            message=own.message if own else f"rank {rank.rank} ended as {status.value}: see the pod's log",
            phase=own.phase if own else Phase.MEASURE,
            rank=rank.rank,
        )
    context, telemetry, memory = result.context, result.telemetry, result.memory
    peak_bytes = rank.peak_allocated_bytes if rank else None
    peak_gb = None if peak_bytes is None else peak_bytes / 1e9
    return result.model_copy(
        update={
            "spec": result.spec.changed(placement={"gpus_per_node": 1}),
            "status": status,
            "error": error,
            "ranks": (rank,) if rank else (),
            "performance": (rank and rank.performance) or Performance(clock=result.performance.clock),
            "probes": (rank and rank.probes) or result.probes,
            "memory": memory.model_copy(update={"peak_during_training": peak_gb, "peak_allocated_bytes": peak_bytes}),
            "context": context
            and context.model_copy(update={"gpus": tuple(gpu for gpu in context.gpus if gpu.uuid == uuid)}),
            "telemetry": telemetry.model_copy(
                update={"gpus": tuple(gpu for gpu in telemetry.gpus if gpu.uuid == uuid)}
            ),
        }
    )
