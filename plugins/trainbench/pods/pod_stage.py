"""The stage of a pod that a task waits for."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from enum import StrEnum
from typing import Any

from trainbench.pods.time_limits import condition_of, due_of, has_ended, is_late, state_of

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
    if "running" in state_of(pod, container):
        return Stage.RUNNING
    waiting = [(each.get("state") or {}).get("waiting") or {} for each in status.get("containerStatuses") or ()]
    if any(each.get("reason") not in STARTS for each in waiting):
        return Stage.STUCK
    is_placed = condition_of(pod, "PodScheduled").get("status") == "True" or status.get("phase") == "Running"
    return Stage.STARTING if is_placed else Stage.QUEUED
