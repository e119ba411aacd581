"""The node that a pod fits on, and the scheduler's own message when it fits on none."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from tests.standin.quantities import quantity

Object = Mapping[str, Any]
SELECTOR_MISMATCH = "node(s) didn't match Pod's node affinity/selector"


class Unschedulable(Exception):
    """The message of the pod's PodScheduled condition and of its FailedScheduling event."""


def place(pod: Object, nodes: Sequence[Object], pods: Iterable[Object]) -> str:
    """The node with the most free room for the pod's GPUs. Raises Unschedulable."""
    if not nodes:
        raise Unschedulable("no nodes available to schedule pods")
    for volume in pod["spec"].get("volumes") or []:
        if "persistentVolumeClaim" in volume:  # the stand-in has none
            claim = f'persistentvolumeclaim "{volume["persistentVolumeClaim"]["claimName"]}" not found'
            helpless = f"preemption: 0/{len(nodes)} nodes are available: {len(nodes)} Preemption is not helpful"
            raise Unschedulable(f"0/{len(nodes)} nodes are available: {claim}. {helpless} for scheduling.")
    placed = [other for other in pods if occupies(other)]
    refusals: dict[str, list[str]] = {}
    for node in nodes:
        reasons = _refusal(pod, node, [p for p in placed if p["spec"]["nodeName"] == node["metadata"]["name"]])
        if not reasons:
            return str(node["metadata"]["name"])
        refusals[node["metadata"]["name"]] = reasons
    counts = Counter(reason for reasons in refusals.values() for reason in reasons)
    listed = ", ".join(sorted(f"{count} {reason}" for reason, count in counts.items()))
    raise Unschedulable(f"0/{len(nodes)} nodes are available: {listed}. {_preemption(pod, refusals)}")


def occupies(pod: Object) -> bool:
    """Whether the pod holds resources of its node."""
    return bool(pod["spec"].get("nodeName")) and pod["status"]["phase"] not in ("Succeeded", "Failed")


def requests(pod: Object) -> dict[str, float]:
    """The sum of its containers' requests."""
    total: Counter[str] = Counter()
    for container in pod["spec"]["containers"]:
        resources = container.get("resources") or {}
        own = {**(resources.get("limits") or {}), **(resources.get("requests") or {})}
        total.update({name: quantity(value) for name, value in own.items()})
    return dict(total)


def _refusal(pod: Object, node: Object, there: Sequence[Object]) -> list[str]:
    """The reasons of the first filter that refuses, in the real scheduler's order of filters."""
    spec = node.get("spec", {})
    tolerations = pod["spec"].get("tolerations", [])
    if spec.get("unschedulable") and not is_tolerated(
        {"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"}, tolerations
    ):
        return ["node(s) were unschedulable"]
    for taint in spec.get("taints", []):
        if taint["effect"] in ("NoSchedule", "NoExecute") and not is_tolerated(taint, tolerations):
            return [f"node(s) had untolerated taint {{{taint['key']}: {taint.get('value', '')}}}"]
    if not _selected(pod, node):
        return [SELECTOR_MISMATCH]
    used: Counter[str] = Counter()
    for other in there:
        used.update(requests(other))
    room = node["status"]["allocatable"]
    short = [
        name for name, need in requests(pod).items() if need > 0 and quantity(room.get(name, 0)) - used[name] < need
    ]
    return [f"Insufficient {name}" for name in sorted(short)]


def _selected(pod: Object, node: Object) -> bool:
    labels = node["metadata"].get("labels", {})
    if any(labels.get(key) != value for key, value in (pod["spec"].get("nodeSelector") or {}).items()):
        return False
    affinity = (pod["spec"].get("affinity") or {}).get("nodeAffinity") or {}
    required = affinity.get("requiredDuringSchedulingIgnoredDuringExecution")
    return required is None or any(_term(term, node) for term in required["nodeSelectorTerms"])


def _term(term: Object, node: Object) -> bool:
    labels, expressions = node["metadata"].get("labels", {}), term.get("matchExpressions", [])
    return bool(expressions) and all(_expression(expression, labels) for expression in expressions)


def _expression(expression: Object, labels: Mapping[str, str]) -> bool:
    value, values = labels.get(expression["key"]), expression.get("values", [])
    holds = {"In": value in values, "NotIn": value not in values, "Exists": value is not None}
    return holds.get(expression["operator"], value is None)  # DoesNotExist


def _preemption(pod: Object, refusals: Mapping[str, list[str]]) -> str:
    if pod["spec"].get("preemptionPolicy") == "Never":
        return "preemption: not eligible due to preemptionPolicy=Never."
    helpful = sum(1 for reasons in refusals.values() if reasons[0].startswith("Insufficient"))
    parts = [f"{helpful} No preemption victims found for incoming pod"] if helpful else []
    if len(refusals) > helpful:
        parts.append(f"{len(refusals) - helpful} Preemption is not helpful for scheduling")
    return f"preemption: 0/{len(refusals)} nodes are available: {', '.join(parts)}."


def is_tolerated(taint: Object, tolerations: Iterable[Object]) -> bool:
    return any(_tolerates(toleration, taint) for toleration in tolerations)


def stay_s(pod: Object, taints: Iterable[Object]) -> float | None:
    """How long the pod may stay on a node with these taints: 0 if it does not tolerate one of effect NoExecute, else
    its smallest `tolerationSeconds`; None: for ever."""
    limits: list[float] = []
    for taint in taints:
        if taint["effect"] != "NoExecute":
            continue
        bearing = [t for t in pod["spec"].get("tolerations", []) if _tolerates(t, taint)]
        if not bearing:
            return 0.0
        limits += [max(0.0, t["tolerationSeconds"]) for t in bearing if t.get("tolerationSeconds") is not None]
    return min(limits, default=None)


def _tolerates(toleration: Object, taint: Object) -> bool:
    if toleration.get("effect") not in (None, "", taint["effect"]):
        return False
    if toleration.get("operator", "Equal") == "Exists":
        return toleration.get("key") in (None, "", taint["key"])
    return toleration.get("key") == taint["key"] and toleration.get("value", "") == taint.get("value", "")
