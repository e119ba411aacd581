"""The cluster's operator, without a cluster: it sends our manifest as it is, and never takes silence for success.

What only a cluster can show (scheduling, logs) is not simulated here.
"""

from __future__ import annotations

import asyncio
import json
from copy import deepcopy
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest

from bench_image.contract.pod_io import MAX_RESULT_BYTES, SPEC_ENV
from bench_image.contract.result import Status
from bench_image.contract.result_lines import result_lines
from tests.builders import STARTED_AT, make_failed, make_result, make_spec
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
    (base,) = pod["spec"]["containers"]

    for field in ("image", "command", "env", "resources", "securityContext"):
        assert base[field] == container[field], field
    assert base["volumeMounts"] == container["volumeMounts"]
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


def ended(exit_code: int = 0) -> Any:
    """As the client shows a pod whose program has ended."""
    from kubernetes import client

    state = client.V1ContainerState(terminated=client.V1ContainerStateTerminated(exit_code=exit_code))
    base = client.V1ContainerStatus(name="base", image="x", image_id="", ready=False, restart_count=0, state=state)
    status = client.V1PodStatus(phase="Failed" if exit_code else "Succeeded", container_statuses=[base])
    spec = client.V1PodSpec(containers=[])
    return client.V1Pod(metadata=client.V1ObjectMeta(name="pod-1", namespace="trainbench"), spec=spec, status=status)


@pytest.fixture
def left(operator: Any, store: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Runs the operator for a pod that has ended, with this log; what it returned or raised, and the store."""
    from airflow.providers.cncf.kubernetes.operators.pod import KubernetesPodOperator
    from kubernetes.client import ApiClient

    api = Mock()
    api.api_client.sanitize_for_serialization = ApiClient().sanitize_for_serialization
    operator.__dict__["client"] = api
    monkeypatch.setattr(operator, "_node", lambda: None)
    monkeypatch.setattr(operator, "_events", tuple)
    ti = Mock(try_number=1, max_tries=0)

    def run(log: Any, exit_code: int = 0) -> Any:
        api.read_namespaced_pod.return_value = ended(exit_code)
        served = log if isinstance(log, Exception) else "\n".join(log).encode()
        reply = Mock(stream=lambda _: iter([served]))
        api.read_namespaced_pod_log = Mock(side_effect=log) if isinstance(log, Exception) else lambda *_, **__: reply

        def completed(self: Any, context: Any) -> None:
            self._pod_name = "pod-1"
            self.cleanup(ended(exit_code), ended(exit_code), context=context)

        monkeypatch.setattr(KubernetesPodOperator, "execute", completed)
        return operator.execute({"ti": ti})

    return SimpleNamespace(run=run, api=api, ti=ti, store=store, operator=operator)


def lines(**changes: Any) -> list[str]:
    """The log of a program that printed the result of the operator's run."""
    result = make_result("gpu-7", gpus_per_node=1)
    return [*result_lines(result.model_copy(update=changes).model_dump_json()), "a thread ended late"]


def pushed(left: Any) -> dict[str, Any]:
    return {call.kwargs["key"]: call.kwargs["value"] for call in left.ti.xcom_push.call_args_list}


def test_a_result_is_stored_before_its_pod_goes_and_airflow_gets_its_address(left: Any) -> None:
    stored_before: list[int] = []
    left.api.delete_namespaced_pod.side_effect = lambda *_, **__: stored_before.append(len(results_of(left)))
    left.run(lines())
    handed_over = pushed(left)["return_value"]

    assert handed_over.keys() == {"address", "bytes"}
    assert handed_over["address"].endswith("/result.json")
    assert stored_before == [1]
    assert results_of(left)[0].spec.identity.node == "gpu-7"


def results_of(left: Any) -> Any:
    (campaign_id,) = left.store.campaign_ids()
    return left.store.read_results(campaign_id).results


def test_a_failed_program_s_result_is_handed_over_and_its_error_is_the_task_s(left: Any) -> None:
    from airflow.sdk.exceptions import AirflowFailException

    failed = make_failed("gpu-7", gpus_per_node=1)
    with pytest.raises(AirflowFailException, match="OutOfMemoryError: CUDA out of memory"):
        left.run([*result_lines(failed.model_dump_json())], exit_code=3)

    assert pushed(left).keys() == {"return_value"}
    assert results_of(left)[0].error == failed.error


@pytest.mark.parametrize(
    ("log", "words"),
    [
        ([*result_lines("x" * (MAX_RESULT_BYTES + 1))], f"larger than the {MAX_RESULT_BYTES:,} bytes allowed"),
        ([line[:-8] for line in lines()], "its checksum differs"),
    ],
    ids=["oversized", "damaged"],
)
def test_an_oversized_or_damaged_result_is_a_failed_sample(left: Any, log: list[str], words: str) -> None:
    from airflow.sdk.exceptions import AirflowFailException

    with pytest.raises(AirflowFailException, match=words):
        left.run(log)
    end = PodEnd.model_validate(pushed(left)["pod_end"])
    (result,) = collect([make_spec()], [None], STARTED_AT, ["failed"], [end])

    assert (end.kind, end.pod) == ("invalid_result", "pod-1")
    assert result.error is not None
    assert (result.status, result.error.kind) == (Status.ERROR, "invalid_result")
    assert words in result.error.message


@pytest.mark.parametrize("fault", ["the store is away", "the log may not be read"])
def test_a_pod_whose_result_is_not_stored_stays(left: Any, monkeypatch: pytest.MonkeyPatch, fault: str) -> None:
    """For the next try, and at last for `release`."""
    from airflow.sdk.exceptions import AirflowException

    from trainbench.results.artefacts import Store
    from trainbench.results.store_files import StoreError

    def away(*_: object) -> str:
        raise StoreError("the object store is away")

    log = lines() if fault == "the store is away" else refusal(403, "Forbidden", "pods/log is forbidden")
    monkeypatch.setattr(Store, "write_result", away)
    with pytest.raises(AirflowException, match=r"object store is away|pods/log is forbidden"):
        left.run(log)

    left.api.delete_namespaced_pod.assert_not_called()
    assert pushed(left)["pod_end"]["kind"] == ("not_stored" if fault == "the store is away" else "refused")


def test_release_stores_what_no_task_could_read_and_then_deletes_the_pod(store: Any, airflow_db: None) -> None:
    """Of two pods one cannot be read yet: it stays, and release is tried again."""
    from kubernetes import client
    from kubernetes.client import ApiClient, ApiException

    from trainbench.orchestration.pod_deletion import delete_pods
    from trainbench.orchestration.rescue import rescue

    result = make_result("gpu-7", gpus_per_node=1)
    pods = [ended(), ended()]
    for name, pod in zip(("pod-1", "pod-2"), pods, strict=True):
        pod.metadata.name = name
        env = [client.V1EnvVar(name=SPEC_ENV, value=result.spec.model_dump_json())]
        pod.spec.containers = [client.V1Container(name="base", env=env)]
    api = Mock()
    api.api_client.sanitize_for_serialization = ApiClient().sanitize_for_serialization
    api.list_namespaced_pod.return_value.items = pods

    def log(name: str, *_: Any, **__: Any) -> Any:
        if name == "pod-2":
            raise ApiException(status=500, reason="no route to host")
        return Mock(stream=lambda _: iter(["\n".join(lines()).encode()]))

    api.read_namespaced_pod_log = log
    with pytest.raises(ApiException, match=r"could not be deleted: pod-2 \(no route to host\)"):
        delete_pods(api, "trainbench", {"x": "y"}, before=lambda pod: rescue(api, store, pod))

    assert [call.args[0] for call in api.delete_namespaced_pod.call_args_list] == ["pod-1"]
    assert store.read_results(result.spec.identity.campaign_id).results == (result,)


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
    rank = BenchPodOperator(task_id="rank", pod_template_dict=manifest(spec, PodSettings()), do_xcom_push=False)
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
