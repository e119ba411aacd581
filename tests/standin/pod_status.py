"""The status of a pod from the states of its containers, by the kubelet's rules."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tests.standin.container import Container
from tests.standin.store import timestamp

Object = dict[str, Any]


def waiting(reason: str, message: str | None = None) -> Object:
    return {"waiting": {"reason": reason} | ({"message": message} if message else {})}


def running(started_at: str) -> Object:
    return {"running": {"startedAt": started_at}}


def terminated(container: Container, started_at: str, container_id: str) -> Object:
    code = container.exit_code or 0
    reason = "OOMKilled" if container.oom_killed else "Error"
    state = {
        "exitCode": code,
        "reason": reason if code else "Completed",
        "startedAt": started_at,
        "finishedAt": timestamp(),
        "containerID": container_id,
    }
    message = container.termination_message()
    return {"terminated": state | ({"message": message} if message else {})}


def initial_status(spec: Mapping[str, Any], node_ip: str) -> Object:
    return {
        "phase": "Pending",
        "startTime": timestamp(),
        "hostIP": node_ip,
        # By name, as the kubelet sorts them.
        "containerStatuses": [_container_status(c) for c in sorted(spec["containers"], key=lambda c: str(c["name"]))],
    }


def phase(status: Mapping[str, Any]) -> str:
    """Pending until every container has started once, whatever the others have done meanwhile."""
    states = [own["state"] for own in status["containerStatuses"]]
    if any("waiting" in state for state in states):
        return "Pending"
    if any("running" in state for state in states):
        return "Running"
    return "Succeeded" if all(state["terminated"]["exitCode"] == 0 for state in states) else "Failed"


def set_condition(
    status: Object, kind: str, is_true: bool, reason: str | None = None, message: str | None = None
) -> bool:
    """Whether anything changed."""
    wanted = {"type": kind, "status": str(is_true)}
    wanted |= ({"reason": reason} if reason else {}) | ({"message": message} if message else {})
    conditions = status.setdefault("conditions", [])
    old = next((c for c in conditions if c["type"] == kind), None)
    if old is not None and {k: v for k, v in old.items() if not k.startswith("last")} == wanted:
        return False
    if old is not None:
        conditions.remove(old)
    conditions.append(wanted | {"lastProbeTime": None, "lastTransitionTime": timestamp()})
    return True


def set_readiness(status: Object) -> None:
    """The conditions that follow from phase and containers."""
    statuses = status["containerStatuses"]
    unready = [own["name"] for own in statuses if not own["ready"]]
    done = status["phase"] in ("Succeeded", "Failed")
    reason = {"Succeeded": "PodCompleted", "Failed": "PodFailed"}.get(status["phase"], "ContainersNotReady")
    message = None if done else f"containers with unready status: [{' '.join(unready)}]"
    set_condition(status, "Initialized", True)
    for kind in ("Ready", "ContainersReady"):
        set_condition(status, kind, not unready, reason if unready else None, message if unready else None)


def _container_status(container: Mapping[str, Any]) -> Object:
    return {
        "name": container["name"],
        "image": container["image"],
        "imageID": "",
        "ready": False,
        "started": False,
        "restartCount": 0,
        "lastState": {},
        "state": waiting("ContainerCreating"),
    }
