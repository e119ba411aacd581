"""The provider's pod managers, bounded: limited results, no dependence on logs, no endless wait for dead pods."""

from __future__ import annotations

import time
from contextlib import closing
from datetime import UTC, datetime
from typing import Any

from airflow.providers.cncf.kubernetes.kubernetes_helper_functions import generic_api_retry
from airflow.providers.cncf.kubernetes.utils.container import container_is_completed, get_container_status
from airflow.providers.cncf.kubernetes.utils.pod_manager import (
    EMPTY_XCOM_RESULT,
    AsyncPodManager,
    PodLaunchTimeoutException,
    PodLoggingStatus,
    PodLogsConsumer,
    PodManager,
    PodPhase,
    XComRetrievalError,
)
from airflow.providers.cncf.kubernetes.utils.xcom_sidecar import PodDefaults
from kubernetes.client import ApiException, V1Pod  # type: ignore[import-untyped]
from kubernetes.stream import stream, ws_client  # type: ignore[import-untyped]
from pendulum import DateTime
from tenacity import stop_after_attempt
from urllib3 import Retry
from urllib3.exceptions import ReadTimeoutError
from websocket import WebSocket, WebSocketException

from bench_image.contract.pod_io import MAX_RESULT_BYTES, XCOM_FILE
from trainbench.pods.manifests import CONTAINER, XCOM_DIR
from trainbench.pods.pod_end import PULLS
from trainbench.pods.time_limits import LOG_SILENCE_S, RESULT_SILENCE_S, due, is_late

FILE = f"{XCOM_DIR}/{XCOM_FILE}"
# One byte over the limit shows that the result is too large.
COMMAND = f"if [ -s {FILE} ]; then head -c {MAX_RESULT_BYTES + 1} {FILE}; else echo {EMPTY_XCOM_RESULT}; fi"
LOG_PAUSE_S = 30.0  # between two requests for a log that the node did not serve
END_SIDECAR = "kill -2 $(pgrep -u $(id -u) -f sh)"  # the provider's own command
POLL_S = 1.0
SIDECAR_START_S = 60.0  # a program may end before the container beside it, which keeps its result, has started
CONNECT_S = READ_S = RESULT_SILENCE_S  # of one request to a node, which may accept it and never answer
# An expired token is renewed and a pod that is gone stays so; any other refusal of the log does not describe the pod.
NOT_OF_THE_LOG = (401, 404)


class BoundedWebSocket(WebSocket):
    """A websocket with a timeout. The Kubernetes client sets none, and the default timeout of the library holds only
    for connections that its own function makes.
    """

    def connect(self, url: str, **options: Any) -> None:
        super().connect(url, **{"timeout": CONNECT_S, **options})  # type: ignore[no-untyped-call]


ws_client.WebSocket = BoundedWebSocket


class RetryUnlessSilent(Retry):
    """urllib3's retries, but none after a read timeout: four silent requests would take four times the limit of one."""

    def increment(
        self,
        method: str | None = None,
        url: str | None = None,
        response: Any = None,
        error: Exception | None = None,
        *where: Any,
        **origin: Any,
    ) -> RetryUnlessSilent:
        if isinstance(error, ReadTimeoutError):
            raise error
        return super().increment(method, url, response, error, *where, **origin)


def end_silent_requests(client: Any) -> None:
    """Let a request of this CoreV1Api end at its own read timeout. Other errors are retried as before."""
    pool = client.api_client.rest_client.pool_manager.connection_pool_kw
    before = Retry.from_int(pool.get("retries"))
    if not isinstance(before, RetryUnlessSilent):
        pool["retries"] = RetryUnlessSilent(**vars(before))


def log_timeout() -> tuple[float, float]:
    """(connect, read) timeouts in seconds of a request for a log."""
    return CONNECT_S, LOG_SILENCE_S


def refuse_late(pod: V1Pod) -> None:
    """Raise PodLaunchTimeoutException for a pod that its node should have ended by now and did not. The provider's
    trigger reports it as a timeout.
    """
    moment = due(
        pod.metadata.deletion_timestamp,
        pod.status.start_time,
        pod.spec.active_deadline_seconds,
        pod.spec.termination_grace_period_seconds,
    )
    is_over = pod.status.phase in ("Succeeded", "Failed") or container_is_completed(pod, CONTAINER)
    if moment and is_late(moment, datetime.now(UTC)) and not is_over:
        raise PodLaunchTimeoutException(f"the pod should have been gone by {moment.at}: {moment.why}")


class BoundedPodManager(PodManager):
    """A pod manager without five faults of the provider's: that one reads a result of any size into the worker's
    memory, gives up a healthy pod when its kubelet serves no log for 16 s, ends the sidecar even if it read no result,
    gives up the result of a program that ended before the sidecar started, and waits without end for a node that
    accepts a command and never answers.
    """

    def read_pod(self, pod: V1Pod) -> V1Pod:
        seen = super().read_pod(pod)
        refuse_late(seen)
        return seen

    def fetch_container_logs(
        self,
        pod: V1Pod,
        container_name: str,
        *,
        follow: bool = False,
        since_time: DateTime | None = None,
        **options: Any,
    ) -> PodLoggingStatus:
        """Follow the log until the container has ended. While its node serves no log, only watch the container."""
        while True:
            try:
                return super().fetch_container_logs(
                    pod, container_name, follow=follow, since_time=since_time, **options
                )
            except ApiException as error:
                if error.status in NOT_OF_THE_LOG:
                    raise
                name, why = pod.metadata.name, f"{error.status} {error.reason}"
            self.log.warning("The log of %s cannot be read (%s). Its program runs on, and is waited for", name, why)
            if not follow or not self._runs_for(LOG_PAUSE_S, pod, container_name):
                return PodLoggingStatus(running=False, last_log_time=since_time)
            since_time = self.container_log_times.get((pod.metadata.namespace, name, container_name), since_time)

    def read_pod_logs(self, *arguments: Any, **options: Any) -> PodLogsConsumer:
        """Read the log with one try. The caller repeats it, because the container may end meanwhile, and a silent log
        may mean a machine without power whose connection stays open.
        """
        options["_request_timeout"] = log_timeout()
        once = PodManager.read_pod_logs.retry_with(stop=stop_after_attempt(1))
        consumer: PodLogsConsumer = once(self, *arguments, **options)
        return consumer

    def _runs_for(self, pause_s: float, pod: V1Pod, container_name: str) -> bool:
        """Whether the container still runs after so many seconds; False as soon as it has ended."""
        ends_at = time.monotonic() + pause_s
        while time.monotonic() < ends_at:
            seen = self.read_pod(pod)
            if container_is_completed(seen, container_name) or seen.status.phase in PodPhase.terminal_states:
                return False
            time.sleep(POLL_S)
        return True

    def extract_xcom(self, pod: V1Pod, *, ignore_kill_failure: bool = True) -> str:
        """The result's text. The sidecar ends only after the read, so that a failed read can be repeated."""
        if not self._has_sidecar(pod):
            raise XComRetrievalError(f"the sidecar of {pod.metadata.name} that keeps the result does not run")
        text: str = self.extract_xcom_json(pod)
        try:
            self.extract_xcom_kill(pod)
        except (ApiException, AttributeError) as error:
            if not ignore_kill_failure:
                raise
            self.log.warning("The sidecar of %s runs on until the pod is deleted: %s", pod.metadata.name, error)
        return text

    def _has_sidecar(self, pod: V1Pod) -> bool:
        """Wait until the sidecar runs; False when it has ended, has no image or does not start in time."""
        gives_up_at = time.monotonic() + SIDECAR_START_S
        while True:
            seen = self.read_pod(pod)
            own = get_container_status(seen, PodDefaults.SIDECAR_CONTAINER_NAME)
            if own and own.state.running:
                return True
            starts = own and own.state.waiting and own.state.waiting.reason not in PULLS
            if not starts or seen.status.phase in PodPhase.terminal_states or time.monotonic() > gives_up_at:
                return False
            time.sleep(POLL_S)

    @generic_api_retry  # type: ignore[untyped-decorator]
    def extract_xcom_json(self, pod: V1Pod) -> str:
        """The result's text, at most one byte over the limit; the caller decodes it."""
        return self._run_in_sidecar(pod, COMMAND)

    def extract_xcom_kill(self, pod: V1Pod) -> None:
        self._run_in_sidecar(pod, END_SIDECAR)

    def _run_in_sidecar(self, pod: V1Pod, command: str) -> str:
        """What the command wrote. Raises ApiException if the node breaks the connection or takes longer than READ_S."""
        running = stream(
            self._client.connect_get_namespaced_pod_exec,
            pod.metadata.name,
            pod.metadata.namespace,
            container=PodDefaults.SIDECAR_CONTAINER_NAME,
            command=["/bin/sh", "-c", command],
            stdin=False,
            stdout=True,
            stderr=False,
            tty=False,
            _preload_content=False,
        )
        with closing(running) as client:
            try:
                client.run_forever(timeout=READ_S)
            except (WebSocketException, OSError) as error:
                raise ApiException(status=0, reason=f"the connection to the node broke: {error}") from error
            if client.is_open():
                raise ApiException(status=0, reason=f"the node did not carry the command out within {READ_S} s")
            return str(client.read_all())


class BoundedAsyncPodManager(AsyncPodManager):
    """The same limits until the pod has started, for the trigger."""

    async def read_pod(self, pod: V1Pod) -> V1Pod:
        seen = await super().read_pod(pod)
        refuse_late(seen)
        return seen
