"""A pod's stage, and when it must be over, also where the node that should end it no longer answers.

The kubelet enforces a pod's deadline and carries out its deletion. When it is dead, the API goes on to show the pod as
Running (https://kubernetes.io/docs/concepts/architecture/nodes/#condition), so the control plane has to stop waiting by
itself.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import Any, NamedTuple

GRACE_S = 20  # between SIGTERM and SIGKILL
# The program writes its own result on a timeout; the cluster's deadline is the backstop behind it.
DEADLINE_MARGIN_S = 120
LATE_S = 40  # how long after its grace a pod may still be shown: a kubelet tells of an end within seconds
LOG_SILENCE_S = 30  # an answer of which no part comes for so long is given up, and requested again
# For so long after its restart an API server may refuse what is allowed, and show pods as they were before; a node may
# serve half a log.
RESTART_S = 60.0
CONNECT_S = 10  # a request that nobody takes for so long is given up, and repeated
DEAD_AFTER_S = 120  # a pod waits so long for a node that is not ready: a kubelet's restart is shorter
# An API server that is away, or a node that serves no log, is waited for as long: completed pods hold no GPU.
OUTAGE_S = 1800
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


class Due(NamedTuple):
    """When a pod should be gone at the latest, its grace included, and why: "its deletion was requested"."""

    at: datetime
    why: str


def due_of(pod: Mapping[str, Any]) -> Due | None:
    """The earlier of the two moments at which the kubelet must have ended a pod (the API's JSON); None: neither is set.
    Its deletionTimestamp is the end of its grace; activeDeadlineSeconds count from when the kubelet accepted it.
    """
    spec, status = pod.get("spec") or {}, pod.get("status") or {}
    moments = []
    if deletion_at := moment_of((pod.get("metadata") or {}).get("deletionTimestamp")):
        moments.append(Due(deletion_at, "its deletion was requested"))
    started_at, deadline_s = moment_of(status.get("startTime")), spec.get("activeDeadlineSeconds")
    if started_at and deadline_s is not None:
        placed = condition_of(pod, "PodScheduled")
        if placed.get("status") == "True":  # by the control plane's clock, where the node's is behind
            started_at = max(started_at, moment_of(placed.get("lastTransitionTime")) or started_at)
        lasts_s = deadline_s + (spec.get("terminationGracePeriodSeconds") or 0)
        moments.append(Due(started_at + timedelta(seconds=lasts_s), "its deadline passed"))
    return min(moments, default=None)


def is_late(moment: Due | None, now: datetime | None) -> bool:
    """`now` None: it is not known what became of the pod, and it is not called late."""
    return moment is not None and now is not None and now > moment.at + timedelta(seconds=LATE_S)


def stage_of(pod: Mapping[str, Any], container: str, now: datetime | None) -> Stage:
    """The stage of a pod (the API's JSON). `container`: the one with the program; others may outlive it. `now`: as for
    `is_late`.
    """
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


def has_ended(pod: Mapping[str, Any], base: str) -> bool:
    """Whether the container `base` has, as far as its node reported."""
    return (pod.get("status") or {}).get("phase") in ("Succeeded", "Failed") or "terminated" in state_of(pod, base)


def ended_well(pod: Mapping[str, Any], base: str) -> bool:
    """Whether the container `base` ended with 0, as far as its node reported."""
    code = state_of(pod, base).get("terminated", {}).get("exitCode")
    return code == 0 or (pod.get("status") or {}).get("phase") == "Succeeded"


def state_of(pod: Mapping[str, Any], container: str) -> Mapping[str, Any]:
    """The state of this container: waiting, running or terminated; empty where its node has reported none."""
    statuses = (pod.get("status") or {}).get("containerStatuses") or ()
    return next((each.get("state") or {} for each in statuses if each["name"] == container), {})


def condition_of(pod: Mapping[str, Any], kind: str) -> Mapping[str, Any]:
    """The condition of this type; empty where the pod has none."""
    conditions = (pod.get("status") or {}).get("conditions") or ()
    return next((each for each in conditions if each.get("type") == kind), {})


def moment_of(text: str | None) -> datetime | None:
    """A time in the API's JSON."""
    if text is None:
        return None
    at = datetime.fromisoformat(text)
    return at if at.tzinfo else at.replace(tzinfo=UTC)
