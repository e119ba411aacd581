"""Whether a pod could be placed on a node that is empty: by the node's rules, and by what its containers request.

Quantities are written as Kubernetes does ("500m", "8Gi"); sums are in cores, bytes and pieces.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from decimal import Decimal
from typing import Any

KEEPS_OUT = frozenset({"NoSchedule", "NoExecute"})
NODE_STATE = "node.kubernetes.io/"  # taints of a node that is cordoned, not ready or short of something
MAKE_IT_WELCOME = (
    "add what it wants to the Pod template (docs/pod-template.md), or choose other nodes by TRAINBENCH_NODE_SELECTOR"
)
MAKE_IT_FIT = (
    "lower the requests of the pod (a LimitRange's defaults count, "
    "`kubectl describe limitrange`), or leave the node out"
)


def refused_by(node: Mapping[str, Any], pod: Mapping[str, Any]) -> str | None:
    """Why the scheduler would not place the pod there, as "its taint dedicated=ml:NoSchedule is not tolerated"; None:
    nothing of this kind. Taints of the node's state are not looked at (https://kubernetes.io/docs/concepts/scheduling-eviction/taint-and-toleration/).
    """
    spec = pod["spec"]
    tolerations = spec.get("tolerations") or ()
    for taint in node.get("spec", {}).get("taints") or ():
        counts = taint["effect"] in KEEPS_OUT and not taint["key"].startswith(NODE_STATE)
        if counts and not any(_tolerates(toleration, taint) for toleration in tolerations):
            value = f"={taint['value']}" if taint.get("value") else ""
            return f"its taint {taint['key']}{value}:{taint['effect']} is not tolerated"
    labels = node["metadata"].get("labels") or {}
    for key, value in (spec.get("nodeSelector") or {}).items():
        if labels.get(key) != value:
            return f"the pods' nodeSelector wants the label {key}={value}, it has {labels.get(key, 'none')}"
    return None


def _tolerates(toleration: Mapping[str, Any], taint: Mapping[str, Any]) -> bool:
    if toleration.get("effect") not in (None, "", taint["effect"]):
        return False
    if toleration.get("operator", "Equal") == "Exists":
        return toleration.get("key") in (None, "", taint["key"])
    return bool(toleration.get("key") == taint["key"] and toleration.get("value", "") == taint.get("value", ""))


def pod_requests(pod: Mapping[str, Any]) -> dict[str, Decimal]:
    """Resource -> what the scheduler reserves: the sum over all containers, or the largest
    init container where that is more (https://kubernetes.io/docs/concepts/workloads/pods/init-containers).
    A limit without a request counts as the request, and the overhead of a RuntimeClass is added.
    """
    spec, sums = pod["spec"], dict[str, Decimal]()
    overhead = {"resources": {"requests": spec.get("overhead") or {}}}
    for container in (*(spec.get("containers") or ()), overhead):
        for name, value in _requested(container).items():
            sums[name] = sums.get(name, Decimal(0)) + value
    for container in spec.get("initContainers") or ():
        for name, value in _requested(container).items():
            sums[name] = max(sums.get(name, Decimal(0)), value)
    return sums


def never_fits(pod: Mapping[str, Any], node: Mapping[str, Any], without: Collection[str] = ()) -> str | None:
    """Why the empty node could not take the pod, as "cpu: requested 2.1 (base 2, proxy 0.1), allocatable 2"; None
    when it could. `without`: resources that are not compared.
    """
    allocatable = node.get("status", {}).get("allocatable", {})
    short = [
        f"{name}: requested {_written(name, needed)}{_shares(pod, name)}, allocatable {_written(name, room)}"
        for name, needed in sorted(pod_requests(pod).items())
        if name not in without and needed > (room := _quantity(allocatable.get(name, 0)))
    ]
    return "; ".join(short) or None


def _shares(pod: Mapping[str, Any], name: str) -> str:
    """ " (base 2, proxy 0.1)" where several containers request the resource, else ""."""
    of_each = [
        f"{container.get('name', 'unnamed')} {_written(name, requested[name])}"
        for container in pod["spec"].get("containers") or ()
        if name in (requested := _requested(container))
    ]
    return f" ({', '.join(of_each)})" if len(of_each) > 1 else ""


def _requested(container: Mapping[str, Any]) -> dict[str, Decimal]:
    resources = container.get("resources") or {}
    given = {**(resources.get("limits") or {}), **(resources.get("requests") or {})}
    return {name: _quantity(value) for name, value in given.items()}


def _quantity(value: Any) -> Decimal:
    from kubernetes.utils.quantity import parse_quantity  # type: ignore[import-untyped]  # takes a second to import

    return Decimal(parse_quantity(value))


def _written(name: str, value: Decimal) -> str:
    is_bytes = name in ("memory", "ephemeral-storage") or name.startswith("hugepages-")
    if not is_bytes:
        return f"{value.normalize():f}"
    return f"{value / 2**20:.0f} MiB" if 0 < value < 2**30 else f"{value / 2**30:.1f} GiB"
