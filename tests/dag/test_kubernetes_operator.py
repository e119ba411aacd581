"""The cluster's operator, without a cluster: it sends our manifest as it is, and never takes silence for success.

What only a cluster can show (scheduling, logs, the XCom sidecar's exec) is not simulated here.
"""

from __future__ import annotations

from typing import Any
from unittest.mock import Mock

import pytest

from bench_control.asking.question import Question
from bench_control.launching.pods import PodSettings, manifest
from tests.builders import make_spec

MANIFEST = manifest(make_spec(node="gpu-7", gpus_per_node=1), PodSettings(priority_class="benchmark-low"))


@pytest.fixture
def operator(airflow_db: None) -> Any:
    from bench_control.flows.kubernetes_operator import BenchPodOperator

    return BenchPodOperator(task_id="benchmark", pod_template_dict=MANIFEST, do_xcom_push=True, in_cluster=False)


def test_the_manifest_reaches_the_api_server_unharmed(operator: Any) -> None:
    from kubernetes.client import ApiClient

    pod = ApiClient().sanitize_for_serialization(operator.build_pod_request_obj(None, dry_run=True))
    base, sidecar = pod["spec"]["containers"]
    (ours,) = MANIFEST["spec"]["containers"]

    assert sidecar["name"] == "airflow-xcom-sidecar"
    for field in ("image", "command", "env", "resources", "securityContext"):
        assert base[field] == ours[field], field
    assert {mount["mountPath"] for mount in base["volumeMounts"]} == {
        *(mount["mountPath"] for mount in ours["volumeMounts"]),
        "/airflow/xcom",
    }
    for field in ("affinity", "tolerations", "securityContext", "activeDeadlineSeconds", "priorityClassName"):
        assert pod["spec"][field] == MANIFEST["spec"][field], field
    assert pod["spec"]["automountServiceAccountToken"] is False
    assert pod["metadata"]["labels"]["trainbench.io/node"] == "gpu-7"


@pytest.mark.parametrize("silence", ["execute", "trigger_reentry"])
def test_a_pod_that_ends_without_a_result_fails_the_task(
    operator: Any, monkeypatch: pytest.MonkeyPatch, silence: str
) -> None:
    """The provider's operator returns None in both cases and the task would be green (its issues 72821 and 73117)."""
    from airflow.providers.cncf.kubernetes.operators.pod import KubernetesPodOperator
    from airflow.sdk.exceptions import AirflowException

    monkeypatch.setattr(KubernetesPodOperator, silence, lambda *_: None)
    ti = Mock()
    monkeypatch.setattr(operator, "_events", tuple)  # there is no API to ask
    arguments = [{"ti": ti}] if silence == "execute" else [{"ti": ti}, {"name": "pod-1"}]

    with pytest.raises(AirflowException, match="deleted before its result could be read"):
        getattr(operator, silence)(*arguments)
    assert ti.xcom_push.call_args.kwargs["value"]["kind"] == "vanished"


def test_the_dag_hands_over_the_same_manifests_on_a_cluster(airflow_db: None, monkeypatch: pytest.MonkeyPatch) -> None:
    from bench_control.flows.dag_factory import Suite, build_node_dag

    monkeypatch.setenv("TRAINBENCH_LAUNCHER", "kubernetes")
    suite = Suite(dag_id="nightly", title="Nightly", question=Question.NODES, schedule="0 2 * * *", doc="", tags=())
    dag = build_node_dag(suite)

    assert dag.schedule == "0 2 * * *"
    assert dag.get_task("benchmark").operator_class.__name__ == "BenchPodOperator"
    assert dag.params["model"] == "mistral-7b"


def test_pods_that_are_compared_run_one_at_a_time_on_a_cluster(
    airflow_db: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Airflow counts deferred tasks for this limit, so it holds without a pool."""
    from airflow.ti_deps.dependencies_states import ACTIVE_STATES
    from airflow.utils.state import TaskInstanceState

    from bench_control.flows.dag_factory import Suite, build_comparison_dag

    monkeypatch.setenv("TRAINBENCH_LAUNCHER", "kubernetes")
    suite = Suite(dag_id="diagnosis", title="", question=Question.CONFIGURATIONS, schedule=None, doc="", tags=())
    dag = build_comparison_dag(suite)

    assert dag.get_task("benchmark").max_active_tis_per_dagrun == 1
    assert TaskInstanceState.DEFERRED in ACTIVE_STATES
    assert (dag.params["model"], dag.params["seq_length"]) == ("mistral-7b", 1024)
