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


def terminated(container: Container, started_at: str, container_id: str, from_log: bool) -> Object:
    code = container.exit_code or 0
    reason = "OOMKilled" if container.oom_killed else "StartError" if container.start_error else "Error"
    state = {
        "exitCode": code,
        "reason": reason if code else "Completed",
        "startedAt": started_at,
        "finishedAt": timestamp(),
        "containerID": container_id,
    }
    message = container.termination_message(from_log)
    return {"terminated": state | ({"message": message} if message else {})}


def initial_status(spec: Mapping[str, Any], node_ip: str) -> Object:
    reason = "PodInitializing" if spec.get("initContainers") else "ContainerCreating"
    status = {
        "phase": "Pending",
        "startTime": timestamp(),
        "hostIP": node_ip,
        # By name, as the kubelet sorts them; init containers keep their order.
        "containerStatuses": [
            _container_status(c, reason) for c in sorted(spec["containers"], key=lambda c: str(c["name"]))
        ],
    }
    if inits := spec.get("initContainers"):
        status["initContainerStatuses"] = [_container_status(c, "PodInitializing") for c in inits]
    return status


def phase(spec: Mapping[str, Any], status: Mapping[str, Any]) -> str:
    """Pending until every container has started once, whatever the others have done meanwhile."""
    for container, own in zip(spec.get("initContainers", []), status.get("initContainerStatuses", []), strict=True):
        state = own["state"]
        if state.get("terminated", {}).get("exitCode") and container.get("restartPolicy") != "Always":
            return "Failed"
        if "terminated" not in state and not ("running" in state and container.get("restartPolicy") == "Always"):
            return "Pending"
    states = [own["state"] for own in status["containerStatuses"]]
    if any("waiting" in state for state in states):
        return "Pending"
    sidecars = [own["state"] for own in status.get("initContainerStatuses", [])]
    if any("running" in state for state in (*states, *sidecars)):
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
    initialised = all("terminated" in own["state"] or own["ready"] for own in status.get("initContainerStatuses", []))
    set_condition(status, "Initialized", initialised, None if initialised else "ContainersNotInitialized")
    for kind in ("Ready", "ContainersReady"):
        set_condition(status, kind, not unready, reason if unready else None, message if unready else None)


def _container_status(container: Mapping[str, Any], reason: str) -> Object:
    return {
        "name": container["name"],
        "image": container["image"],
        "imageID": "",
        "ready": False,
        "started": False,
        "restartCount": 0,
        "lastState": {},
        "state": waiting(reason),
    }
