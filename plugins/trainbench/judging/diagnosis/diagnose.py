"""One finding for each node that is not `ok`: the likely cause and the next step."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from bench_image.contract.result import RunResult, Status
from trainbench.core.formats import count, figure, listing, signed
from trainbench.core.grouping import grouped
from trainbench.core.verdicts import (
    OTHER_WORK,
    Clue,
    Confirmation,
    Finding,
    GroupVerdict,
    Level,
    Metric,
    MetricVerdict,
    NodeVerdict,
    Side,
    State,
)
from trainbench.figure_catalogue.run_figures import SM_CLOCK_MIN_MHZ
from trainbench.judging.deviations import UNITS
from trainbench.judging.diagnosis.clues import Case, cause_with_share, explains_nothing
from trainbench.judging.diagnosis.evidence import slow_clues
from trainbench.judging.diagnosis.evidence_gpu import MIN_CLOCK_GAP_PCT, THERMAL
from trainbench.judging.diagnosis.evidence_other_metrics import (
    LOOK_AT_PEERS,
    fast_clues,
    memory_clues,
    temperature_clues,
)
from trainbench.judging.diagnosis.peer_gaps import peer_gap
from trainbench.judging.diagnosis.subject import NodeContext, by_gpu, runs_beside
from trainbench.judging.node_runs import by_group, choice_of
from trainbench.judging.peers.node_verdicts import lone_groups, other_work
from trainbench.planning.nodes import GpuNode
from trainbench.pods.pod_end import EndKind
from trainbench.results.fault_isolation import BROKEN_RESULT

CAUSE_UNKNOWN, UNSTEADY = "cause_unknown", "unsteady"
_UNKNOWN = {
    Side.SLOW: (
        "no measured figure distinguishes the node from its peers",
        "repeat the check on this node and a good one; if it stays, look at the host: dmesg, BIOS, cooling",
    ),
    Side.FAST: ("no measured figure explains why it is faster than its peers", LOOK_AT_PEERS),
}
_UNKNOWN_MEMORY = (
    "versions, execution and GPU are those of its peers, but it allocated another amount of memory",
    "repeat the run; if it stays, compare both results' `chosen` and the images' digests",
)
_UNKNOWN_SCATTER = (
    "only its scatter distinguishes the node from its peers",
    "repeat the check on this node; if it stays, look for what runs there at times: dmesg, cron, other pods",
)
_NEXT_STEP = {
    Status.OOM: "see which process holds GPU memory on this node; if all nodes fail, use a smaller micro-batch",
    Status.INVALID_LOSS: "repeat the run; NaN on one node alone points at its GPU: check ECC counters",
    Status.TIMEOUT: "read the pod's last log lines for the phase it hung in, then repeat",
    Status.INCOMPLETE: "find out who ended the pod (eviction, preemption, node restart), then repeat",
    Status.ERROR: "read the error and the pod's log",
}
# By how the pod ended, where the cluster reported it.
_NEXT_STEP_OF_KIND: dict[str, str] = {
    EndKind.EVICTED: "see why the node could not keep the pod (kubectl describe node: pressure, taints), then repeat",
    EndKind.VANISHED: "ask who deletes pods in this namespace (the audit log knows), then repeat",
    EndKind.API: "check the Kubernetes API, then repeat",
    EndKind.UNAUTHORIZED: "renew the credentials of the Airflow connection, then repeat",
    EndKind.QUOTA: "raise the namespace's ResourceQuota, or run fewer pods at once; the node is not at fault",
    EndKind.UNSCHEDULABLE: "compare the node's labels, taints and free resources with the pod's requests",
    EndKind.NO_IMAGE: "see whether the node reaches the registry, and whether the image and its secret are right",
    EndKind.NOT_STARTED: "read the pod's events: a start waits for runtime class, device plugin and volumes",
    EndKind.OUT_OF_MEMORY: "raise the pod's memory (TRAINBENCH_MEMORY_GIB), or see what else fills the node's memory",
    EndKind.DEADLINE: "read the pod's last log lines for the phase it hung in, then repeat",
    EndKind.REFUSED: "run `trainbench doctor`: it names the right or the field that is refused",
    OTHER_WORK: "do not train on it: compare weights, data and image with its peers', then test its GPU memory and ECC",
    BROKEN_RESULT: "report the traceback in the log of the task with the result.json of the run",
}


def diagnose(
    groups: Sequence[GroupVerdict], results: Sequence[RunResult], known: Sequence[GpuNode] = ()
) -> tuple[Finding, ...]:
    """Findings in the order of the groups and nodes; `category` is the likely cause, or the state without one.

    `known`: the nodes as the cluster listed them before the first run. A node with independent GPUs gets a finding for
    each GPU in the node's state, up to MAX_GPUS. Groups that ran on one node only get none.
    """
    lone = {id(group) for group in lone_groups(groups)}
    of_group = grouped((result.spec.identity.group_id, result) for result in results)
    troubles = {node.name: node.troubles for node in known}
    return tuple(
        _diagnosis(one, NodeContext(group, of_group.get(group.group_id, ()), troubles.get(node.node, ())))
        for group in groups
        if id(group) not in lone
        for node in group.nodes
        if node.state in _DIAGNOSES
        for one in by_gpu(node)
    )


def _diagnosis(node: NodeVerdict, scene: NodeContext) -> Finding:
    """The finding on the node's state, with the figures that decide it."""
    figures = tuple(metric for metric in node.metrics if metric.state is node.state)
    common = {"group_id": scene.group.group_id, "evidence": figures, "is_drill": node.is_drill}
    return _DIAGNOSES[node.state](node, scene).model_copy(update=common)


def other_execution_findings(results: Sequence[RunResult]) -> tuple[Finding, ...]:
    """Findings on nodes whose program chose other work than their peers'; from runs on one node only."""
    on_one_node = [result for result in results if result.spec.placement.nodes == 1]
    return tuple(
        Finding(
            level=Level.WARNING,
            category="chose_other_work",
            nodes=(member.node,),
            measured=listing(dict.fromkeys(choice_of(run) for run in member.strays)),
            expected=f"{member.choice}, as on most nodes",
            summary=f"has {count(len(member.strays), 'run')} that cannot be compared: {other_work(member)}",
            resolution="see in the result why it was chosen, and what else holds GPU memory on this node; or give the "
            "micro-batch and the checkpointing instead of 'auto'",
        )
        for members in by_group(on_one_node, ()).values()
        for member in members
        if member.strays
    )


def _breach(node: NodeVerdict, scene: NodeContext) -> Finding:
    clues, off_pct = _clues_of(node, scene)
    first = clues[0]
    unsure = {
        Confirmation.PENDING: "; not yet confirmed by a re-run",
        Confirmation.INCONCLUSIVE: "; the re-run decided nothing",
        Confirmation.NOT_PLANNED: "; no re-run was planned",
    }.get(node.confirmation, "")
    further = f" (also: {'; '.join(_also(clue, off_pct) for clue in clues[1:])})" if len(clues) > 1 else ""
    return Finding(
        level=Level.ERROR,
        category=first.category,
        nodes=(node.node,),
        measured="; ".join(filter(None, (*map(_deviation, _breaching(node)), first.measured))),
        expected="; ".join(filter(None, (*map(_limit, _breaching(node)), first.expected))),
        summary=f"is in breach: {node.reason}{unsure}",
        cause=f"{_sentence(cause_with_share(first, off_pct))}{further}",
        clues=tuple(clues),
        resolution=first.resolution,
    )


def _clues_of(node: NodeVerdict, scene: NodeContext) -> tuple[list[Clue], float]:
    """At least one clue, the likeliest cause first, and the deviation of samples/s that they explain."""
    own, peers = runs_beside(node, scene)
    breaching = _breaching(node)
    rate = next((metric for metric in breaching if metric.metric is Metric.SAMPLES_PER_SECOND), None)
    off_pct = abs(rate.deviation or 0.0) if rate else 0.0
    case = Case(own, peers, off_pct, scene.troubles)
    clues: list[Clue] = []
    for metric in breaching:
        clues += _of_metric(metric, case)
    if node.is_unsteady and rate is None:  # another metric is in breach: what makes it unsteady is reported with it
        clues += slow_clues(case)
    if is_hot := THERMAL.category in {clue.category for clue in clues}:  # the heat is reported with it
        clues = [clue for clue in clues if clue.category not in ("cooling", "hot")]
    if rate and rate.side is Side.SLOW and not is_hot:  # what is slow draws less power
        clues = [clue for clue in clues if clue.category not in ("low_power", "cooler")]
    if absent := [metric for metric in node.metrics if metric.state is State.BREACH and metric.value is None]:
        clues.append(_unmeasured(absent))
    return list({clue.category: clue for clue in reversed(clues)}.values())[::-1], off_pct


def _of_metric(metric: MetricVerdict, case: Case) -> tuple[Clue, ...]:
    """Clues for one metric, never empty: `cause_unknown` comes first where no clue explains enough."""
    if metric.metric is Metric.TEMPERATURE_C:
        return temperature_clues(case) or (_unknown("its temperature is not in the results", "read it on the node"),)
    if metric.metric is Metric.MEMORY_GB:
        return memory_clues(case) or (_unknown(*_UNKNOWN_MEMORY),)
    slow = metric.side is not Side.FAST
    clues = slow_clues(case) if slow else fast_clues(case)
    if clues and not explains_nothing(clues[0], case.off_pct):
        return clues
    return (_unknown(*_UNKNOWN[Side.SLOW if slow else Side.FAST]), *clues)


def _also(clue: Clue, off_pct: float) -> str:
    return f"{clue.cause}, too little to explain it" if explains_nothing(clue, off_pct) else clue.cause


def _unknown(why: str, resolution: str) -> Clue:
    return Clue(category=CAUSE_UNKNOWN, measured="", expected="", cause=f"cause unknown: {why}", resolution=resolution)


def _failed(node: NodeVerdict, scene: NodeContext) -> Finding:
    own = [run for run in scene.runs if run.spec.identity.node == node.node]
    bad = next((run for run in own if run.status is not Status.OK), None)
    status = bad.status if bad else Status.ERROR
    kind = bad.error.kind if bad and bad.error else ""
    return Finding(
        level=Level.ERROR,
        category=f"run_{status.value}",
        nodes=(node.node,),
        measured=f"{sum(run.status is not Status.OK for run in own)} of {len(own)} runs failed",
        expected="0",
        summary=f"gave no valid result: {node.reason}",
        cause=_cluster_troubles(scene.troubles),
        resolution=_NEXT_STEP_OF_KIND.get(kind, _NEXT_STEP[status]),
    )


def _cluster_troubles(troubles: Sequence[str]) -> str | None:
    return f"The cluster says of the node: {listing(troubles)}" if troubles else None


def _missing(node: NodeVerdict, scene: NodeContext) -> Finding:
    return Finding(
        level=Level.ERROR,
        category="node_missing",
        nodes=(node.node,),
        measured="no result",
        expected="at least one",
        summary="was expected, but gave no result",
        cause=_cluster_troubles(scene.troubles),
        resolution="see whether the node is Ready and has free GPUs, and read the events of its pod",
    )


def _unsteady(node: NodeVerdict, scene: NodeContext) -> Finding:
    """Clues for a node whose own noise exceeds the limit, ranked as for a slow node."""
    own, peers = runs_beside(node, scene)
    clues = slow_clues(Case(own, peers, 0.0, scene.troubles)) or (_unknown(*_UNKNOWN_SCATTER),)
    first = clues[0]
    further = f" (also: {'; '.join(clue.cause for clue in clues[1:])})" if len(clues) > 1 else ""
    return Finding(
        level=Level.WARNING,
        category=UNSTEADY,
        nodes=(node.node,),
        measured="; ".join(filter(None, (f"scatter {figure(node.unsteady_factor, 3)} times", first.measured))),
        expected="; ".join(filter(None, ("scatter as its peers'", first.expected))),
        summary=f"cannot be judged: {node.reason}",
        cause=f"{_sentence(first.cause)}{_lowest_clock(own, peers)}{further}",
        clues=tuple(clues),
        resolution=first.resolution,
    )


def _lowest_clock(own: Sequence[RunResult], peers: Sequence[RunResult]) -> str:
    lowest = peer_gap(own, peers, SM_CLOCK_MIN_MHZ.value)
    if lowest is None or lowest.pct > -MIN_CLOCK_GAP_PCT:
        return ""
    return f"; its SM clock fell to {lowest.own:.0f} MHz at the lowest, its peers' to {lowest.peers:.0f}"


def _insufficient(node: NodeVerdict, scene: NodeContext) -> Finding:
    if node.is_unsteady:
        return _unsteady(node, scene)
    doubtful = [metric for metric in node.metrics if metric.state is State.INSUFFICIENT]
    too_noisy = any(metric.noise is not None for metric in doubtful)
    resolution = (
        "run more rounds, or on a quieter machine" if too_noisy else "check at least 3 nodes of this kind together"
    )
    return Finding(
        level=Level.WARNING,
        category="too_noisy" if too_noisy else "too_few_nodes",
        nodes=(node.node,),
        measured="; ".join(map(_deviation, doubtful)),
        expected="; ".join(map(_limit, doubtful)),
        summary=f"cannot be judged: {node.reason}",
        resolution=resolution,
    )


def _notice(node: NodeVerdict, _: NodeContext) -> Finding:
    noticed = [metric for metric in node.metrics if metric.state is State.NOTICE]
    return Finding(
        level=Level.INFO,
        category="not_confirmed",
        nodes=(node.node,),
        measured="; ".join(map(_deviation, noticed)),
        expected="; ".join(map(_limit, noticed)),
        summary=f"was outside the limits once and not in its re-run: {node.reason}",
        resolution="nothing now; if it recurs, find what disturbs the node",
    )


def _no_baseline(node: NodeVerdict, _: NodeContext) -> Finding:
    return Finding(
        level=Level.INFO,
        category="no_baseline",
        nodes=(node.node,),
        measured="too few past figures",
        expected="past figures of the same work",
        summary=f"cannot be judged: {node.reason}",
        resolution="run the check on a few more nights, or compare with peers",
    )


_DIAGNOSES: dict[State, Callable[[NodeVerdict, NodeContext], Finding]] = {
    State.BREACH: _breach,
    State.FAILED: _failed,
    State.MISSING: _missing,
    State.INSUFFICIENT: _insufficient,
    State.NOTICE: _notice,
    State.NO_BASELINE: _no_baseline,
}


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
    return f"{metric.metric.value} {signed(metric.deviation, UNITS[metric.metric])}"


def _limit(metric: MetricVerdict) -> str:
    return f"± {metric.limit:g}{UNITS[metric.metric]}"


def _sentence(text: str) -> str:
    return text[:1].upper() + text[1:]
