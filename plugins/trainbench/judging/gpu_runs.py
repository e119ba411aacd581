"""The GPUs of a node: one result of independent ranks -> one single-GPU result for each, and the GPU that explains why
its node is off.

The ranks of one job wait for each other, so their step times hardly differ: what each computes in a step shows which
is slow, or its SM clock.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

from bench_image.contract.options import Strategy
from bench_image.contract.result import Phase, RankSummary, RunError, RunResult, Status
from bench_image.contract.result_sections import Performance
from trainbench.core.formats import figure
from trainbench.core.grouping import grouped
from trainbench.core.verdicts import gpu_title
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
            "performance": (rank and rank.performance) or Performance.unmeasured(result.performance.clock),
            "probes": (rank and rank.probes) or result.probes,
            "memory": memory.model_copy(update={"peak_during_training": peak_gb, "peak_allocated_bytes": peak_bytes}),
            "context": context
            and context.model_copy(update={"gpus": tuple(gpu for gpu in context.gpus if gpu.uuid == uuid)}),
            "telemetry": telemetry.model_copy(
                update={"gpus": tuple(gpu for gpu in telemetry.gpus if gpu.uuid == uuid)}
            ),
        }
    )


MIN_GAP_PCT = 2.0  # healthy boards of one host differ as much


class OddGpu(NamedTuple):
    gpu: str  # "GPU 3 (GPU-5f3c...)", as nvidia-smi -L names it
    text: str  # one phrase with its figure and that of the others


def odd_gpu(runs: Sequence[RunResult]) -> OddGpu | None:
    """The GPU that makes its job slow: whose steps take longest, else whose clock is lowest. None for a single GPU, and
    where none differs enough.
    """
    for word, read, sign, scale, unit in (
        ("slowest", _own_steps, 1, 1000, "ms of own time per step"),
        ("lowest clock", _clocks, -1, 1, "MHz"),
    ):
        seen = grouped(pair for run in runs for pair in read(run))
        values = {gpu: statistics.median(of_gpu) for gpu, of_gpu in seen.items()}
        if len(values) < 2:
            continue
        odd = max(values, key=lambda gpu: sign * values[gpu])
        others = statistics.median(value for gpu, value in values.items() if gpu != odd)
        if others and 100 * abs(values[odd] - others) / others >= MIN_GAP_PCT:
            name, beside = gpu_title(*odd), "the other" if len(values) == 2 else "the others"
            own, usual = figure(scale * values[odd]), figure(scale * others)
            return OddGpu(name, f"{word} {name}: {own} {unit}, {beside} {usual} {unit}")
    return None


_Figures = Iterator[tuple[tuple[int, str | None], float]]  # (index, UUID) of each GPU that has the figure -> the figure


def _own_steps(run: RunResult) -> _Figures:
    # the GPU's index on its node may differ from the rank
    places = {gpu.uuid: gpu.index for gpu in (run.context.gpus if run.context else ()) if gpu.uuid}
    for rank in run.ranks:
        if rank.gpu_uuid in places and rank.own_steps_s:
            yield (places[rank.gpu_uuid], rank.gpu_uuid), statistics.median(rank.own_steps_s)


def _clocks(run: RunResult) -> _Figures:
    return (((g.index, g.uuid), mhz) for g in run.telemetry.gpus if (mhz := g.sm_clock_mean_mhz) is not None)
