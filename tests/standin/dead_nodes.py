"""The control plane's view of a node whose kubelet no longer reports, and when it evicts the pods there."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tests.standin.defaults import UNREACHABLE
from tests.standin.events import Recorder
from tests.standin.pod_status import set_condition
from tests.standin.store import Store, timestamp

Object = dict[str, Any]


def report(store: Store, events: Recorder, name: str) -> None:
    """As the node controller does 40 s after the last report: conditions and taints of the node, and of its pods only
    that they are not ready.
    """
    node = store.get("nodes", "", name)
    ready = next(c for c in node["status"]["conditions"] if c["type"] == "Ready")
    ready |= {
        "status": "Unknown",
        "reason": "NodeStatusUnknown",
        "message": "Kubelet stopped posting node status.",
        "lastTransitionTime": timestamp(),
    }
    taints = [
        {"key": UNREACHABLE, "effect": effect, "timeAdded": timestamp()} for effect in ("NoSchedule", "NoExecute")
    ]
    node["spec"]["taints"] = [*_other_taints(node), *taints]
    store.touch("nodes", node)
    for pod in store.all("pods"):
        if pod["spec"].get("nodeName") == name and pod["status"]["phase"] not in ("Succeeded", "Failed"):
            events.record(pod, "Warning", "NodeNotReady", "Node is not ready")
            set_condition(pod["status"], "Ready", False)
            store.touch("pods", pod)


def report_well(store: Store, name: str) -> None:
    node = store.get("nodes", "", name)
    ready = next(c for c in node["status"]["conditions"] if c["type"] == "Ready")
    ready |= {"status": "True", "reason": "KubeletReady", "message": "kubelet is posting ready status"}
    ready["lastTransitionTime"] = timestamp()
    node["spec"]["taints"] = _other_taints(node)
    store.touch("nodes", node)


def tolerated_s(pod: Mapping[str, Any]) -> float | None:
    """How long the pod stays bound to a node that does not answer: the shortest of its tolerations; None: for ever."""
    matching = [
        toleration
        for toleration in pod["spec"].get("tolerations", [])
        if toleration.get("key", "") in ("", UNREACHABLE) and toleration.get("effect", "") in ("", "NoExecute")
    ]
    if not matching:
        return 0.0
    limits = [toleration["tolerationSeconds"] for toleration in matching if "tolerationSeconds" in toleration]
    return float(min(limits)) if limits else None


def _other_taints(node: Mapping[str, Any]) -> list[Object]:
    return [taint for taint in node["spec"].get("taints", []) if taint["key"] != UNREACHABLE]
