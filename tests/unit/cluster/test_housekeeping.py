"""The pods that a sweep deletes in each mode; one pod's failure does not stop it."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from trainbench.cluster.housekeeping import document, faults, sweep_pods
from trainbench.cluster.kubernetes_api import Refused, Unreachable
from trainbench.cluster.leaked_pods import Liveness, Rules
from trainbench.pods.manifests import DAG_ID, DAG_RUN_ID, Owner, PodSettings, installation_labels
from trainbench.settings.environment import Housekeeping, SettingsError, read_settings

NOW = datetime(2026, 11, 22, 6, 30, tzinfo=UTC)
OURS = installation_labels(PodSettings())
OVER, LIVE = Owner(dag_id="d", dag_run_id="over"), Owner(dag_id="d", dag_run_id="live")


def pod(name: str, owner: Owner | None = OVER, phase: str = "Running") -> dict[str, Any]:
    return {
        "metadata": {
            "name": name,
            "uid": f"uid-{name}",
            "labels": OURS,
            "annotations": {DAG_ID: owner.dag_id, DAG_RUN_ID: owner.dag_run_id} if owner else {},
            "creationTimestamp": "2026-11-18T02:00:00Z",
        },
        "status": {"phase": phase},
    }


class Pods:
    """An API server with these pods. `errors`: name -> what it answers to its deletion."""

    def __init__(self, *listed: dict[str, Any], **errors: Exception) -> None:
        self.listed, self.errors, self.deleted = listed, errors, list[str]()

    def pods(self, labels: Any) -> Any:
        return self.listed

    def delete_pod(self, name: str, uid: str) -> None:
        if name in self.errors:
            raise self.errors[name]
        self.deleted.append(name)


def sweep(pods: Any, mode: Housekeeping) -> Any:
    liveness = {OVER: Liveness.ENDED, LIVE: Liveness.LIVE}
    return sweep_pods(pods, OURS, lambda owner: liveness[owner], Rules(), mode, NOW)


@pytest.mark.parametrize(
    ("mode", "deleted"),
    [
        (Housekeeping.REPORT, []),
        (Housekeeping.RELEASE, ["runs-on", "waits"]),
        (Housekeeping.DELETE, ["runs-on", "waits", "ended"]),
    ],
)
def test_pods_of_a_failed_release_are_deleted_by_schedule_and_logs_only_on_request(
    mode: Housekeeping, deleted: list[str]
) -> None:
    api = Pods(
        pod("runs-on"),
        pod("waits", phase="Pending"),
        pod("ended", phase="Succeeded"),
        pod("live", LIVE),
        pod("by-hand", None),
    )
    swept = document(sweep(api, mode))

    assert api.deleted == deleted
    assert {*swept["deleted"], *swept["to_delete"]} == {"runs-on", "waits", "ended"}
    assert list(swept["to_look_at"]) == ["by-hand"]


def test_one_pod_whose_deletion_fails_does_not_keep_the_others() -> None:
    """Be it refused, or not answered at all."""
    refused = Refused("DELETE pod a", 403, "Forbidden", "a policy keeps it")
    api = Pods(pod("a"), pod("b"), pod("c"), a=refused, b=Unreachable("no answer within 10 s"))
    swept = sweep(api, Housekeeping.RELEASE)

    assert api.deleted == ["c"]
    assert faults(swept) == "2 could not be deleted: a: a policy keeps it; b: no answer within 10 s"


def test_the_schedule_releases_pods_unless_the_setting_says_otherwise() -> None:
    assert read_settings({}).housekeeping is Housekeeping.RELEASE
    assert read_settings({"TRAINBENCH_HOUSEKEEPING": "report"}).housekeeping is Housekeeping.REPORT
    with pytest.raises(SettingsError, match="TRAINBENCH_HOUSEKEEPING is 'all': choose report, release or delete"):
        read_settings({"TRAINBENCH_HOUSEKEEPING": "all"})
