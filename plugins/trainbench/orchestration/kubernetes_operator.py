"""The Airflow operator that runs a Pod manifest on the cluster, reports the cause of a failure, and removes the pod."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from functools import cached_property
from typing import Any, NoReturn

from airflow.providers.cncf.kubernetes.operators.pod import KubernetesPodOperator
from airflow.providers.cncf.kubernetes.triggers.pod import KubernetesPodTrigger
from airflow.providers.cncf.kubernetes.utils.container import container_is_succeeded
from airflow.sdk import Context
from airflow.sdk.exceptions import (
    AirflowException,
    AirflowFailException,
    AirflowSkipException,
    AirflowTaskTimeout,
    TaskDeferred,
)
from kubernetes.client import ApiException, V1DeleteOptions, V1Pod  # type: ignore[import-untyped]
from urllib3.exceptions import HTTPError

from bench_image.contract.result_lines import ABSENT, ResultLinesError, ResultReader
from trainbench.orchestration.api_errors import UNREACHABLE, answer, http_status_of
from trainbench.orchestration.bounded_pod_manager import BoundedPodManager, end_silent_requests
from trainbench.orchestration.kept_results import keep_log
from trainbench.orchestration.pod_deletion import delete_pods
from trainbench.orchestration.pod_reads import follow_log, read_events, read_log, read_node, read_pod
from trainbench.orchestration.pod_trigger import BenchPodTrigger
from trainbench.planning.nodes import not_ready_s
from trainbench.pods.manifests import GANG, RENDEZVOUS, node_of
from trainbench.pods.pod_end import END, EndKind, PodEnd, pod_end
from trainbench.pods.pod_log import MAX_LINE, LogTail
from trainbench.pods.time_limits import DEAD_AFTER_S, GRACE_S, due_of, has_ended, is_late, task_limit_s
from trainbench.results.arrivals import Arrival, arrived_of_pod, store_arrival
from trainbench.results.artefacts import open_store
from trainbench.results.store_files import StoreError
from trainbench.settings.environment import read_settings

# Requests for a log that the node does not serve go on for as long as `release` waits for an API server.
RESULT_WAIT_S, RESULT_PAUSE_S = 600.0, 5.0
PEER_GRACE_S = 10.0  # time in which the peers of a failed pod may fail with a cause of their own
# A pod of a gang is never made anew, but after a failure of the API alone it still runs and can be reattached.
REATTACHED = frozenset({EndKind.API, EndKind.UNAUTHORIZED})
NEVER_PLACED = frozenset({EndKind.BUSY, EndKind.UNSCHEDULABLE, EndKind.WITHDRAWN})


def log_line(container: str, line: str) -> str:
    """A line of the pod's log for the task's log."""
    return f"[{container}] {line[:MAX_LINE]}"


class BenchPodOperator(KubernetesPodOperator):
    """`KubernetesPodOperator`, with six differences.

    - It fails where the provider's operator ends as success without a result (its issues 72821 and 73117).
    - The pod's end is pushed as XCom `pod_end`. Only failures that a new pod may cure are retried; a node that is not
      free skips the task, which then counts for no verdict.
    - A pod that was made although its creation returned an error is reattached, not leaked.
    - The result is read from the pod's log into the store before the pod is deleted; Airflow gets its address. A pod
      whose result cannot be read or stored stays for the next try, and at last for `release`.
    - When a pod of a gang fails, the rest of the gang is deleted, because it would wait for its peer.
    - It ends in bounded time (`time_limits`) when the node is dead, and names a pod that it could not remove.
    """

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.arrival: Arrival | None = None
        self._missing = ABSENT  # what the reader of results missed in the log
        self._pod_name: str | None = None
        self._is_resumed = self._is_making = False
        self._last_seen: Mapping[str, Any] | None = None
        self.store: str | None = None  # address of the store of results; None: the settings'
        self.result_wait_s = RESULT_WAIT_S
        self.log_formatter = self.log_formatter or log_line
        deadline_s = ((self.pod_template_dict or {}).get("spec") or {}).get("activeDeadlineSeconds")
        if deadline_s is not None:
            limit_s = task_limit_s(self.schedule_timeout_seconds, self.startup_timeout_seconds, deadline_s)
            self.execution_timeout = timedelta(seconds=limit_s)

    def execute(self, context: Context) -> Any:
        try:
            super().execute(context)
            self._hand_over(context, self._require())
        except TaskDeferred:
            raise
        except (AirflowException, AirflowTaskTimeout, ApiException, HTTPError, StoreError) as error:
            self._concluded(context, error)

    def trigger_reentry(self, context: Context, event: dict[str, Any]) -> Any:
        self._pod_name, self._is_resumed = event["name"], True
        try:
            self._leave_a_late_pod(event)
            super().trigger_reentry(context, event)
            self._hand_over(context, self._require())
        except TaskDeferred:
            raise
        except (AirflowException, AirflowTaskTimeout, ApiException, HTTPError, StoreError) as error:
            self._concluded(context, error)

    def defer(self, *, trigger: Any, **options: Any) -> NoReturn:
        if isinstance(trigger, KubernetesPodTrigger):
            trigger = BenchPodTrigger.like(trigger)
        super().defer(trigger=trigger, **options)

    def _leave_a_late_pod(self, event: Mapping[str, Any]) -> None:
        """Raise AirflowException for a pod that runs beyond its time limit: the provider's operator would follow its
        log without end.
        """
        if event["status"] != "timeout":
            return
        seen = self._look(event["name"], event["namespace"])
        if seen and seen["status"].get("phase") == "Running" and not has_ended(seen, self.base_container_name):
            self._last_seen = seen
            raise AirflowException(event["message"])

    def get_or_create_pod(self, pod_request_obj: V1Pod, context: Context) -> V1Pod:
        self._pod_name = pod_request_obj.metadata.name
        self._refuse_dead_node()
        if self._has_peers and context["ti"].try_number > 1:
            return self._reattached_pod(pod_request_obj, context)
        self._is_making = True
        try:
            pod = super().get_or_create_pod(pod_request_obj, context)
            self._pod_name = pod.metadata.name  # a pod of an earlier try has another name
            return pod
        except ApiException as error:
            # The name has a random suffix: if it exists, it is the pod whose creation got no answer.
            if error.status == 409 and (pod := self.find_pod(pod_request_obj.metadata.namespace, context=context)):
                return pod
            raise
        finally:
            self._is_making = False

    def process_pod_deletion(self, pod: V1Pod, *, reraise: bool = True) -> bool:
        """Keep the pod of an earlier try that has ended: the provider's operator would make a new one, but its result
        has not been read.
        """
        return False if self._is_making else bool(super().process_pod_deletion(pod, reraise=reraise))

    def _refuse_dead_node(self) -> None:
        """Raise AirflowException for a dead node: this pod and, in a study, all later ones would wait for it."""
        node = self._node()
        silent_s = not_ready_s(node, datetime.now(UTC)) if node else None
        if silent_s is not None and silent_s > DEAD_AFTER_S:
            raise AirflowException(f"no pod was made: its node has not been ready for {silent_s:.0f} s")

    @property
    def _has_peers(self) -> bool:
        return RENDEZVOUS in self._metadata["labels"]

    @property
    def _metadata(self) -> Mapping[str, Any]:
        metadata: Mapping[str, Any] = (self.pod_template_dict or {})["metadata"]
        return metadata

    def _reattached_pod(self, pod_request_obj: V1Pod, context: Context) -> V1Pod:
        """The existing pod of a gang's task that Airflow lost. A new pod could not join the gang."""
        pod = self.find_pod(pod_request_obj.metadata.namespace, context=context, exclude_checked=False)
        if pod is None:
            raise AirflowFailException(
                "Airflow lost this task, and its pod is gone: the report has its result if it was stored before; else "
                "run the gang again"
            )
        return pod

    def cleanup(self, pod: V1Pod, remote_pod: V1Pod, xcom_result: Any = None, context: Context | None = None) -> None:
        if remote_pod is not None and self._last_seen is None:
            self._last_seen = read_pod(
                self.client, remote_pod.metadata.name, remote_pod.metadata.namespace
            )  # before deletion
        if self._last_seen and has_ended(self._last_seen, self.base_container_name):
            self._keep_what_it_left(remote_pod)
        # By the program, not by the pod's phase: a container that a webhook of the cluster added may still run.
        if remote_pod is not None and not self._killed and container_is_succeeded(remote_pod, self.base_container_name):
            self.process_pod_deletion(remote_pod, reraise=False)
            return
        super().cleanup(pod, remote_pod, xcom_result, context)

    @cached_property
    def client(self) -> Any:
        client = super().client
        end_silent_requests(client)
        return client

    @cached_property
    def pod_manager(self) -> BoundedPodManager:
        return BoundedPodManager(kube_client=self.client, callbacks=self.callbacks)

    def collect(self, name: str, namespace: str) -> tuple[V1Pod, Arrival]:
        """The pod that ended well and its stored result, for the trigger; copies the pod's log into the task's. The pod
        stays, and no cause is determined.
        """
        pod = self.hook.get_pod(name, namespace)
        self._pod_name = name
        self._keep_what_it_left(pod, lambda line: self.log.info("%s", log_line(self.base_container_name, line)))
        return pod, self._require()

    def _keep_what_it_left(self, pod: V1Pod, on_line: Callable[[str], None] = lambda _: None) -> None:
        """Store the log and the result of a pod whose program has ended. Raises ApiException, HTTPError and StoreError
        where it is not known whether there is a result, or it is not stored: the pod has to stay.
        """
        tail = LogTail()

        def add(line: str) -> None:
            tail.add(line)
            on_line(line)

        reader = self._patiently(lambda: read_log(self.client, pod, self.base_container_name, add), pod)
        keep_log(self.pod_template_dict, tail.text, self.log, self.store)
        try:
            text = reader.text()
        except ResultLinesError as error:
            self._missing = str(error)
            return
        store = open_store(self.store or read_settings().store)
        self.arrival = store_arrival(store, self.pod_template_dict or {}, text, datetime.now(UTC))

    def _patiently(self, read: Callable[[], ResultReader], pod: V1Pod) -> ResultReader:
        """Repeat a read that the API server or the node does not serve."""
        gives_up_at = time.monotonic() + self.result_wait_s
        while True:
            try:
                return read()
            except (ApiException, HTTPError) as error:
                is_final = isinstance(error, ApiException) and 0 < int(error.status or 0) < 500
                if is_final or time.monotonic() > gives_up_at or self._is_late(pod):
                    raise
                self.log.warning("The pod's log is not served (%s): the request is repeated", error)
            time.sleep(RESULT_PAUSE_S)

    def _is_late(self, pod: V1Pod) -> bool:
        """Whether a working node would have ended the pod by now."""
        with suppress(HTTPError):
            seen = self._look(pod.metadata.name, pod.metadata.namespace)
            return seen is not None and is_late(due_of(seen), datetime.now(UTC))
        return False

    def _write_logs(  # type: ignore[override]  # it is decorated there
        self, pod: V1Pod, follow: bool = False, since_time: datetime | str | None = None
    ) -> None:
        """Copies the pod's log into the log of a resumed task."""
        since = datetime.fromisoformat(since_time) if isinstance(since_time, str) else since_time
        for line in follow_log(self.client, pod, self.base_container_name, follow, since):
            self.log.info("%s", log_line(self.base_container_name, line))

    def on_kill(self) -> None:
        """Keep the pod of a task that has just been resumed: Airflow ends it where its scheduler took the report of the
        deferral for the task's end, and the next try needs pod and gang. In all other cases `release` deletes them.
        """
        if self._is_resumed:
            self._killed = True  # for the provider: no clean-up
            self.log.warning("Airflow ended this task while its result was read: the pod stays for the next try")
            return
        super().on_kill()
        self._end_gang(wait_s=0)

    def _look(self, name: str, namespace: str) -> Mapping[str, Any] | None:
        return read_pod(self.client, name, namespace)

    def _events(self) -> tuple[tuple[str, str], ...]:
        return read_events(self.client, self._pod_name, self._metadata["namespace"]) if self._pod_name else ()

    def _node(self) -> Mapping[str, Any] | None:
        """The pod's node; None where it is gone or may not be read."""
        name = node_of(self.pod_template_dict or {})
        return read_node(self.client, name) if name else None

    def _require(self) -> Arrival:
        """The stored result. Raises AirflowException where there is none."""
        if self.arrival is None and self._pod_name:  # the pod may be gone, its result stored by an earlier task
            store = open_store(self.store or read_settings().store)
            self.arrival = arrived_of_pod(store, self.pod_template_dict or {}, self._pod_name)
        if self.arrival is None:
            raise AirflowException("the pod ended without a result, or vanished before it could be read")
        if self.arrival.failure:
            raise AirflowException(self.arrival.failure)
        return self.arrival

    def _hand_over(self, context: Context, arrival: Arrival) -> None:
        context["ti"].xcom_push(key="return_value", value=arrival.for_xcom)

    def _concluded(self, context: Context, error: BaseException) -> None:
        """End as success where the program ended well for all that: its pod was placed at the last moment of the queue
        time. Else raise the cause.
        """
        if self.arrival and not self.arrival.failure and self._last_seen and self._has_succeeded(self._last_seen):
            self._hand_over(context, self.arrival)
            return
        self._conclude(context, error)

    def _has_succeeded(self, seen: Mapping[str, Any]) -> bool:
        statuses = seen["status"].get("containerStatuses") or ()
        base: Mapping[str, Any] = next((own for own in statuses if own["name"] == self.base_container_name), {})
        return bool(base.get("state", {}).get("terminated", {}).get("exitCode") == 0)

    def _conclude(self, context: Context, error: BaseException) -> NoReturn:
        """Raise the cause as the task's end, and hand over the address of what a failed pod left."""
        if isinstance(error, AirflowFailException | AirflowSkipException):
            raise error  # already determined: execute called trigger_reentry
        if self._killed:
            raise AirflowException("Airflow ended this task: the next try, if there is one, finds its pod") from error
        cause = answer(error) if isinstance(error, ApiException) else str(error)
        http_status = UNREACHABLE if isinstance(error, HTTPError) else http_status_of(error)
        events = () if self._last_seen else self._events()
        base, now = self.base_container_name, datetime.now(UTC)
        end = pod_end(self._last_seen, base, cause, http_status, events, self._node(), now)
        if end.kind is EndKind.NODE_LOST:
            end = self._leave_behind(end)
        if isinstance(error, StoreError):
            end = PodEnd(kind=EndKind.NOT_STORED, message=f"its result is still in the pod: {error}")
        end = end.told(self._missing).model_copy(update={"pod": self._pod_name})
        if self._has_peers and end.kind in REATTACHED and context["ti"].try_number <= context["ti"].max_tries:
            raise AirflowException(end.message) from error
        self._end_gang(wait_s=0 if end.kind in NEVER_PLACED else PEER_GRACE_S)
        if self.arrival:
            self._hand_over(context, self.arrival)
        if self.arrival and end.kind is EndKind.NO_RESULT:
            raise AirflowFailException(self.arrival.failure or end.message) from error
        context["ti"].xcom_push(key=END, value=end.model_dump(mode="json"))
        if end.kind in (EndKind.BUSY, EndKind.WITHDRAWN):
            raise AirflowSkipException(end.message) from error
        if end.is_infrastructure and not self._has_peers:
            raise AirflowException(end.message) from error
        raise AirflowFailException(end.message) from error

    def _leave_behind(self, end: PodEnd) -> PodEnd:
        """Request the pod's deletion, and name the pod where that fails. Never by force: that would remove only the
        object, the last sign of a program that may still hold the GPUs.
        """
        namespace = self._metadata["namespace"]
        with suppress(ApiException, HTTPError):
            self.client.delete_namespaced_pod(
                self._pod_name, namespace, body=V1DeleteOptions(grace_period_seconds=GRACE_S)
            )
        if self._pod_name is None or self._look(self._pod_name, namespace) is None:
            return end
        left = (
            f"pod {self._pod_name} could not be removed and its program may still run there: it goes when the node "
            "answers again, or when its Node object is deleted"
        )
        return end.model_copy(update={"message": f"{end.message}; {left}"})

    def _end_gang(self, wait_s: float) -> None:
        """Delete the gang's pods that still wait or run; their own tasks handle those that have ended."""
        if not self._has_peers:
            return
        time.sleep(wait_s)
        gang = self._metadata["labels"][GANG]
        try:
            delete_pods(self.client, self._metadata["namespace"], {GANG: gang}, only_active=True)
        except (ApiException, HTTPError) as error:
            self.log.warning("The gang %s could not be ended (%s): its deadline will", gang, error)
