"""Pods on silent or dead nodes end in bounded time."""

from __future__ import annotations

import socket
from datetime import UTC, datetime, timedelta
from typing import Any
from unittest.mock import Mock

import pytest


@pytest.mark.parametrize(("silent_s", "made"), [(200, True), (400, False)])
def test_no_pod_is_made_for_a_node_that_has_been_dead_for_longer_than_kubernetes_tolerates(
    operator: Any, monkeypatch: pytest.MonkeyPatch, silent_s: float, made: bool
) -> None:
    """Each later pod of a study would wait for a place for an hour. The restart of a kubelet is short."""
    from airflow.providers.cncf.kubernetes.operators.pod import KubernetesPodOperator
    from airflow.sdk.exceptions import AirflowException

    since = datetime.now(UTC) - timedelta(seconds=silent_s)
    ready = {"type": "Ready", "status": "Unknown", "lastTransitionTime": since.isoformat()}
    monkeypatch.setattr(operator, "_node", lambda: {"metadata": {}, "status": {"conditions": [ready]}})
    monkeypatch.setattr(KubernetesPodOperator, "get_or_create_pod", lambda self, pod, context: pod)

    if made:
        assert operator.get_or_create_pod(running_pod(), {}).metadata.name == "pod-1"
    else:
        with pytest.raises(AirflowException, match="no pod was made: its node has not been ready for 400 s"):
            operator.get_or_create_pod(running_pod(), {})


def test_a_result_on_a_dead_node_is_not_requested_beyond_the_pod_s_own_time(
    operator: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its program has ended, its node answers 500: once the pod should be gone, nothing of it can be read any more."""
    from kubernetes.client import ApiException

    from trainbench.orchestration import kubernetes_operator

    def unreachable(*_: Any, **__: Any) -> str:
        raise ApiException(status=500, reason="no route to host")

    over = {"startTime": "2026-11-22T02:00:00Z", "containerStatuses": [{"name": "base", "state": {"terminated": {}}}]}
    seen = {"spec": {"activeDeadlineSeconds": 100}, "status": over}
    operator.__dict__["client"] = Mock(read_namespaced_pod_log=unreachable)
    monkeypatch.setattr(operator, "_look", lambda *_: seen)
    monkeypatch.setattr(kubernetes_operator.time, "sleep", lambda _: pytest.fail("it is asked again"))

    with pytest.raises(ApiException, match="no route to host"):
        operator._keep_what_it_left(running_pod())


def running_pod(**metadata: Any) -> Any:
    """As the client shows it: accepted at 02:00 with a deadline of 100 s and a grace of 20 s."""
    from kubernetes import client

    started = datetime(2026, 11, 22, 2, 0, tzinfo=UTC)
    state = client.V1ContainerState(running=client.V1ContainerStateRunning())
    base = client.V1ContainerStatus(name="base", image="x", image_id="", ready=True, restart_count=0, state=state)
    spec = client.V1PodSpec(containers=[], active_deadline_seconds=100, termination_grace_period_seconds=20)
    status = client.V1PodStatus(phase="Running", start_time=started, container_statuses=[base])
    return client.V1Pod(metadata=client.V1ObjectMeta(name="pod-1", namespace="n", **metadata), spec=spec, status=status)


def test_nobody_waits_for_a_pod_that_its_node_should_have_ended_long_ago() -> None:
    """In the trigger and in the sync loop: every reading of the pod looks at the clock."""
    from airflow.providers.cncf.kubernetes.utils.pod_manager import PodLaunchTimeoutException

    from trainbench.orchestration.bounded_pod_manager import BoundedPodManager

    manager = BoundedPodManager(kube_client=Mock(read_namespaced_pod=lambda *_: running_pod()))
    with pytest.raises(PodLaunchTimeoutException, match=r"gone by 2026-11-22 02:02:00.* its deadline passed"):
        manager.read_pod(running_pod())


def test_a_pod_that_has_time_left_or_has_ended_is_waited_for() -> None:
    from trainbench.orchestration.bounded_pod_manager import refuse_late

    ahead, over = running_pod(), running_pod()
    ahead.status.start_time = datetime.now(UTC)
    over.status.phase = "Succeeded"

    refuse_late(ahead)
    refuse_late(over)


def test_a_silent_log_is_requested_again_within_the_margin() -> None:
    """A machine without power closes no connection: the provider's own waits five minutes."""
    from trainbench.orchestration.bounded_pod_manager import BoundedPodManager

    client = Mock()
    BoundedPodManager(kube_client=client).read_pod_logs(running_pod(), "base")

    assert client.read_namespaced_pod_log.call_args.kwargs["_request_timeout"] == (60, 30)


def test_a_log_that_stays_silent_is_requested_once_and_not_by_urllib3_s_three_retries_too(
    operator: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A node without power: four requests of 30 s would end later than the task, which counts one."""
    from kubernetes.client import ApiClient, Configuration, CoreV1Api
    from urllib3.exceptions import HTTPError

    from trainbench.orchestration import bounded_pod_manager

    monkeypatch.setattr(bounded_pod_manager, "LOG_SILENCE_S", 0.1)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        host = f"http://127.0.0.1:{silent.getsockname()[1]}"
        operator.__dict__["hook"] = Mock(core_v1_client=CoreV1Api(ApiClient(Configuration(host=host))))
        with pytest.raises(HTTPError, match="Read timed out"):
            operator.pod_manager.read_pod_logs(running_pod(), "base")
        assert num_connections(silent) == 1


def num_connections(server: socket.socket) -> int:
    """How many connections wait to be accepted."""
    server.setblocking(False)
    count = 0
    while True:
        try:
            server.accept()[0].close()
        except BlockingIOError:
            return count
        count += 1


def test_requests_that_break_are_retried_as_the_airflow_configuration_says() -> None:
    """Two retries set there stay two; only silence is not retried."""
    from kubernetes.client import ApiClient, Configuration, CoreV1Api
    from urllib3 import Retry
    from urllib3.exceptions import ProtocolError, ReadTimeoutError

    from trainbench.orchestration.bounded_pod_manager import end_silent_requests

    configuration = Configuration()
    configuration.retries = Retry(2, backoff_factor=0.5)
    client = CoreV1Api(ApiClient(configuration))
    end_silent_requests(client)
    end_silent_requests(client)  # of a second operator with the same hook
    retries = client.api_client.rest_client.pool_manager.connection_pool_kw["retries"]

    assert (retries.total, retries.backoff_factor) == (2, 0.5)
    left = retries.increment("GET", "/", error=ProtocolError("reset"))
    assert left.total == 1
    with pytest.raises(ReadTimeoutError):
        left.increment("GET", "/", error=ReadTimeoutError(Mock(), "/", "Read timed out."))
