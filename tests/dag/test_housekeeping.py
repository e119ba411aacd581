"""The DAG as Airflow runs it: what it deletes, for whom, and what it leaves alone."""

from __future__ import annotations

import os
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from tests.builders.fake_cluster import running_pod
from trainbench.cluster import kubernetes_api as cluster_module
from trainbench.cluster.housekeeping import Liveness
from trainbench.cluster.kubernetes_api import Unreachable
from trainbench.orchestration.housekeeping_dag import _liveness, _mode, build_housekeeping
from trainbench.pods.manifests import Owner
from trainbench.results.artefacts import Store
from trainbench.settings.environment import Housekeeping


def old_campaign(store: Store) -> None:
    store.write_summary("old", {"metrics.csv": "x"})
    at = (datetime.now(UTC) - timedelta(days=400)).timestamp()
    os.utime(store.root.path + "/campaigns/old/summary/metrics.csv", (at, at))


def states(run: Any) -> dict[str, str]:
    return {ti.task_id: ti.state for ti in run.get_task_instances()}


def summary(run: Any, task_id: str) -> Any:
    (ti,) = [ti for ti in run.get_task_instances() if ti.task_id == task_id]
    return ti.xcom_pull(task_ids=task_id)


class Pods:
    def __init__(self, *listed: dict[str, Any]) -> None:
        self.listed, self.deleted = listed, []  # type: ignore[var-annotated]

    def pods(self, labels: Any) -> Any:
        return self.listed

    def delete_pod(self, name: str, *_: str, **__: Any) -> None:
        self.deleted.append(name)


def test_a_manual_run_lists_and_deletes_only_when_ticked(dagbag: Any, store: Store) -> None:
    old_campaign(store)
    dag = dagbag.dags["housekeeping"]
    assert dag.schedule is None  # the local launcher

    dag_run = dag.test(run_conf={})
    assert states(dag_run) == {"leaked_pods": "success", "expired_artefacts": "success"}
    assert summary(dag_run, "expired_artefacts") == {"to be deleted": ["campaigns/old"]}
    assert store.campaign_ids() == ("old",)


def test_airflow_itself_says_which_runs_are_over(dagbag: Any, store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """The run that sweeps is itself a run that is on; the one before it is over; a third one nobody knows."""
    over = dagbag.dags["housekeeping"].test(run_conf={})
    ours = Owner(dag_id="housekeeping", dag_run_id=over.run_id)
    pods = PodsAndOneOfThisRun(
        running_pod("of-the-run-that-is-over", ours),
        running_pod("of-another-airflow", Owner(dag_id="housekeeping", dag_run_id="manual__elsewhere")),
        running_pod("by-hand", None),
        running_pod("young", ours, creationTimestamp=f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ}"),
    )
    monkeypatch.setenv("TRAINBENCH_LAUNCHER", "kubernetes")
    monkeypatch.setattr(cluster_module, "open_cluster", lambda _: pods)
    actual = summary(dagbag.dags["housekeeping"].test(run_conf={"delete": True}), "leaked_pods")
    assert pods.deleted == ["of-the-run-that-is-over"]
    assert actual["deleted"] == ["of-the-run-that-is-over"]
    assert set(actual["to be looked at"]) == {"of-another-airflow", "by-hand"}


class PodsAndOneOfThisRun(Pods):
    def pods(self, labels: Any) -> Any:
        from airflow.sdk import get_current_context

        context = get_current_context()
        mine = Owner(dag_id=context["dag"].dag_id, dag_run_id=context["run_id"])
        return (*self.listed, running_pod("of-this-run", mine))


class Answers:
    """`ti.get_dr_count` for one run in `state`; None: Airflow does not know it."""

    def __init__(self, state: str | None) -> None:
        self.state, self.num_asked = state, 0

    def get_dr_count(self, dag_id: str, run_ids: list[str], states: list[str] | None = None) -> int:
        self.num_asked += 1
        if self.state == "broken":
            raise RuntimeError("the API server is down")
        return int(self.state is not None and (states is None or self.state in states))


@pytest.mark.parametrize(
    ("state", "liveness"),
    [
        ("running", Liveness.LIVE),
        ("queued", Liveness.LIVE),
        ("success", Liveness.ENDED),
        ("failed", Liveness.ENDED),
        (None, Liveness.NOT_FOUND),
        ("broken", Liveness.NOT_KNOWN),
    ],
)
def test_what_airflow_says_of_a_run(state: str | None, liveness: Liveness) -> None:
    answers = Answers(state)
    ask = _liveness(answers)
    assert ask(Owner(dag_id="d", dag_run_id="r")) is liveness
    num_before = answers.num_asked
    assert ask(Owner(dag_id="d", dag_run_id="r")) is liveness
    assert answers.num_asked == num_before


@pytest.mark.parametrize(
    ("run_type", "ticked", "mode", "chosen"),
    [
        ("manual", False, "delete", Housekeeping.REPORT),
        ("manual", True, "report", Housekeeping.DELETE),
        ("scheduled", False, "delete", Housekeeping.DELETE),
        ("scheduled", True, "report", Housekeeping.REPORT),
        ("scheduled", False, None, Housekeeping.RELEASE),
    ],
)
def test_who_says_what_it_deletes(
    run_type: str, ticked: bool, mode: str | None, chosen: Housekeeping, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Run:
        def __init__(self) -> None:
            self.run_type = run_type

    monkeypatch.delenv("TRAINBENCH_HOUSEKEEPING", raising=False)
    if mode:
        monkeypatch.setenv("TRAINBENCH_HOUSEKEEPING", mode)
    assert _mode({"dag_run": Run(), "params": {"delete": ticked}}) is chosen


def test_without_a_cluster_the_artefacts_expire_all_the_same(
    dagbag: Any, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    def nobody(_: Any) -> Any:
        raise Unreachable("no Kubernetes API at https://10.0.0.1:6443: [Errno 111] Connection refused")

    old_campaign(store)
    monkeypatch.setenv("TRAINBENCH_LAUNCHER", "kubernetes")
    monkeypatch.setattr(cluster_module, "open_cluster", nobody)
    dagbag.dags["housekeeping"].get_task("leaked_pods").retries = 0
    run = dagbag.dags["housekeeping"].test(run_conf={"delete": True})
    assert states(run) == {"leaked_pods": "failed", "expired_artefacts": "success"}
    assert store.campaign_ids() == ()


def test_on_a_cluster_it_runs_daily(airflow_db: None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("TRAINBENCH_LAUNCHER", "kubernetes")
    monkeypatch.setenv("TRAINBENCH_RETENTION_DAYS", "30")
    dag = build_housekeeping("tidy")
    assert dag.schedule == "30 6 * * *"
    assert dag.params["retention_days"] == 30
    assert dag.params["delete"] is False
    assert dag.get_task("leaked_pods").upstream_task_ids == set()
    assert dag.get_task("leaked_pods").retries == 6  # half an hour without an API server is waited for
    assert dag.get_task("expired_artefacts").upstream_task_ids == set()
