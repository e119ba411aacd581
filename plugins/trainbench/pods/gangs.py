"""A gang: one run over several nodes, one pod on each. The names by which its pods meet, and their results as one."""

from __future__ import annotations

import hashlib
import re
import statistics
from collections.abc import Sequence

from bench_image.contract.result import RankSummary, RunResult, Status
from bench_image.contract.result_sections import Communication, Memory, Probes, Telemetry
from bench_image.contract.spec import RunSpec
from trainbench.pods.pod_end import EndKind

PORT = 29500  # torchrun's own default
SILENT = frozenset({EndKind.VANISHED, EndKind.NO_RESULT})  # a peer's own end, or what ours took with it
WAITED = frozenset({"SIGTERM", "timeout"})
# Messages of gloo, NCCL and the store about a lost peer.
LOST_PEER = re.compile(r"connection (reset|closed|refused)|broken pipe|remote (process|peer)|timed out", re.IGNORECASE)


def gang_id(spec: RunSpec) -> str:
    """Name of the gang: short enough for a host name, different for each run of each campaign."""
    return f"g{hashlib.sha256(f'{spec.identity.campaign_id}/{spec.identity.run_id}'.encode()).hexdigest()[:10]}"


def nodes_of(spec: RunSpec) -> tuple[str, ...]:
    """The run's nodes in the order of their ranks."""
    return (spec.identity.node, *spec.identity.peers)


def combine_ranks(spec: RunSpec, results: Sequence[RunResult]) -> RunResult:
    """The results of a gang's pods, in the order of their ranks, as the one result of the run.

    Throughput is the same in all of them, being counted over all ranks; it is taken from node rank 0. Memory is the
    largest, energy the mean over the pods (each has the same share of the samples), GPUs and ranks are all of them.
    A gang is ok only if all its pods are; else the first cause counts, not what it led to.
    """
    if len(results) == 1:
        return results[0]
    if all(result.status is Status.OK for result in results):
        return _all_ok(spec, results)
    cause = min((result for result in results if result.status is not Status.OK), key=_precedence)
    node = nodes_of(spec)[results.index(cause)]
    assert cause.error is not None
    error = cause.error.model_copy(update={"message": f"{node}: {cause.error.message}"[:4000]})
    return cause.model_copy(update={"spec": spec, "error": error, "ranks": _ranks(results) or cause.ranks})


def failed_rank(result: RunResult) -> int | None:
    """Node rank of the failure that `combine_ranks` gave the run; None: one pod, or no cause in a single pod."""
    message = result.error.message if result.error else ""
    nodes = nodes_of(result.spec)
    return next((rank for rank, node in enumerate(nodes) if len(nodes) > 1 and message.startswith(f"{node}: ")), None)


def _all_ok(spec: RunSpec, results: Sequence[RunResult]) -> RunResult:
    first = results[0]
    contexts = [result.context for result in results if result.context]
    return first.model_copy(
        update={
            "spec": spec,
            "started_at": min(result.started_at for result in results),
            "finished_at": max(result.finished_at for result in results),
            "context": contexts[0].model_copy(
                update={"gpus": tuple(gpu for context in contexts for gpu in context.gpus)}
            )
            if contexts
            else None,
            "memory": _memory(results),
            "telemetry": _telemetry(results),
            "probes": _probes(results),
            "communication": _communication(results),
            "ranks": _ranks(results),
            "missing": _reasons(results),
        }
    )


def _reasons(results: Sequence[RunResult]) -> dict[str, str]:
    """Path -> why the figure is null; node rank 0's reason counts first. GPUs are numbered over all pods."""
    reasons: dict[str, str] = {}
    before = {"context": 0, "telemetry": 0}
    for result in results:
        for path, reason in result.missing.items():
            section, _, rest = path.partition(".gpus.")
            index, dot, field = rest.partition(".")
            if section in before and index.isdecimal():
                path = f"{section}.gpus.{int(index) + before[section]}{dot}{field}"
            reasons.setdefault(path, reason)
        before["context"] += len(result.context.gpus) if result.context else 0
        before["telemetry"] += len(result.telemetry.gpus)
    return reasons


def _precedence(result: RunResult) -> tuple[int, float]:
    """Sort key of the gang's errors: first a rank's report of itself, then the cluster's report; a pod that just ended
    comes before the errors of peers that lost it.
    """
    assert result.error is not None
    kind = result.error.kind
    if result.status in (Status.OOM, Status.INVALID_LOSS):
        order = 0
    elif kind in SILENT:
        order = 3
    elif kind in set(EndKind):
        order = 1
    elif kind in WAITED or LOST_PEER.search(result.error.message):
        order = 4
    else:
        order = 2
    return order, result.finished_at.timestamp()


def _ranks(results: Sequence[RunResult]) -> tuple[RankSummary, ...]:
    return tuple(sorted((rank for result in results for rank in result.ranks), key=lambda rank: rank.rank))


def _memory(results: Sequence[RunResult]) -> Memory:
    """The largest value of each memory figure over the pods; null where one pod does not know it."""
    memories = [result.memory for result in results]
    return memories[0].model_copy(
        update={
            name: None if None in values else max(values)
            for name in Memory.model_fields
            if name != "kind" and (values := [getattr(memory, name) for memory in memories])
        }
    )


def _telemetry(results: Sequence[RunResult]) -> Telemetry:
    first = results[0].telemetry
    return first.model_copy(
        update={
            "gpus": tuple(gpu for result in results for gpu in result.telemetry.gpus),
            "energy_per_sample_j": _mean([result.telemetry.energy_per_sample_j for result in results]),
            "energy_per_token_j": _mean([result.telemetry.energy_per_token_j for result in results]),
        }
    )


def _probes(results: Sequence[RunResult]) -> Probes:
    """The slowest GPU's, as within one pod; the all-reduce ran over all ranks, so each pod has the same figure."""
    probes = [result.probes for result in results]
    slowest = {}
    for name in ("h2d_gb_per_s", "matmul_tflops"):
        values = [getattr(probe, name) for probe in probes]
        slowest[name] = None if None in values else min(values)
    return probes[0].model_copy(update=slowest)


def _communication(results: Sequence[RunResult]) -> Communication:
    shares = [result.communication for result in results]
    return shares[0].model_copy(
        update={
            "total_pct": _mean([share.total_pct for share in shares]),
            "exposed_pct": _mean([share.exposed_pct for share in shares]),
        }
    )


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return statistics.fmean(known) if len(known) == len(values) else None
