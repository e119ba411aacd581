"""One finding for each node that is neither well nor busy: its reason, the likely cause, and the next step."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from bench_image.contract.result import RunResult, Status
from trainbench.core.formats import listing, noise_share, signed
from trainbench.core.grouping import grouped
from trainbench.core.states import METRIC_NAMES, METRIC_UNITS, TRAITS
from trainbench.core.verdicts import (
    Against,
    Clue,
    Comparison,
    Finding,
    GpuVerdict,
    GroupVerdict,
    Level,
    Metric,
    NodeVerdict,
    Verdict,
    Why,
)
from trainbench.figure_catalogue.run_figures import SM_CLOCK_MIN_MHZ
from trainbench.judging import gpu_runs
from trainbench.judging.clues import (
    EXECUTION,
    MIN_CLOCK_GAP_PCT,
    THERMAL,
    VERSIONS,
    Case,
    cause_with_share,
    explains_nothing,
    memory_clues,
    slow_clues,
    temperature_clues,
)
from trainbench.judging.node_findings import LEVELS, plain_finding
from trainbench.judging.node_runs import GpuPlace, Key, choice_of, gpu_name
from trainbench.planning.nodes import GpuNode
from trainbench.pods.pod_end import EndKind
from trainbench.results.fault_isolation import BROKEN_RESULT

CAUSE_UNKNOWN = "cause_unknown"
MAX_GPUS = 3  # of a node that get a finding each; the node's reason counts the others
MAX_PEERS = 100  # peers' runs to compare with: their median needs no more
_UNKNOWN = {
    Metric.SAMPLES_PER_SECOND: "no measured figure distinguishes the node from its peers",
    Metric.MEMORY_GB: "versions, execution and GPU are those of its peers, but it allocated more memory",
    Metric.TEMPERATURE_C: "its peers are as hot, or their temperature is not known",
}
# By how the pod ended, where the cluster reported it, else by the run's status.
_NEXT_STEP: dict[str, str] = {
    Status.OOM: "see which process holds GPU memory on this node; if all nodes fail, use a smaller micro-batch",
    Status.INVALID_LOSS: "repeat the run; NaN on one node alone points at its GPU: check ECC counters",
    Status.TIMEOUT: "read the pod's last log lines for the phase it hung in, then repeat",
    Status.INCOMPLETE: "read the end of pod.log in the store, or find out who ended the pod, then repeat",
    Status.ERROR: TRAITS[Why.FAILED].next_step,
    EndKind.EVICTED: "see why the node could not keep the pod (kubectl describe node: pressure, taints), then repeat",
    EndKind.NODE_LOST: "see why the node does not answer (power, network, kubelet), then repeat",
    EndKind.VANISHED: "ask who deletes pods in this namespace (the audit log knows), then repeat",
    EndKind.API: "check the Kubernetes API, then repeat",
    EndKind.UNAUTHORIZED: "renew the credentials of the Airflow connection, then repeat",
    EndKind.QUOTA: "raise the namespace's ResourceQuota, or run fewer pods at once; the node is not at fault",
    EndKind.NO_NODE: "compare its name with `kubectl get nodes`, and name it so in the parameter 'nodes'",
    EndKind.UNSCHEDULABLE: "compare the node's labels, taints and free resources with the pod's requests",
    EndKind.NO_IMAGE: "see whether the node reaches the registry, and whether the image and its secret are right",
    EndKind.NOT_STARTED: "read the pod's events: a start waits for runtime class, device plugin and volumes",
    EndKind.OUT_OF_MEMORY: "raise the pod's memory (TRAINBENCH_MEMORY_GIB), or see what else fills the node's memory",
    EndKind.REFUSED: "run `trainbench doctor`: it names the right or the field that is refused",
    BROKEN_RESULT: "report the traceback in the log of the task with the result.json of the run",
}


class Scene(NamedTuple):
    """A node's group, the group's runs, and what the cluster reports of the node."""

    group: GroupVerdict
    runs: Sequence[RunResult]
    troubles: Sequence[str]


def diagnose(
    groups: Sequence[GroupVerdict], results: Sequence[RunResult], known: Sequence[GpuNode] = ()
) -> tuple[Finding, ...]:
    """Findings in the order of the groups and nodes; `category` is the likely cause, or the reason without one.

    `known`: the nodes as the cluster listed them before the first run. A node with independent GPUs gets a finding for
    each GPU with the node's reason, up to MAX_GPUS; a pair gets one together. Of several groups, one that ran on one
    node only gets none for having nothing to compare with.
    """
    of_group = grouped((result.spec.identity.group_id, result) for result in results)
    troubles = {node.name: node.troubles for node in known}
    findings: list[Finding] = []
    for group in groups:
        runs = of_group.get(group.group_id, ())
        is_lone = len(groups) > 1 and len(group.nodes) == 1
        pair = [node for node in group.nodes if node.why is Why.PAIR]
        for node in group.nodes:
            if node.why not in _DIAGNOSES or (is_lone and node.why is Why.NOTHING_TO_COMPARE):
                continue
            if node in pair and node is not min(pair, key=_slow_pct):
                continue  # the finding on its slower peer names it
            scene = Scene(group, runs, troubles.get(node.node, ()))
            for one in _by_gpu(node):
                finding = _DIAGNOSES[one.why](one, scene)
                nodes = tuple(each.node for each in pair) if one.why is Why.PAIR else (node.node,)
                findings.append(finding.model_copy(update={"group_id": group.group_id, "nodes": nodes}))
    return tuple(findings)


def difference_findings(results: Sequence[RunResult]) -> tuple[Finding, ...]:
    """Findings on nodes with another execution, or other versions, than most runs of their work, slow or not."""
    works = grouped(
        ((run.spec.identity.group_id, gpu_name(run), choice_of(run)), run) for run in results if run.status is Status.OK
    )
    return tuple(
        Finding(
            level=level,
            category=clue.category,
            nodes=(node,),
            measured=clue.measured,
            expected=f"{clue.expected}, as on most of its peers",
            summary=f"{summary}: {clue.cause}",
            resolution=clue.resolution,
        )
        for runs in works.values()
        for level, kind, summary in _DIFFERENCES
        for usual in [kind.usual(runs)]
        for node, own in grouped((run.spec.identity.node, run) for run in runs).items()
        for clue in kind.clues(own, usual)
    )


_DIFFERENCES = (
    (Level.WARNING, EXECUTION, "executes the same work otherwise, so that speeds are not comparable"),
    (Level.INFO, VERSIONS, "has other versions"),
)


# --- the subject: a node, or one GPU of it ----------------------------------------------------------------------------


def _by_gpu(node: NodeVerdict) -> Sequence[NodeVerdict]:
    """The node, or each of its GPUs with the node's reason, the worst first, as a node of one GPU."""
    bad = [gpu for gpu in node.gpus if gpu.why is node.why and gpu.state is node.state]
    return [
        node.model_copy(
            update={
                **{name: getattr(gpu, name) for name in type(gpu).model_fields if name in NodeVerdict.model_fields},
                "reason": f"{gpu.name}: {gpu.reason}",
                "gpus": (gpu,),
            }
        )
        for gpu in sorted(bad, key=lambda gpu: (_slow_pct(gpu), gpu.index))[:MAX_GPUS]
    ] or [node]


def _slow_pct(verdict: NodeVerdict | GpuVerdict) -> float:
    """The deviation of samples/s that counts: from the peers, else the lowest; of what is off where anything is."""
    rates = [c for c in _rates(verdict) if c.is_off] or _rates(verdict)
    peers = [c for c in rates if c.against is Against.PEERS]
    return min((c.deviation for c in peers or rates), default=0.0)


def _case(node: NodeVerdict, scene: Scene) -> Case:
    """The valid runs of the node, and of its peers. Drilled peers are left out; red ones too, while others are left."""
    group = scene.group
    judged: list[tuple[Key, RunResult]] = []
    for run in scene.runs:
        parts = gpu_runs.by_gpu(run)
        name = run.spec.identity.node
        judged += [(Key(name, place), part) for place, part in parts.items()] or [(Key(name), run)]
    own_key = Key(node.node, GpuPlace(node.gpus[0].index, node.gpus[0].uuid) if node.gpus else None)
    valid = [
        (key, run)
        for key, run in judged
        if run.status is Status.OK and gpu_name(run) == group.gpu_name and group.choice in (None, choice_of(run))
    ]
    bad = {Key(other.node) for other in group.nodes if _is_no_example(other) and not other.gpus}
    bad |= {Key(n.node, GpuPlace(gpu.index, gpu.uuid)) for n in group.nodes for gpu in n.gpus if _is_no_example(gpu)}
    peers = [(key, run) for key, run in valid if key != own_key and not run.spec.drill]
    peers = [(key, run) for key, run in peers if key.node != node.node] or peers
    healthy = [run for key, run in peers if key not in bad] or [run for _, run in peers]
    own = [run for key, run in valid if key == own_key]
    return Case(own, healthy[:: max(len(healthy) // MAX_PEERS, 1)], max(-_slow_pct(node), 0.0), scene.troubles)


def _is_no_example(verdict: NodeVerdict | GpuVerdict) -> bool:
    return verdict.is_red or verdict.why is Why.SHARED


# --- one finding for each reason --------------------------------------------------------------------------------------


def _finding(
    node: NodeVerdict, category: str, shown: Sequence[Comparison] = (), clues: Sequence[Clue] = (), **fields: str | None
) -> Finding:
    """The finding on the node's reason. `shown`: the comparisons in the columns of measured and expected figures."""
    measured = [*map(_deviation, shown), *(clue.measured for clue in clues[:1])]
    expected = [*map(_limit, shown), *(clue.expected for clue in clues[:1])]
    texts = {
        "measured": "; ".join(filter(None, measured)),
        "expected": "; ".join(filter(None, expected)),
        "summary": f"{TRAITS[node.why].one}: {node.reason}",
        "resolution": clues[0].resolution if clues else TRAITS[node.why].next_step,
    }
    return Finding(
        level=LEVELS.get(node.state, Level.INFO),
        category=category,
        nodes=(node.node,),
        why=node.why,
        evidence=node.off,
        clues=tuple(clues),
        is_drill=node.is_drill,
        **texts | fields,
    )


def _deviates(node: NodeVerdict, scene: Scene) -> Finding:
    """Slow, behind, hot or heavy: with the causes of each metric that is off."""
    case = _case(node, scene)
    shown = node.off or [c for c in _rates(node) if c.deviation < 0]
    clues: list[Clue] = []
    for metric in dict.fromkeys(c.metric for c in shown):
        found = _LOOKS[metric](case)
        # `cause_unknown` comes first where no clue explains enough
        if not found or (metric is Metric.SAMPLES_PER_SECOND and explains_nothing(found[0], case.off_pct)):
            clues.append(
                _unknown(_UNKNOWN[metric] if case.peers else "it has no peer to compare its figures with", node)
            )
        clues += found
    if THERMAL.category in {clue.category for clue in clues}:  # the heat is reported with it
        clues = [clue for clue in clues if clue.category not in ("cooling", "hot")]
    clues = list({clue.category: clue for clue in reversed(clues)}.values())[::-1]
    also = (
        f"{clue.cause}, too little to explain it" if explains_nothing(clue, case.off_pct) else clue.cause
        for clue in clues[1:]
    )
    further = f" (also: {'; '.join(also)})" if len(clues) > 1 else ""
    return _finding(
        node,
        clues[0].category,
        shown,
        clues,
        cause=f"{_sentence(cause_with_share(clues[0], case.off_pct))}{further}",
    )


_LOOKS: Mapping[Metric, Callable[[Case], tuple[Clue, ...]]] = {
    Metric.SAMPLES_PER_SECOND: slow_clues,
    Metric.MEMORY_GB: memory_clues,
    Metric.TEMPERATURE_C: temperature_clues,
}


def _unknown(because: str, node: NodeVerdict) -> Clue:
    next_step = TRAITS[node.why].next_step
    return Clue(
        category=CAUSE_UNKNOWN, measured="", expected="", cause=f"nothing explains it: {because}", resolution=next_step
    )


def _unsteady(node: NodeVerdict, scene: Scene) -> Finding:
    case = _case(node, scene)
    clues = slow_clues(case) or (_unknown("only its scatter distinguishes the node from its peers", node),)
    further = f" (also: {'; '.join(clue.cause for clue in clues[1:])})" if len(clues) > 1 else ""
    lowest = case.gap(SM_CLOCK_MIN_MHZ.value)
    fell = ""
    if lowest and lowest.pct <= -MIN_CLOCK_GAP_PCT:
        fell = f"; its SM clock fell to {lowest.own:.0f} MHz at the lowest, its peers' to {lowest.peers:.0f}"
    return _finding(
        node,
        Why.UNSTEADY,
        clues=clues,
        measured=f"a scatter of {noise_share(node.noise_pct)}",
        expected=f"{noise_share(scene.group.noise_pct)}, as its peers",
        cause=f"{_sentence(clues[0].cause)}{fell}{further}",
    )


def _rates(verdict: Verdict) -> list[Comparison]:
    return [c for c in verdict.comparisons if c.metric is Metric.SAMPLES_PER_SECOND]


def _pair(node: NodeVerdict, scene: Scene) -> Finding:
    summary = f"{TRAITS[Why.PAIR].several}: {node.node} has {node.reason}"
    clues = slow_clues(_case(node, scene))
    cause = f"It is not known which one is off. {_sentence(clues[0].cause)}" if clues else None
    return _finding(node, Why.PAIR, _rates(node), summary=summary, cause=cause)


def _gone(node: NodeVerdict, scene: Scene) -> Finding:
    """Failed, or missing: with what the cluster says of the node."""
    own = [run for run in scene.runs if run.spec.identity.node == node.node]
    bad = [run for run in own if run.error]
    of_cluster = f"The cluster says of the node: {listing(scene.troubles)}" if scene.troubles else None
    if node.why is Why.MISSING:
        fields = {"summary": "was expected, but gave no result", "cause": of_cluster}
        return _finding(node, "node_missing", (), (), measured="no result", expected="at least one", **fields)
    status, kind = (bad[0].status, bad[0].error.kind) if bad and bad[0].error else (Status.ERROR, "")
    return _finding(
        node,
        f"run_{status.value}",
        measured=f"{len(bad)} of {len(own)} runs failed",
        expected="0",
        cause=of_cluster,
        resolution=_NEXT_STEP.get(kind) or _NEXT_STEP[status],
    )


_DIAGNOSES: Mapping[Why, Callable[[NodeVerdict, Scene], Finding]] = {
    **dict.fromkeys((Why.SLOW, Why.HOT, Why.HEAVY, Why.BEHIND), _deviates),
    **dict.fromkeys((Why.FAILED, Why.MISSING), _gone),
    **dict.fromkeys(
        (Why.OTHER_NUMBERS, Why.SHARED, Why.NOISY, Why.OTHER_CHOICE, Why.NOTHING_TO_COMPARE, Why.ONCE),
        lambda node, _: plain_finding(node),
    ),
    Why.PAIR: _pair,
    Why.UNSTEADY: _unsteady,
}


def _deviation(c: Comparison) -> str:
    return f"{METRIC_NAMES[c.metric]} {signed(c.deviation, METRIC_UNITS[c.metric])}"


def _limit(c: Comparison) -> str:
    side = "below" if c.metric is Metric.SAMPLES_PER_SECOND else "above"
    return f"at most {c.limit:g}{METRIC_UNITS[c.metric]} {side} {c.source}"


def _sentence(text: str) -> str:
    return text[:1].upper() + text[1:]
