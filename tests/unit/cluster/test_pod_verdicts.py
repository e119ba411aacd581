"""Which pods are deleted, which are reported, which stay: every rule by a pod that it is about."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from trainbench.cluster.housekeeping import Action, Liveness, pod_verdict
from trainbench.pods.manifests import DAG_ID, DAG_RUN_ID, Owner

NOW = datetime(2026, 11, 21, 12, tzinfo=UTC)
RUN = Owner(dag_id="node_consistency", dag_run_id="scheduled__2026-11-21T02:00:00+00:00")
OURS = f"its run {RUN.dag_run_id} of node_consistency"
KEEP, RELEASE, DELETE, REPORT = Action.KEEP, Action.RELEASE, Action.DELETE, Action.REPORT


def at(hours_ago: float) -> str:
    return (NOW - timedelta(hours=hours_ago)).strftime("%Y-%m-%dT%H:%M:%SZ")


def pod(
    hours_old: float = 5.0,
    phase: str = "Running",
    owner: Owner | None = RUN,
    ended_hours_ago: float | None = None,
    deleted_hours_ago: float | None = None,
    deadline_s: int | None = None,
) -> dict[str, Any]:
    annotations = {DAG_ID: owner.dag_id, DAG_RUN_ID: owner.dag_run_id} if owner else {}
    metadata: dict[str, Any] = {"annotations": annotations, "creationTimestamp": at(hours_old)}
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


def verdict(pod: dict[str, Any], liveness: Liveness = Liveness.ENDED, trusts_age: bool = False) -> tuple[Action, str]:
    return pod_verdict(pod, lambda _: liveness, NOW, trusts_age)


@pytest.mark.parametrize(
    ("liveness", "action", "reason", "trusting"),
    [
        (Liveness.ENDED, RELEASE, f"{OURS} is over", RELEASE),
        (Liveness.LIVE, KEEP, f"{OURS} is still on", KEEP),
        (Liveness.NOT_FOUND, REPORT, f"{OURS} is not in this Airflow", REPORT),
        (Liveness.NOT_KNOWN, REPORT, f"{OURS} is unknown from here", DELETE),
    ],
)
def test_only_a_pod_whose_run_is_known_to_be_over_goes_or_one_of_an_unknown_run_if_its_age_is_trusted(
    liveness: Liveness, action: Action, reason: str, trusting: Action
) -> None:
    assert verdict(pod(), liveness) == (action, reason)
    assert verdict(pod(phase="Pending"), liveness) == (action, reason)
    assert verdict(pod(), liveness, trusts_age=True)[0] is trusting
    assert verdict(pod(hours_old=0.24), liveness, trusts_age=True) == (KEEP, "younger than 15 min 00 s")
    assert verdict(pod(hours_old=0.26), liveness, trusts_age=True)[0] is trusting


def test_a_pod_that_names_no_run_or_half_of_one_is_reported_and_left() -> None:
    why = "names no DAG run: started by hand? Delete it by hand if nobody needs it"
    half = pod()
    del half["metadata"]["annotations"][DAG_RUN_ID]
    for unowned in (pod(owner=None), half):
        assert verdict(unowned, trusts_age=True) == (REPORT, why)


@pytest.mark.parametrize("phase", ["Succeeded", "Failed"])
@pytest.mark.parametrize("owner", [RUN, None])
def test_an_ended_pod_is_kept_for_its_log_and_then_goes_whoever_made_it(phase: str, owner: Owner | None) -> None:
    fresh = verdict(pod(hours_old=90, phase=phase, owner=owner, ended_hours_ago=71))
    assert fresh == (KEEP, "has ended; its log is kept for 72 h 00 min")
    old = pod(hours_old=90, phase=phase, owner=owner, ended_hours_ago=73)
    assert verdict(old) == (DELETE, "ended 3.0 days ago")
    assert verdict(old, Liveness.LIVE)[0] is (KEEP if owner else DELETE)


def test_an_evicted_pod_has_no_container_that_ended_and_counts_from_its_creation() -> None:
    assert verdict(pod(hours_old=73, phase="Failed"))[0] is DELETE
    assert verdict(pod(hours_old=71, phase="Failed"))[0] is KEEP


def test_a_pod_that_is_being_deleted_is_left_to_it_unless_its_node_is_lost() -> None:
    assert verdict(pod(deleted_hours_ago=0.01)) == (KEEP, "is being deleted")
    why = "should be gone since 2 h 00 min: gpu-1 does not answer, look at that node"
    assert verdict(pod(deleted_hours_ago=2)) == (REPORT, why)


def test_a_pod_that_outlives_its_deadline_points_at_its_node() -> None:
    late = "Its deadline passed 3 h 59 min ago: look at its node"
    assert verdict(pod(deadline_s=3600), Liveness.LIVE) == (REPORT, f"{OURS} is still on. {late}")
    assert verdict(pod(deadline_s=3600)) == (RELEASE, f"{OURS} is over. {late}")
    assert f"started by hand? {late}. Delete it" in verdict(pod(owner=None, deadline_s=3600))[1]
    assert verdict(pod(deadline_s=6 * 3600), Liveness.LIVE) == (KEEP, f"{OURS} is still on")


def test_a_pod_whose_program_has_ended_beside_a_container_that_runs_on_holds_its_gpus_and_goes_with_its_run() -> None:
    """A mesh's or a policy's container keeps the phase at Running. Its node is not at fault, whatever the deadline."""
    beside = pod(ended_hours_ago=4, deadline_s=3600)
    assert verdict(beside) == (RELEASE, f"{OURS} is over")
    assert verdict(beside, Liveness.LIVE) == (KEEP, f"{OURS} is still on")
