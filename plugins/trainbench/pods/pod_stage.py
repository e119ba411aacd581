"""The stage of a pod, from its entry in a list: most pods of a large night only wait and need no own request."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from enum import StrEnum
from typing import Any

from trainbench.pods.time_limits import due_of, is_late

STARTS = (None, "ContainerCreating", "PodInitializing")  # reasons of a container that waits and will run


class Stage(StrEnum):
    """`OTHER`: it failed, was deleted, is late, or cannot start; the pod itself needs a look."""

    QUEUED = "queued"
    STARTING = "starting"
    RUNNING = "running"
    SUCCEEDED = "succeeded"
    OTHER = "other"


def stage_of(pod: Mapping[str, Any], container: str, now: datetime) -> Stage:
    """The stage of a pod (the API's JSON). `container`: the one with the program; the sidecar outlives it."""
    status = pod.get("status") or {}
    statuses = status.get("containerStatuses") or ()
    state = next((each.get("state") or {} for each in statuses if each["name"] == container), {})
    if (pod.get("metadata") or {}).get("deletionTimestamp") or is_late(due_of(pod), now):
        return Stage.OTHER
    if "terminated" in state:
        return Stage.SUCCEEDED if state["terminated"].get("exitCode") == 0 else Stage.OTHER
    if status.get("phase") == "Running":
        return Stage.RUNNING if "running" in state else Stage.OTHER
    if status.get("phase") != "Pending" or any(_reason(each) not in STARTS for each in statuses):
        return Stage.OTHER
    return Stage.STARTING if _is_placed(status) else Stage.QUEUED


def _reason(container: Mapping[str, Any]) -> str | None:
    waiting: Mapping[str, Any] = (container.get("state") or {}).get("waiting") or {}
    return waiting.get("reason")


def _is_placed(status: Mapping[str, Any]) -> bool:
    conditions = status.get("conditions") or ()
    return any(each["type"] == "PodScheduled" and each["status"] == "True" for each in conditions)
