"""The cluster's operator, without a cluster: it sends our manifest as it is. `test_pod_steps` tells of a pod's way."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.builders import make_spec
from trainbench.params.campaign_kind import CampaignKind
from trainbench.pods.manifests import PodSettings, manifest

EXAMPLES = sorted((Path(__file__).resolve().parents[2] / "docs/examples/pod-templates").glob("*.yaml"))


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.stem)
def test_what_a_template_adds_reaches_the_api_server_too(example: Path, airflow_db: None) -> None:
    """The operator merges once more, its own fields over ours: nothing of the manifest is lost."""
    from kubernetes.client import ApiClient

    from trainbench.orchestration.kubernetes_operator import BenchPodOperator

    ours = manifest(make_spec(node="gpu-7"), PodSettings(pod_template=example))
    operator = BenchPodOperator(task_id="benchmark", pod_template_dict=ours, do_xcom_push=False, in_cluster=False)
    sent = ApiClient().sanitize_for_serialization(operator.build_pod_request_obj(None, dry_run=True))

    added = {"containers", "terminationGracePeriodSeconds"}  # the operator's own
    assert {name: sent["spec"][name] for name in ours["spec"] if name not in added} == {
        name: value for name, value in ours["spec"].items() if name not in added
    }
    base, before = sent["spec"]["containers"][0], ours["spec"]["containers"][0]
    assert {name: base[name] for name in before if name != "volumeMounts"} == {
        name: value for name, value in before.items() if name != "volumeMounts"
    }
    assert [mount for mount in before["volumeMounts"] if mount not in base["volumeMounts"]] == []
    assert [volume for volume in ours["spec"]["volumes"] if volume not in sent["spec"]["volumes"]] == []
    for kind in ("labels", "annotations"):
        assert ours["metadata"][kind].items() <= sent["metadata"][kind].items()


@pytest.mark.parametrize(("hours_ago", "left"), [(1, timedelta(hours=6, minutes=45)), (9, timedelta(minutes=1))])
def test_a_try_of_a_pod_s_task_ends_before_its_dag_run(airflow_db: None, hours_ago: int, left: timedelta) -> None:
    """8 h, less what has passed and 15 min for the report: it was 8 h 50 min whenever it began."""
    from trainbench.orchestration.pod_tasks import ManifestOperator

    class Rank(ManifestOperator):
        pod: Any = {}  # noqa: RUF012 - of no matter here

    operator = Rank(task_id="rank", options={"kubernetes_conn_id": None})
    began = datetime.now(UTC) - timedelta(hours=hours_ago)
    context: Any = {
        "dag": SimpleNamespace(dagrun_timeout=timedelta(hours=8)),
        "dag_run": SimpleNamespace(start_date=began, run_after=None),
    }
    operator.pre_execute(context)

    assert operator.execution_timeout is not None
    assert left - timedelta(minutes=1) < operator.execution_timeout <= left


def test_the_dag_has_the_same_tasks_on_a_cluster(airflow_db: None, monkeypatch: pytest.MonkeyPatch) -> None:
    from trainbench.orchestration.dag_factory import Suite, build_dag

    monkeypatch.setenv("TRAINBENCH_LAUNCHER", "kubernetes")
    suite = Suite(
        dag_id="nightly", title="Nightly", campaign_kind=CampaignKind.NODES, schedule="0 2 * * *", doc="", tags=()
    )
    dag = build_dag(suite)

    assert dag.schedule == "0 2 * * *"
    assert dag.get_task("benchmark").operator_class.__name__ == "RunOperator"
    assert dag.params["model"] == "mistral-7b"
    assert (dag.params["preset"], dag.params["strategies"], dag.params["gpus_per_node"]) == (
        "tuned", ["independent", "ddp"], None,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("task_id", "reads_it"), [("ready", True), ("plan", True), ("benchmark", False), ("gate", False)]
)
def test_only_the_tasks_that_read_the_form_have_it(
    airflow_db: None, monkeypatch: pytest.MonkeyPatch, task_id: str, reads_it: bool
) -> None:
    """Airflow checks each field's schema at a task's start, which costs a pod's task much of its CPU time."""
    from trainbench.orchestration.dag_factory import Suite, build_dag

    monkeypatch.setenv("_AIRFLOW_PARSING_CONTEXT_DAG_ID", "nightly")
    monkeypatch.setenv("_AIRFLOW_PARSING_CONTEXT_TASK_ID", task_id)
    dag = build_dag(Suite(dag_id="nightly", title="", campaign_kind=CampaignKind.NODES, schedule=None, doc="", tags=()))

    assert ("rounds" in dag.params) is reads_it


def test_pods_that_are_compared_run_one_at_a_time_on_a_cluster(
    airflow_db: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Airflow counts deferred tasks for this limit, so it holds without a pool."""
    from airflow.ti_deps.dependencies_states import ACTIVE_STATES
    from airflow.utils.state import TaskInstanceState

    from trainbench.orchestration.dag_factory import Suite, build_dag

    monkeypatch.setenv("TRAINBENCH_LAUNCHER", "kubernetes")
    suite = Suite(
        dag_id="diagnosis", title="", campaign_kind=CampaignKind.CONFIGURATIONS, schedule=None, doc="", tags=()
    )
    dag = build_dag(suite)

    assert dag.get_task("benchmark").max_active_tis_per_dagrun == 1
    assert TaskInstanceState.DEFERRED in ACTIVE_STATES
    assert (dag.params["model"], dag.params["seq_length"]) == ("mistral-7b", 1024)
