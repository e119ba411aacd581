"""The results of a gang, one run over several nodes with a pod on each, as one."""

from __future__ import annotations

import re
import statistics
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from bench_image.contract.frozen import ContractError
from bench_image.contract.result import HANG, Phase, RunError, RunResult, Status, failed_result
from bench_image.contract.result_sections import Communication, Memory, Probes, Telemetry
from bench_image.contract.spec import RunSpec
from trainbench.core.formats import listing
from trainbench.pods.pod_end import OF_NODE, EndKind

Section = TypeVar("Section", Memory, Telemetry, Probes, Communication)

# A peer's own end, or what ours took with it.
SILENT = frozenset({EndKind.VANISHED, EndKind.CUT_OFF, EndKind.NO_RESULT})
BEFORE_WORK = frozenset({Phase.LAUNCH, Phase.IMPORT, Phase.BUILD})
WAITED = frozenset({"SIGTERM", "timeout"})
ENERGY = ("energy_per_sample_j", "energy_per_token_j")
SHARES = ("total_pct", "exposed_pct")
RATE = "performance.samples_per_second"
OF_FIRST = ("chosen", "startup", "performance")  # sections of a gang's result that one pod's are
# Messages of gloo, NCCL and the store about a lost peer.
LOST_PEER = re.compile(r"connection (reset|closed|refused)|broken pipe|remote (process|peer)|timed out", re.IGNORECASE)


def combine_ranks(spec: RunSpec, results: Sequence[RunResult]) -> RunResult:
    """The results of a gang's pods, in the order of their ranks, as the one result of the run.

    Throughput is the same in all of them, being counted over all ranks; it is taken from the first pod that has one: of
    a command of the user's own often one log alone tells of steps. So are times, for nodes' clocks differ. Memory is
    the largest, energy the mean over the pods (each has the same share of the samples), GPUs and ranks are all of them.
    A gang is ok only if all its pods are; else the first cause counts, not what it led to. Its message begins with its
    node where that node alone is at fault, see `failed_rank`.
    """
    if len(results) == 1:
        return results[0]
    ranks = tuple(sorted((rank for result in results for rank in result.ranks), key=lambda rank: rank.rank))
    if failed := [result for result in results if result.status is not Status.OK]:
        cause = min(failed, key=_precedence)
        assert cause.error is not None
        nodes, place = spec.identity.nodes, results.index(cause)
        if cause.error.kind == HANG:  # a pod tells it that waited for another one's rank
            place = min((cause.error.rank or 0) // spec.placement.gpus_per_node, len(nodes) - 1)
        message = f"{_where(nodes, place, cause, results)}: {cause.error.message}"[:4000]
        error = cause.error.model_copy(update={"message": message})
        return cause.model_copy(update={"spec": spec, "error": error, "ranks": ranks or cause.ranks})
    first = next((result for result in results if result.performance.samples_per_second is not None), None)
    if first is None:
        reason = results[0].missing[RATE]
        return failed_result(
            spec, status=Status.ERROR, kind="no_step", message=reason, phase=Phase.LAUNCH, at=results[0].finished_at
        )
    contexts = [result.context for result in results if result.context]
    telemetry = [result.telemetry for result in results]
    gpus = tuple(gpu for each in telemetry for gpu in each.gpus)
    context_gpus = tuple(gpu for context in contexts for gpu in context.gpus)
    memory_fields = [name for name in Memory.model_fields if name != "kind"]
    return first.model_copy(
        update={
            "spec": spec,
            "context": contexts[0].model_copy(update={"gpus": context_gpus}) if contexts else None,
            "memory": _joined([result.memory for result in results], max, memory_fields),
            "telemetry": _joined(telemetry, statistics.fmean, ENERGY).model_copy(update={"gpus": gpus}),
            # The slowest GPU's, as within one pod; the all-reduce ran over all ranks, so each pod has the same figure.
            "probes": _joined([result.probes for result in results], min, [*Probes.model_fields]),
            "communication": _joined([result.communication for result in results], statistics.fmean, SHARES),
            "ranks": ranks,
            "missing": _reasons(results, first),
        }
    )


def _joined(sections: Sequence[Section], how: Callable[[Any], float], names: Sequence[str]) -> Section:
    """The first pod's section, with these figures of all pods; null where one pod does not know it."""
    values = {name: [getattr(section, name) for section in sections] for name in names}
    return sections[0].model_copy(
        update={name: None if None in of_pods else how(of_pods) for name, of_pods in values.items()}
    )


def _where(nodes: Sequence[str], place: int, cause: RunResult, results: Sequence[RunResult]) -> str:
    """Where the cause lies: in the node at `place`, or in no single one. A refusal counts as a node's own only if
    another pod's program shows that it went on from there.
    """
    assert cause.error is not None
    ends = {(result.error.kind, _precedence(result)[0]) if result.error else None for result in results}
    if len(ends) == 1 and cause.error.kind != HANG:
        return listing(nodes)
    no_sign = {*EndKind, ContractError.__name__} - {EndKind.CUT_OFF}  # of a program that went on
    if is_refusal(cause.error) and all(result.error and result.error.kind in no_sign for result in results):
        return f"{nodes[place]}, before any other pod began"
    return nodes[place]


def is_refusal(error: RunError) -> bool:
    """Whether the program refused the work before it used a GPU: the model cannot be built, its weights cannot be read,
    the command is not there.
    """
    return error.kind == ContractError.__name__ and error.phase in BEFORE_WORK


def node_at_fault(result: RunResult) -> str | None:
    """The node by which a gang failed that its other nodes could run: its pod did not start or refused the work, as for
    want of a mount, a device, an image or a secret, or it stopped answering. None: no single node, or another failure.
    """
    is_of_node = result.error is not None and (result.error.kind in OF_NODE or is_refusal(result.error))
    return failed_nodes(result)[0] if is_of_node and failed_rank(result) is not None else None


def failed_nodes(result: RunResult) -> tuple[str, ...]:
    """The node of the failure; all nodes of the run where no single one is at fault."""
    rank, nodes = failed_rank(result), result.spec.identity.nodes
    return nodes if rank is None else nodes[rank : rank + 1]


def failed_rank(result: RunResult) -> int | None:
    """Node rank of the failure that `combine_ranks` gave the run; None: one pod, or no cause in a single pod."""
    message = result.error.message if result.error else ""
    nodes = result.spec.identity.nodes
    return next((rank for rank, node in enumerate(nodes) if len(nodes) > 1 and message.startswith(f"{node}: ")), None)


def _reasons(results: Sequence[RunResult], first: RunResult) -> dict[str, str]:
    """Path -> why the figure is null; node rank 0's reason counts first, of sections of `first` alone its own. GPUs are
    numbered over all pods.
    """
    reasons: dict[str, str] = {}
    before = {"context": 0, "telemetry": 0}
    for result in results:
        for path, reason in result.missing.items():
            section, _, rest = path.partition(".gpus.")
            index, dot, field = rest.partition(".")
            if result is not first and path.partition(".")[0] in OF_FIRST:
                continue
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
    elif kind == HANG:
        order = 2
    elif kind in WAITED or LOST_PEER.search(result.error.message):
        order = 4
    else:
        order = 2
    return order, result.finished_at.timestamp()
