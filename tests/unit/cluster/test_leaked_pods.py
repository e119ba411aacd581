"""Which pods are deleted, which are reported, which stay: every rule by a pod that it is about."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from trainbench.cluster.housekeeping import Action, Liveness, Rules, pod_verdict
from trainbench.pods.manifests import DAG_ID, DAG_RUN_ID, Owner, PodSettings, installation_labels

NOW = datetime(2026, 11, 21, 12, tzinfo=UTC)
OURS = installation_labels(PodSettings())
RULES = Rules(min_age_s=900, keep_ended_s=86_400)
RUN = Owner(dag_id="node_consistency", dag_run_id="scheduled__2026-11-21T02:00:00+00:00")


def at(hours_ago: float) -> str:
    return (NOW - timedelta(hours=hours_ago)).strftime("%Y-%m-%dT%H:%M:%SZ")


def pod(
    hours_old: float = 5.0,
    phase: str = "Running",
    owner: Owner | None = RUN,
    ended_hours_ago: float | None = None,
    labels: dict[str, str] = OURS,
    deleted_hours_ago: float | None = None,
    deadline_s: int | None = None,
) -> dict[str, Any]:
    owned = {DAG_ID: owner.dag_id, DAG_RUN_ID: owner.dag_run_id} if owner else {}
    metadata: dict[str, Any] = {
        "name": "tb-1",
        "uid": "uid-1",
        "labels": {**labels, "trainbench.io/node": "gpu-1"},
        "annotations": {"trainbench.io/run-id": "r", **owned},
        "creationTimestamp": at(hours_old),
    }
    if deleted_hours_ago is not None:
        metadata["deletionTimestamp"] = at(deleted_hours_ago)
    status: dict[str, Any] = {"phase": phase, "startTime": at(hours_old)}
    if ended_hours_ago is not None:
        ended = {"terminated": {"exitCode": 1, "finishedAt": at(ended_hours_ago)}}
        status["containerStatuses"] = [{"name": "base", "state": ended}]
    spec = {"nodeName": "gpu-1", "terminationGracePeriodSeconds": 20}
    return {
        "metadata": metadata,
        "spec": spec | ({"activeDeadlineSeconds": deadline_s} if deadline_s else {}),
        "status": status,
    }


def verdict(pod: dict[str, Any], liveness: Liveness = Liveness.ENDED, rules: Rules = RULES) -> tuple[Action, str]:
    return pod_verdict(pod, lambda _: liveness, rules, NOW)


def test_a_pod_whose_run_is_over_goes() -> None:
    over = "its run scheduled__2026-11-21T02:00:00+00:00 of node_consistency is over"
    assert verdict(pod()) == (Action.RELEASE, over)


def test_a_pod_that_was_never_placed_goes_too() -> None:
    assert verdict(pod(phase="Pending"))[0] is Action.RELEASE


@pytest.mark.parametrize(
    ("liveness", "action", "reason"),
    [
        (Liveness.LIVE, Action.KEEP, "is still on"),
        (Liveness.NOT_FOUND, Action.REPORT, "is not in this Airflow"),
        (Liveness.NOT_KNOWN, Action.REPORT, "is unknown from here"),
    ],
)
def test_only_a_run_that_is_known_to_be_over_is_leave_to_delete(
    liveness: Liveness, action: Action, reason: str
) -> None:
    found, why = verdict(pod(), liveness)
    assert found is action
    assert reason in why


def test_trusting_the_age_deletes_pods_of_unknown_runs_and_nothing_else() -> None:
    rules = RULES.model_copy(update={"trust_age": True})
    assert verdict(pod(), Liveness.NOT_KNOWN, rules)[0] is Action.DELETE
    assert verdict(pod(), Liveness.NOT_FOUND, rules)[0] is Action.REPORT
    assert verdict(pod(), Liveness.LIVE, rules)[0] is Action.KEEP
    assert verdict(pod(owner=None), Liveness.NOT_KNOWN, rules)[0] is Action.REPORT
    assert verdict(pod(hours_old=0.1), Liveness.NOT_KNOWN, rules)[0] is Action.KEEP


def test_a_pod_that_names_no_run_is_reported_and_left() -> None:
    why = "names no DAG run: started by hand? Delete it by hand if nobody needs it"
    assert verdict(pod(owner=None)) == (Action.REPORT, why)


def test_half_of_the_annotations_name_no_run() -> None:
    half = pod()
    del half["metadata"]["annotations"][DAG_RUN_ID]
    assert verdict(half)[0] is Action.REPORT


@pytest.mark.parametrize(("hours_old", "action"), [(0.24, Action.KEEP), (0.26, Action.RELEASE)])
def test_young_pods_are_left_alone(hours_old: float, action: Action) -> None:
    assert verdict(pod(hours_old=hours_old))[0] is action


@pytest.mark.parametrize("phase", ["Succeeded", "Failed"])
@pytest.mark.parametrize("owner", [RUN, None])
def test_an_ended_pod_is_kept_for_its_log_and_then_goes_whoever_made_it(phase: str, owner: Owner | None) -> None:
    fresh = verdict(pod(hours_old=40, phase=phase, owner=owner, ended_hours_ago=23))
    assert fresh == (Action.KEEP, "has ended; its log is kept for 24 h 00 min")
    assert verdict(pod(hours_old=40, phase=phase, owner=owner, ended_hours_ago=25))[0] is Action.DELETE


def test_an_ended_pod_of_a_run_that_is_on_stays() -> None:
    assert verdict(pod(hours_old=40, phase="Failed", ended_hours_ago=30), Liveness.LIVE)[0] is Action.KEEP


def test_an_evicted_pod_has_no_container_that_ended_and_counts_from_its_creation() -> None:
    assert verdict(pod(hours_old=25, phase="Failed"))[0] is Action.DELETE
    assert verdict(pod(hours_old=23, phase="Failed"))[0] is Action.KEEP


def test_a_pod_that_is_being_deleted_is_left_to_it_unless_its_node_is_lost() -> None:
    assert verdict(pod(deleted_hours_ago=0.01))[0] is Action.KEEP
    stuck = verdict(pod(deleted_hours_ago=2))
    assert stuck[0] is Action.REPORT
    assert "should be gone since 2 h 00 min: gpu-1 does not answer" in stuck[1]


def test_a_pod_that_outlives_its_deadline_points_at_its_node() -> None:
    live = verdict(pod(hours_old=5, deadline_s=3600), Liveness.LIVE)
    assert live[0] is Action.REPORT
    assert live[1].endswith("is still on. Its deadline passed 3 h 59 min ago: look at its node")
    over = verdict(pod(hours_old=5, deadline_s=3600))
    assert over[0] is Action.RELEASE
    assert verdict(pod(hours_old=5, deadline_s=6 * 3600), Liveness.LIVE)[0] is Action.KEEP


def test_a_pod_whose_program_has_ended_beside_a_container_that_runs_on_holds_its_gpus_and_goes_with_its_run() -> None:
    """A mesh's or a policy's container keeps the phase at Running. Its node is not at fault, whatever the deadline."""
    beside = pod(hours_old=5, ended_hours_ago=4, deadline_s=3600)
    assert verdict(beside)[0] is Action.RELEASE
    assert verdict(beside, Liveness.LIVE) == (Action.KEEP, f"its run {RUN.dag_run_id} of node_consistency is still on")
