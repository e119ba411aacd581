"""The cluster's operator, without a cluster: it sends our manifest as it is, and never takes silence for success.

What only a cluster can show (scheduling, logs, the XCom sidecar's exec) is not simulated here.
"""

from __future__ import annotations

import asyncio
import json
from copy import deepcopy
from datetime import timedelta
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest

from bench_image.contract.pod_io import MAX_RESULT_BYTES
from bench_image.contract.result import Status
from tests.builders import STARTED_AT, make_spec
from trainbench.params.campaign_kind import CampaignKind
from trainbench.pods.manifests import PodSettings, manifest
from trainbench.pods.pod_end import PodEnd
from trainbench.results.collect import collect

EXAMPLES = sorted((Path(__file__).resolve().parents[2] / "docs/examples/pod-templates").glob("*.yaml"))


def test_the_manifest_reaches_the_api_server_unharmed(operator: Any) -> None:
    from kubernetes.client import ApiClient

    ours = deepcopy(operator.pod_template_dict)
    (container,) = ours["spec"]["containers"]
    pod = ApiClient().sanitize_for_serialization(operator.build_pod_request_obj(None, dry_run=True))
    base, sidecar = pod["spec"]["containers"]

    assert sidecar["name"] == "airflow-xcom-sidecar"
    for field in ("image", "command", "env", "resources", "securityContext"):
        assert base[field] == container[field], field
    assert {mount["mountPath"] for mount in base["volumeMounts"]} == {
        *(mount["mountPath"] for mount in container["volumeMounts"]),
        "/airflow/xcom",
    }
    for field in ("affinity", "tolerations", "securityContext", "activeDeadlineSeconds", "priorityClassName"):
        assert pod["spec"][field] == ours["spec"][field], field
    assert pod["spec"]["automountServiceAccountToken"] is False
    assert pod["metadata"]["labels"]["trainbench.io/node"] == "gpu-7"


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.stem)
def test_what_a_template_adds_reaches_the_api_server_too(example: Path, airflow_db: None) -> None:
    """The operator merges once more, its own fields over ours: nothing of the manifest is lost."""
    from kubernetes.client import ApiClient

    from trainbench.orchestration.kubernetes_operator import BenchPodOperator

    ours = manifest(make_spec(node="gpu-7"), PodSettings(pod_template=example))
    operator = BenchPodOperator(task_id="benchmark", pod_template_dict=ours, do_xcom_push=True, in_cluster=False)
    sent = ApiClient().sanitize_for_serialization(operator.build_pod_request_obj(None, dry_run=True))

    added = {"containers", "volumes", "terminationGracePeriodSeconds"}  # the sidecar, its volume, the operator's own
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
    monkeypatch.setattr(operator, "_node", lambda: None)
    arguments = [{"ti": ti}] if silence == "execute" else [{"ti": ti}, {"name": "pod-1", "status": "success"}]

    with pytest.raises(AirflowException, match="deleted before its result could be read"):
        getattr(operator, silence)(*arguments)
    assert ti.xcom_push.call_args.kwargs["value"]["kind"] == "vanished"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("x" * (MAX_RESULT_BYTES + 1), f"larger than the {MAX_RESULT_BYTES:,} bytes allowed"),
        ('{"schema_version": 2, "status": ', "is not JSON"),
    ],
)
def test_an_oversized_or_broken_answer_is_a_failed_sample_and_never_an_xcom(
    operator: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, text: str, words: str
) -> None:
    from airflow.providers.cncf.kubernetes.operators.pod import KubernetesPodOperator
    from airflow.sdk.exceptions import AirflowFailException

    operator.__dict__["pod_manager"] = Mock(extract_xcom=lambda *_, **__: text)
    monkeypatch.setattr(KubernetesPodOperator, "execute", lambda self, context: self.extract_xcom(Mock()))
    monkeypatch.setattr(operator, "_events", tuple)  # there is no API to ask
    monkeypatch.setattr(operator, "_node", lambda: None)
    ti = Mock()

    with pytest.raises(AirflowFailException, match=words):
        operator.execute({"ti": ti})
    (pushed,) = [call.kwargs for call in ti.xcom_push.call_args_list]
    assert (pushed["key"], pushed["value"]["kind"]) == ("pod_end", "invalid_result")
    (result,) = collect([make_spec()], [None], STARTED_AT, ["failed"], [PodEnd.model_validate(pushed["value"])])
    assert result.error is not None
    assert (result.status, result.error.kind) == (Status.ERROR, "invalid_result")
    assert words in result.error.message
    assert text[:20] not in caplog.text


def test_the_sidecar_leaves_at_once_when_the_pod_is_displaced(operator: Any) -> None:
    """As PID 1 it ignores SIGTERM unless it traps it: the pod would hold its node for the whole grace period."""
    sidecar = operator.build_pod_request_obj(None, dry_run=True).spec.containers[1]

    assert sidecar.command[-1].startswith('trap "exit 0" INT TERM;')


def refusal(status: int, reason: str, message: str) -> Any:
    from kubernetes.client import ApiException

    error = ApiException(status=status, reason=reason)
    error.body = json.dumps({"kind": "Status", "message": message})
    return error


def test_a_quota_is_named_by_what_the_api_server_says_not_by_the_http_reason(
    operator: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    from airflow.sdk.exceptions import AirflowFailException

    ti = Mock(try_number=1, max_tries=2)
    monkeypatch.setattr(operator, "_events", tuple)
    monkeypatch.setattr(operator, "_node", lambda: None)
    message = 'pods "tb-1" is forbidden: exceeded quota: fence, requested: pods=1, used: pods=20, limited: pods=20'

    with pytest.raises(AirflowFailException, match="exceeded quota: fence, requested: pods=1, used: pods=20"):
        operator._conclude({"ti": ti}, refusal(403, "Forbidden", message))
    assert ti.xcom_push.call_args.kwargs["value"]["kind"] == "quota"


def test_an_expired_token_is_retried_and_leaves_the_gang_alone_as_long_as_a_try_is_left(
    airflow_db: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The pods of the gang still run: the next try finds this one again. The last try ends the gang."""
    from airflow.sdk.exceptions import AirflowException, AirflowFailException

    from trainbench.orchestration.kubernetes_operator import BenchPodOperator

    spec = make_spec(node="gpu-0", peers=("gpu-1",), nodes=2, gpus_per_node=1, strategy="ddp")
    rank = BenchPodOperator(task_id="rank", pod_template_dict=manifest(spec, PodSettings()), do_xcom_push=True)
    ended: list[float] = []
    monkeypatch.setattr(rank, "_end_gang", lambda wait_s: ended.append(wait_s))
    monkeypatch.setattr(rank, "_events", tuple)
    monkeypatch.setattr(rank, "_node", lambda: None)

    with pytest.raises(AirflowException, match="has it expired") as retried:
        rank._conclude({"ti": Mock(try_number=1, max_tries=2)}, refusal(401, "Unauthorized", "Unauthorized"))
    assert not isinstance(retried.value, AirflowFailException)
    assert ended == []

    with pytest.raises(AirflowFailException, match="has it expired"):
        rank._conclude({"ti": Mock(try_number=3, max_tries=2)}, refusal(401, "Unauthorized", "Unauthorized"))
    assert len(ended) == 1


def test_a_try_of_a_pod_s_task_is_bounded_by_queue_start_deadline_and_three_minutes(airflow_db: None) -> None:
    """A dead node ends nothing: 600 s for a place, 60 s to start, 1,920 s of the pod, 180 s to give up."""
    from trainbench.orchestration.kubernetes_operator import BenchPodOperator

    times = {"schedule_timeout_seconds": 600, "startup_timeout_seconds": 60}
    pod = manifest(make_spec(timeout_s=1800), PodSettings())
    operator = BenchPodOperator(task_id="benchmark", pod_template_dict=pod, **times)

    assert operator.execution_timeout == timedelta(seconds=2760)


def test_a_deferred_task_waits_in_our_trigger_which_the_triggerer_can_make_again(operator: Any) -> None:
    from airflow.providers.cncf.kubernetes.triggers.pod import KubernetesPodTrigger
    from airflow.sdk.exceptions import TaskDeferred

    from trainbench.orchestration.pod_trigger import BenchPodTrigger

    plain = KubernetesPodTrigger("pod-1", "trainbench", STARTED_AT, "base", schedule_timeout=7)
    with pytest.raises(TaskDeferred) as deferred:
        operator.defer(trigger=plain, method_name="trigger_reentry", timeout=timedelta(seconds=9))
    path, arguments = deferred.value.trigger.serialize()

    assert path == "trainbench.orchestration.pod_trigger.BenchPodTrigger"
    assert BenchPodTrigger(**arguments).schedule_timeout == 7
    assert deferred.value.timeout == timedelta(seconds=9)


def test_no_task_is_resumed_before_the_scheduler_knows_that_it_was_deferred(monkeypatch: pytest.MonkeyPatch) -> None:
    """A pod that ends at once, or has no image, resumed its task within the second: Airflow called it failed."""
    from airflow.providers.cncf.kubernetes.triggers.pod import KubernetesPodTrigger

    from trainbench.orchestration import pod_trigger

    now, slept = [100.0], list[float]()

    async def at_once(_: Any) -> Any:
        now[0] += 3.0
        yield "event"

    async def sleep(seconds: float) -> None:
        slept.append(seconds)

    monkeypatch.setattr(KubernetesPodTrigger, "run", at_once)
    monkeypatch.setattr(pod_trigger, "asyncio", Mock(sleep=sleep))
    monkeypatch.setattr(pod_trigger, "time", Mock(monotonic=lambda: now[0]))
    trigger = pod_trigger.BenchPodTrigger("pod-1", "trainbench", STARTED_AT, "base")

    async def events() -> list[Any]:
        return [event async for event in trigger.run()]

    assert asyncio.run(events()) == ["event"]
    assert slept == [7.0]


def test_a_pod_that_cannot_be_removed_is_named_and_never_removed_by_force(
    operator: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    from airflow.sdk.exceptions import AirflowFailException

    node = {
        "metadata": {"name": "gpu-7"},
        "status": {"conditions": [{"type": "Ready", "status": "Unknown", "message": "Kubelet stopped posting."}]},
    }
    seen = {"metadata": {"name": "pod-1"}, "spec": {}, "status": {"phase": "Running"}}
    api, ti = Mock(), Mock(try_number=1, max_tries=2)
    operator.__dict__["client"] = api
    monkeypatch.setattr(operator, "_node", lambda: node)
    monkeypatch.setattr(operator, "_look", lambda *_: seen)
    event = {"status": "timeout", "name": "pod-1", "namespace": "trainbench", "message": "late"}

    with pytest.raises(AirflowFailException, match="pod pod-1 could not be removed and its program may still run"):
        operator.trigger_reentry({"ti": ti}, event)
    assert ti.xcom_push.call_args.kwargs["value"]["kind"] == "node_lost"
    assert api.delete_namespaced_pod.call_args.kwargs["body"].grace_period_seconds == 20
    api.read_namespaced_pod_log.assert_not_called()


def test_the_dag_has_the_same_tasks_on_a_cluster(airflow_db: None, monkeypatch: pytest.MonkeyPatch) -> None:
    from trainbench.orchestration.dag_factory import Suite, build_node_dag

    monkeypatch.setenv("TRAINBENCH_LAUNCHER", "kubernetes")
    suite = Suite(
        dag_id="nightly", title="Nightly", campaign_kind=CampaignKind.NODES, schedule="0 2 * * *", doc="", tags=()
    )
    dag = build_node_dag(suite)

    assert dag.schedule == "0 2 * * *"
    assert dag.get_task("benchmark").operator_class.__name__ == "RunOperator"
    assert dag.params["model"] == "mistral-7b"
    assert (dag.params["preset"], dag.params["strategies"], dag.params["gpus_per_node"]) == (
        "tuned", ["independent", "ddp"], None,
    )  # fmt: skip


def test_pods_that_are_compared_run_one_at_a_time_on_a_cluster(
    airflow_db: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Airflow counts deferred tasks for this limit, so it holds without a pool."""
    from airflow.ti_deps.dependencies_states import ACTIVE_STATES
    from airflow.utils.state import TaskInstanceState

    from trainbench.orchestration.dag_factory import Suite, build_comparison_dag

    monkeypatch.setenv("TRAINBENCH_LAUNCHER", "kubernetes")
    suite = Suite(
        dag_id="diagnosis", title="", campaign_kind=CampaignKind.CONFIGURATIONS, schedule=None, doc="", tags=()
    )
    dag = build_comparison_dag(suite)

    assert dag.get_task("benchmark").max_active_tis_per_dagrun == 1
    assert TaskInstanceState.DEFERRED in ACTIVE_STATES
    assert (dag.params["model"], dag.params["seq_length"]) == ("mistral-7b", 1024)


def test_one_pod_that_cannot_be_deleted_does_not_keep_the_others(airflow_db: None) -> None:
    """`release` stopped at the first refusal: the pods behind it ran on."""
    from kubernetes.client import ApiException

    from trainbench.orchestration.pod_deletion import delete_pods

    pods = [Mock(status=Mock(container_statuses=[])) for _ in "abcd"]
    for name, pod in zip("abcd", pods, strict=True):
        pod.metadata.name = name
    refusals = {"a": refusal(403, "Forbidden", "a policy keeps it"), "c": refusal(404, "Not Found", "gone")}
    calls: list[str] = []

    def delete(name: str, *_: Any, **__: Any) -> None:
        calls.append(name)
        if name in refusals:
            raise refusals[name]

    client = Mock(delete_namespaced_pod=delete)
    client.list_namespaced_pod.return_value.items = pods
    with pytest.raises(ApiException, match=r"could not be deleted: a \(a policy keeps it\)"):
        delete_pods(client, "trainbench", {"x": "y"})
    assert calls == ["a", "b", "c", "d"]
