"""Why is a node not well, and what next? Verdicts and results -> one finding for each node that is not `ok`."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from bench_control.evidence import Clue, clues
from bench_control.formats import count, listing
from bench_control.limits import UNITS
from bench_control.node_runs import by_group, choice_of, gpu_name
from bench_control.variance import lone_groups, other_work
from bench_control.verdicts import Confirmation, Finding, GroupVerdict, Level, MetricVerdict, NodeVerdict, State
from bench_image.contract import RunResult, Status

UNKNOWN = Clue(
    category="cause_unknown",
    measured="",
    expected="",
    cause="cause unknown: nothing measured sets the node apart from its peers",
    resolution="repeat the check on this node and a good one; if it stays, look at the host: dmesg, BIOS, cooling",
)
_NEXT_STEP = {
    Status.OOM: "see which process holds GPU memory on this node; if all nodes fail, use a smaller micro-batch",
    Status.INVALID_LOSS: "repeat the run; NaN on one node alone points at its GPU: check ECC counters",
    Status.TIMEOUT: "read the pod's last log lines for the phase it hung in, then repeat",
    Status.INCOMPLETE: "find out who ended the pod (eviction, preemption, node restart), then repeat",
    Status.ERROR: "read the error and the pod's log",
}


def diagnose(groups: Sequence[GroupVerdict], results: Sequence[RunResult]) -> tuple[Finding, ...]:
    """Findings in the order of the groups and nodes. `category` is the likely cause, or what is the case.

    Groups that ran on one node only, to be compared with each other, are no matter for a finding each.
    """
    lone = lone_groups(groups)
    return tuple(
        _DIAGNOSES[node.state](node, group, results)
        for group in groups
        if group not in lone
        for node in group.nodes
        if node.state in _DIAGNOSES
    )


def strays(results: Sequence[RunResult]) -> tuple[Finding, ...]:
    """The nodes whose program chose other work than those of their peers, for one run or for all."""
    return tuple(
        Finding(
            level=Level.WARNING,
            category="chose_other_work",
            subject=member.node,
            measured=listing(dict.fromkeys(choice_of(run) for run in member.strays)),
            expected=f"{member.choice}, as on most nodes",
            summary=f"{count(len(member.strays), 'run')} not compared: {other_work(member)}",
            resolution="see in the result why it was chosen, and what else holds GPU memory on this node; or give the "
            "micro-batch and the checkpointing instead of 'auto'",
        )
        for members in by_group(results, ()).values()
        for member in members
        if member.strays
    )


def _breach(node: NodeVerdict, group: GroupVerdict, results: Sequence[RunResult]) -> Finding:
    own, peers = _runs(node, group, results)
    absent = [metric for metric in node.metrics if metric.state is State.BREACH and metric.value is None]
    found = clues(own, peers) or ((_unmeasured(absent),) if absent else (UNKNOWN,))
    unsure = {
        Confirmation.PENDING: "; not yet confirmed by a re-run",
        Confirmation.INCONCLUSIVE: "; the re-run gave no answer",
    }.get(node.confirmation, "")
    further = f" (also: {'; '.join(clue.cause for clue in found[1:])})" if len(found) > 1 else ""
    return Finding(
        level=Level.ERROR,
        category=found[0].category,
        subject=node.node,
        measured="; ".join(filter(None, (*map(_deviation, _breaching(node)), found[0].measured))),
        expected="; ".join(filter(None, (*map(_limit, _breaching(node)), found[0].expected))),
        summary=f"{node.reason}{unsure}. {_sentence(found[0].cause)}{further}",
        resolution=found[0].resolution,
    )


def _failed(node: NodeVerdict, group: GroupVerdict, results: Sequence[RunResult]) -> Finding:
    own = [run for run in results if run.spec.group_id == group.group_id and run.spec.node == node.node]
    status = next((run.status for run in own if run.status is not Status.OK), Status.ERROR)
    return Finding(
        level=Level.ERROR,
        category=f"run_{status.value}",
        subject=node.node,
        measured=f"{sum(run.status is not Status.OK for run in own)} of {len(own)} runs failed",
        expected="0",
        summary=f"gave no valid result: {node.reason}",
        resolution=_NEXT_STEP[status],
    )


def _missing(node: NodeVerdict, *_: object) -> Finding:
    return Finding(
        level=Level.ERROR,
        category="node_missing",
        subject=node.node,
        measured="no result",
        expected="at least one",
        summary="was expected, but no result came back",
        resolution="see whether the node is Ready and has free GPUs, and read the events of its pod",
    )


def _insufficient(node: NodeVerdict, *_: object) -> Finding:
    doubtful = [metric for metric in node.metrics if metric.state is State.INSUFFICIENT]
    too_noisy = any(metric.noise is not None for metric in doubtful)
    resolution = (
        "run more rounds, or on a quieter machine" if too_noisy else "check at least 3 nodes of this kind together"
    )
    return Finding(
        level=Level.WARNING,
        category="too_noisy" if too_noisy else "too_few_nodes",
        subject=node.node,
        measured="; ".join(map(_deviation, doubtful)),
        expected="; ".join(map(_limit, doubtful)),
        summary=f"cannot be judged: {node.reason}",
        resolution=resolution,
    )


def _notice(node: NodeVerdict, *_: object) -> Finding:
    noticed = [metric for metric in node.metrics if metric.state is State.NOTICE]
    return Finding(
        level=Level.INFO,
        category="not_confirmed",
        subject=node.node,
        measured="; ".join(map(_deviation, noticed)),
        expected="; ".join(map(_limit, noticed)),
        summary=f"was outside the limits once and not in its re-run: {node.reason}",
        resolution="nothing now; if it comes back, look for what disturbs the node now and then",
    )


def _no_baseline(node: NodeVerdict, *_: object) -> Finding:
    return Finding(
        level=Level.INFO,
        category="no_baseline",
        subject=node.node,
        measured="no past figure",
        expected="a past figure of the same work",
        summary=f"cannot be judged: {node.reason}",
        resolution="run the check on a few more nights, or compare with peers",
    )


_DIAGNOSES: dict[State, Callable[[NodeVerdict, GroupVerdict, Sequence[RunResult]], Finding]] = {
    State.BREACH: _breach,
    State.FAILED: _failed,
    State.MISSING: _missing,
    State.INSUFFICIENT: _insufficient,
    State.NOTICE: _notice,
    State.NO_BASELINE: _no_baseline,
}


def _runs(
    node: NodeVerdict, group: GroupVerdict, results: Sequence[RunResult]
) -> tuple[list[RunResult], list[RunResult]]:
    """The valid runs of the node and of its peers. A drilled peer is no example of a healthy node."""
    valid = [
        run
        for run in results
        if run.status is Status.OK
        and run.spec.group_id == group.group_id
        and gpu_name(run) == group.gpu_name
        and group.choice in (None, choice_of(run))
    ]
    own = [run for run in valid if run.spec.node == node.node]
    return own, [run for run in valid if run.spec.node != node.node and not run.spec.drill]


def _unmeasured(metrics: Sequence[MetricVerdict]) -> Clue:
    names = ", ".join(metric.metric.value for metric in metrics)
    return Clue(
        category="metric_missing",
        measured=f"no {names}",
        expected=names,
        cause=f"{names} could not be read",
        resolution="see `missing` in the result for the reason; check that the driver's NVML works inside the pod",
    )


def _breaching(node: NodeVerdict) -> list[MetricVerdict]:
    return [metric for metric in node.metrics if metric.state is State.BREACH and metric.deviation is not None]


def _deviation(metric: MetricVerdict) -> str:
    if metric.deviation is None:
        return f"{metric.metric.value} n/a"
    return f"{metric.metric.value} {metric.deviation:+.1f}{UNITS[metric.metric]}"


def _limit(metric: MetricVerdict) -> str:
    return f"± {metric.limit:g}{UNITS[metric.metric]}"


def _sentence(text: str) -> str:
    return text[:1].upper() + text[1:]
