"""When a pod must be over, and when its task must: also where the node that should end the pod no longer answers.

The kubelet enforces a pod's deadline and carries out its deletion. When it is dead, the API goes on to show the pod as
Running (https://kubernetes.io/docs/concepts/architecture/nodes/#condition), so the control plane has to stop waiting by
itself.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

GRACE_S = 20  # between SIGTERM and SIGKILL
# The program writes its own result on a timeout; the cluster's deadline is the backstop behind it.
DEADLINE_MARGIN_S = 120
LATE_S = 40  # how long after its grace a pod may still be shown: a kubelet tells of an end within seconds
LOG_SILENCE_S = 30  # an answer of which no part comes for so long is given up, and requested again
CONNECT_S = 10  # a request that nobody takes for so long is given up, and repeated
DEAD_AFTER_S = 300  # a node that has not been ready for so long gets no new pod; Kubernetes evicts after as long
# An API server that is away, or a node that serves no log, is waited for as long: completed pods hold no GPU.
OUTAGE_S = 1800


class Due(NamedTuple):
    """When a pod should be gone at the latest, its grace included, and why: "its deletion was requested"."""

    at: datetime
    why: str


def due(
    deletion_at: datetime | None, started_at: datetime | None, deadline_s: float | None, grace_s: float | None
) -> Due | None:
    """The earlier of the two moments at which the kubelet must have ended the pod; None: neither is set.

    `deletion_at`: its deletionTimestamp, which is the end of its grace. `started_at`: when the kubelet accepted it;
    activeDeadlineSeconds count from then.
    """
    moments = []
    if deletion_at is not None:
        moments.append(Due(deletion_at, "its deletion was requested"))
    if started_at is not None and deadline_s is not None:
        moments.append(Due(started_at + timedelta(seconds=deadline_s + (grace_s or 0)), "its deadline passed"))
    return min(moments, default=None)


def is_late(moment: Due | None, now: datetime) -> bool:
    return moment is not None and now > moment.at + timedelta(seconds=LATE_S)


def due_of(pod: Mapping[str, Any]) -> Due | None:
    """When a pod, given as the API's JSON, should be gone; None: neither moment is set."""
    spec, status = pod.get("spec") or {}, pod.get("status") or {}
    return due(
        _moment((pod.get("metadata") or {}).get("deletionTimestamp")),
        _started_at(status),
        spec.get("activeDeadlineSeconds"),
        spec.get("terminationGracePeriodSeconds"),
    )


def _started_at(status: Mapping[str, Any]) -> datetime | None:
    """By the node's clock, or by the control plane's where that one is ahead."""
    started_at = _moment(status.get("startTime"))
    conditions = status.get("conditions") or ()
    placed: Mapping[str, Any] = next(
        (c for c in conditions if (c["type"], c["status"]) == ("PodScheduled", "True")), {}
    )
    placed_at = _moment(placed.get("lastTransitionTime"))
    return max(started_at, placed_at) if started_at and placed_at else started_at


def has_ended(pod: Mapping[str, Any], base: str) -> bool:
    """Whether the container `base` has, as far as its node reported."""
    status = pod.get("status") or {}
    ours: Mapping[str, Any] = next((c for c in status.get("containerStatuses") or () if c["name"] == base), {})
    return status.get("phase") in ("Succeeded", "Failed") or "terminated" in ours.get("state", {})


def _moment(text: str | None) -> datetime | None:
    if text is None:
        return None
    at = datetime.fromisoformat(text)
    return at if at.tzinfo else at.replace(tzinfo=UTC)
