"""The provider's pod managers, bounded: no dependence on a followed log, no endless wait for dead pods."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from typing import Any

from airflow.providers.cncf.kubernetes.utils.container import container_is_completed
from airflow.providers.cncf.kubernetes.utils.pod_manager import (
    AsyncPodManager,
    PodLaunchTimeoutException,
    PodLoggingStatus,
    PodLogsConsumer,
    PodManager,
    PodPhase,
)
from kubernetes.client import ApiException, V1Pod  # type: ignore[import-untyped]
from pendulum import DateTime
from tenacity import stop_after_attempt
from urllib3 import Retry
from urllib3.exceptions import ReadTimeoutError

from bench_image.contract.result_lines import is_part
from trainbench.pods.manifests import CONTAINER
from trainbench.pods.time_limits import CONNECT_S, LOG_SILENCE_S, due, is_late

LOG_PAUSE_S = 30.0  # between two requests for a log that the node did not serve
POLL_S = 1.0
# An expired token is renewed and a pod that is gone stays so; any other refusal of the log does not describe the pod.
NOT_OF_THE_LOG = (401, 404)


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
    """A pod manager without three faults of the provider's: that one gives up a healthy pod when its kubelet serves no
    log for 16 s, waits without end for a node that accepts a request and never answers, and waits for containers that
    others added.
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

    def await_pod_completion(self, pod: V1Pod, *arguments: Any, **options: Any) -> V1Pod:
        """Wait for our container only: one that a webhook of the cluster added may never end."""
        return super().await_pod_completion(pod, container_name=CONTAINER, do_xcom_push=True)

    def _log_message(self, message: str, *arguments: Any, **options: Any) -> None:
        if not is_part(message):
            super()._log_message(message, *arguments, **options)


class BoundedAsyncPodManager(AsyncPodManager):
    """The same limits until the pod has started, for the trigger."""

    async def read_pod(self, pod: V1Pod) -> V1Pod:
        seen = await super().read_pod(pod)
        refuse_late(seen)
        return seen
