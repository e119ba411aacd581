"""Time limits of a pod and of its task, computed by hand."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from trainbench.pods.time_limits import Stage, due_of, has_ended, is_late, stage_of

START = datetime(2026, 11, 22, 2, 0, tzinfo=UTC)


def pod(deletion_at: str | None = None, placed_at: str | None = None) -> dict[str, Any]:
    """Accepted by its kubelet at 02:00:00, with a deadline of 1,920 s and a grace of 20 s."""
    placed = {"type": "PodScheduled", "status": "True", "lastTransitionTime": placed_at}
    return {
        "metadata": {"deletionTimestamp": deletion_at},
        "spec": {"activeDeadlineSeconds": 1920, "terminationGracePeriodSeconds": 20},
        "status": {"phase": "Running", "startTime": "2026-11-22T02:00:00Z", "conditions": [placed]},
    }


@pytest.mark.parametrize(
    ("pod", "due_s", "why"),
    [
        (pod(), 1940, "its deadline passed"),  # 1,920 s + 20 s
        (pod("2026-11-22T02:05:20Z"), 320, "its deletion was requested"),  # which has the grace in it
        (pod("2026-11-22T09:00:00Z"), 1940, "its deadline passed"),
        # By the control plane it was placed 45 minutes ahead of its node's clock: 2,700 s + 1,940 s.
        (pod(placed_at="2026-11-22T02:45:00Z"), 4640, "its deadline passed"),
    ],
    ids=["deadline", "deletion", "deadline before deletion", "clock behind"],
)
def test_a_pod_is_late_forty_seconds_after_it_should_be_gone(pod: dict[str, Any], due_s: int, why: str) -> None:
    moment = due_of(pod)

    assert moment is not None
    assert (moment.at, moment.why) == (START + timedelta(seconds=due_s), why)
    assert not is_late(moment, START + timedelta(seconds=due_s + 40))
    assert is_late(moment, START + timedelta(seconds=due_s + 41))


def test_a_pod_that_no_kubelet_has_accepted_is_never_late() -> None:
    waiting = pod() | {"status": {"phase": "Pending"}}

    assert due_of(waiting) is None
    assert not is_late(None, START + timedelta(days=7))


@pytest.mark.parametrize(
    ("status", "ended"),
    [
        ({"phase": "Running", "containerStatuses": [{"name": "base", "state": {"running": {}}}]}, False),
        ({"phase": "Running", "containerStatuses": [{"name": "base", "state": {"terminated": {}}}]}, True),
        ({"phase": "Running", "containerStatuses": [{"name": "sidecar", "state": {"terminated": {}}}]}, False),
        ({"phase": "Failed"}, True),
        ({"phase": "Pending"}, False),
    ],
)
def test_a_pod_has_ended_with_its_program(status: dict[str, Any], ended: bool) -> None:
    assert has_ended({"status": status}, "base") is ended


PLACED = {"conditions": [{"type": "PodScheduled", "status": "True"}]}


def shown(phase: str, state: dict[str, Any] | None = None, **status: Any) -> dict[str, Any]:
    statuses = [{"name": "sidecar", "state": {"running": {}}}, {"name": "base", "state": state}] if state else []
    return {"metadata": {"name": "tb-1"}, "status": {"phase": phase, "containerStatuses": statuses, **status}}


@pytest.mark.parametrize(
    ("seen", "stage"),
    [
        (shown("Pending"), Stage.QUEUED),
        (shown("Pending", **PLACED), Stage.STARTING),
        (shown("Pending", {"waiting": {"reason": "ContainerCreating"}}, **PLACED), Stage.STARTING),
        (shown("Pending", {"waiting": {"reason": "ErrImagePull"}}, **PLACED), Stage.STUCK),
        (shown("Running", {"running": {}}), Stage.RUNNING),
        (shown("Running", {"waiting": {"reason": "ContainerCreating"}}), Stage.STARTING),
        (shown("Running", {"terminated": {"exitCode": 0}}), Stage.OVER),
        (shown("Running", {"terminated": {"exitCode": 3}}), Stage.OVER),
        (shown("Failed"), Stage.OVER),
        (shown("Unknown", {"running": {}}), Stage.RUNNING),
        ({}, Stage.QUEUED),
    ],
)
def test_a_pod_s_stage(seen: dict[str, Any], stage: Stage) -> None:
    assert stage_of(seen, "base", START) is stage


def test_a_pod_that_is_to_go_is_waited_for_until_it_should_be_gone() -> None:
    """Its deadline of 60 s and its grace of 20 s end at 11:58:20; 40 s later it is late, at 11:59:00."""
    running = shown("Running", {"running": {}}, startTime="2026-11-22T11:57:00Z")
    running["spec"] = {"activeDeadlineSeconds": 60, "terminationGracePeriodSeconds": 20}

    assert stage_of(running, "base", datetime(2026, 11, 22, 11, 59, 0, tzinfo=UTC)) is Stage.RUNNING
    assert stage_of(running, "base", datetime(2026, 11, 22, 11, 59, 1, tzinfo=UTC)) is Stage.OVER
    running["metadata"]["deletionTimestamp"] = "2026-11-22T12:00:00Z"
    assert stage_of(running, "base", datetime(2026, 11, 22, 11, 58, tzinfo=UTC)) is Stage.LEAVING
