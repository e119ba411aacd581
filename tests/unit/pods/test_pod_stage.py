"""A pod's stage, as its task waits for it."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from trainbench.pods.pod_stage import Stage, stage_of

NOW = datetime(2026, 11, 22, 12, 0, tzinfo=UTC)
PLACED = {"conditions": [{"type": "PodScheduled", "status": "True"}]}


def pod(phase: str, state: dict[str, Any] | None = None, **status: Any) -> dict[str, Any]:
    statuses = [{"name": "sidecar", "state": {"running": {}}}, {"name": "base", "state": state}] if state else []
    return {"metadata": {"name": "tb-1"}, "status": {"phase": phase, "containerStatuses": statuses, **status}}


@pytest.mark.parametrize(
    ("seen", "stage"),
    [
        (pod("Pending"), Stage.QUEUED),
        (pod("Pending", **PLACED), Stage.STARTING),
        (pod("Pending", {"waiting": {"reason": "ContainerCreating"}}, **PLACED), Stage.STARTING),
        (pod("Pending", {"waiting": {"reason": "ErrImagePull"}}, **PLACED), Stage.STUCK),
        (pod("Running", {"running": {}}), Stage.RUNNING),
        (pod("Running", {"waiting": {"reason": "ContainerCreating"}}), Stage.STARTING),
        (pod("Running", {"terminated": {"exitCode": 0}}), Stage.OVER),
        (pod("Running", {"terminated": {"exitCode": 3}}), Stage.OVER),
        (pod("Failed"), Stage.OVER),
        (pod("Unknown", {"running": {}}), Stage.RUNNING),
        ({}, Stage.QUEUED),
    ],
)
def test_a_pod_s_stage(seen: dict[str, Any], stage: Stage) -> None:
    assert stage_of(seen, "base", NOW) is stage


def test_a_pod_that_is_to_go_is_waited_for_until_it_should_be_gone() -> None:
    """Its deadline of 60 s and its grace of 20 s end at 11:58:20; 40 s later it is late, at 11:59:00."""
    running = pod("Running", {"running": {}}, startTime="2026-11-22T11:57:00Z")
    running["spec"] = {"activeDeadlineSeconds": 60, "terminationGracePeriodSeconds": 20}

    assert stage_of(running, "base", datetime(2026, 11, 22, 11, 59, 0, tzinfo=UTC)) is Stage.RUNNING
    assert stage_of(running, "base", datetime(2026, 11, 22, 11, 59, 1, tzinfo=UTC)) is Stage.OVER
    running["metadata"]["deletionTimestamp"] = "2026-11-22T12:00:00Z"
    assert stage_of(running, "base", datetime(2026, 11, 22, 11, 58, tzinfo=UTC)) is Stage.LEAVING
