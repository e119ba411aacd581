"""Whether a node's taints and labels let a pod be scheduled there."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

KEEPS_OUT = frozenset({"NoSchedule", "NoExecute"})
NODE_STATE = "node.kubernetes.io/"  # taints of a node that is cordoned, not ready or short of something
MAKE_IT_WELCOME = (
    "add what it wants to the Pod template (docs/pod-template.md), or choose other nodes by TRAINBENCH_NODE_SELECTOR"
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
