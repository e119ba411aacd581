"""The stage of a pod that a task waits for."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from enum import StrEnum
from typing import Any

from trainbench.pods.time_limits import due_of, has_ended, is_late

STARTS = (None, "ContainerCreating", "PodInitializing")  # reasons of a container that waits and will run


class Stage(StrEnum):
    """`STUCK`: placed, and a container cannot start, as without its image. `LEAVING`: it was deleted and has not ended
    yet. `OVER`: its program ended, or its node should have ended it.
    """

    QUEUED = "queued"
    STARTING = "starting"
    STUCK = "stuck"
    RUNNING = "running"
    LEAVING = "leaving"
    OVER = "over"


def stage_of(pod: Mapping[str, Any], container: str, now: datetime) -> Stage:
    """The stage of a pod (the API's JSON). `container`: the one with the program; others may outlive it."""
    status = pod.get("status") or {}
    if has_ended(pod, container) or is_late(due_of(pod), now):
        return Stage.OVER
    if (pod.get("metadata") or {}).get("deletionTimestamp"):
        return Stage.LEAVING
    ours: Mapping[str, Any] = next(
        (each for each in status.get("containerStatuses") or () if each["name"] == container), {}
    )
    if "running" in (ours.get("state") or {}):
        return Stage.RUNNING
    if any(_waits_for(each) not in STARTS for each in status.get("containerStatuses") or ()):
        return Stage.STUCK
    conditions = status.get("conditions") or ()
    is_placed = any(each["type"] == "PodScheduled" and each["status"] == "True" for each in conditions)
    return Stage.STARTING if is_placed or status.get("phase") == "Running" else Stage.QUEUED


def _waits_for(container: Mapping[str, Any]) -> str | None:
    waiting: Mapping[str, Any] = (container.get("state") or {}).get("waiting") or {}
    return waiting.get("reason")
