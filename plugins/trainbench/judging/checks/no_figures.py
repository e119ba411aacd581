"""A campaign in which no run gave a figure is never green: it checked nothing."""

from __future__ import annotations

from collections.abc import Sequence

from bench_image.contract.result import RunResult, Status
from trainbench.core.formats import count, listing, one_line
from trainbench.core.grouping import grouped
from trainbench.core.verdicts import NO_FIGURE, Finding, Level
from trainbench.pods.pod_end import NOT_FREE, EndKind

MAX_CAUSE = 160  # characters of the first error message of each cause
_CAUSES = {
    EndKind.BUSY.value: "found no free node",
    EndKind.PREEMPTED.value: "lost the node to other work",
    EndKind.WITHDRAWN.value: "lost a node that was taken out of service",
}


def no_figure_findings(campaign_id: str, results: Sequence[RunResult]) -> tuple[Finding, ...]:
    """One alarm that names each cause with its number of runs; empty where a run gave a figure."""
    if any(result.error is None for result in results):
        return ()
    causes = []
    for kind, errors in grouped((error.kind, error) for result in results if (error := result.error)).items():
        runs, message = count(len(errors), "run"), one_line(errors[0].message, most=MAX_CAUSE)
        why = f"{_CAUSES[kind]} ({message})" if kind in _CAUSES else f"failed ({kind}: {message})"
        causes.append(f"{runs} {why}")
    return (
        Finding(
            level=Level.ERROR,
            category=NO_FIGURE,
            item=campaign_id,
            measured="no figure",
            expected=f"a figure from at least one of {count(len(results), 'run')}" if results else "at least one run",
            summary="no run gave a figure",
            cause=listing(causes) if causes else "there was no run",
            resolution=_next_step(results),
        ),
    )


def _next_step(results: Sequence[RunResult]) -> str:
    if not results:
        return "read why each node was skipped, and change the form"
    if all(result.error and result.error.kind in NOT_FREE for result in results):
        return (
            "no node was checked: run it again when nodes are free, raise TRAINBENCH_QUEUE_TIMEOUT_S, or reserve a "
            "slot for it"
        )
    if all(result.status is Status.OOM for result in results):
        return "choose less work: a smaller micro-batch, shorter sequences, or a recipe that needs less memory"
    return "no node was checked: fix the causes above, then run it again"
