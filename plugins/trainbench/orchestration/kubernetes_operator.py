"""The Airflow operator that runs a Pod manifest on the cluster, stores its result, says why it failed, and removes it.

One generator, `steps`, makes the pod, waits for its program's end and stores its result. A worker runs it in a loop
(`to_its_end`), the triggerer in threads (`run_trigger`). Whoever runs it, only a worker says how the task ended.
"""

from __future__ import annotations

import hashlib
import time
from collections import Counter
from collections.abc import Callable, Generator, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from functools import cached_property, partial
from typing import Any, NoReturn, TypeVar

from airflow.providers.cncf.kubernetes.operators.pod import KubernetesPodOperator
from airflow.sdk import Context
from airflow.sdk.exceptions import AirflowException, AirflowFailException, AirflowSkipException, AirflowTaskTimeout
from kubernetes.client import ApiException, V1Pod  # type: ignore[import-untyped]
from urllib3.exceptions import HTTPError

from trainbench.orchestration.kept_results import Left, collect
from trainbench.orchestration.pod_deletion import delete_pod, delete_pods
from trainbench.orchestration.pod_reads import (
    REFRESH_S,
    UNREACHABLE,
    Pod,
    PodListing,
    answer,
    is_outage,
    list_pods,
    read_events,
    read_node,
    read_pod,
    status_of,
    timeouts,
)
from trainbench.pods import time_limits
from trainbench.pods.manifests import CAMPAIGN, GANG, INSTANCE, NODE, RENDEZVOUS, node_of
from trainbench.pods.pod_end import END, EndKind, PodEnd, pod_end, unplaceable
from trainbench.pods.pod_stage import Stage, stage_of
from trainbench.pods.time_limits import GRACE_S, has_ended
from trainbench.results.arrivals import arrived_of_pod
from trainbench.results.artefacts import Store, open_store
from trainbench.results.store_files import StoreError
from trainbench.settings.environment import read_settings

T = TypeVar("T")
Steps = Generator[float, None, T]  # yields the seconds until the next step
NODE_LOOK_S = 30.0  # between two looks at the node of a pod that waits for a place
STUCK_S = 60.0  # a container that cannot start, as without its image, may still start within this time
REREAD_S = 60.0  # a container runtime that restarts serves a notice, or half a log, for so long
PEER_GRACE_S = 10.0  # time in which the peers of a failed pod may fail with a cause of their own
NAME_CHARS, HASH_CHARS = 63, 8
OF_TASK = ("dag_id", "run_id", "task_id", "map_index")  # the provider's labels that all tries of a task share
# A pod of a gang is never made anew, but after a failure of the API or the store it is still there for the next try.
REATTACHED = frozenset({EndKind.API, EndKind.UNAUTHORIZED, EndKind.NOT_STORED})
NEVER_PLACED = frozenset({EndKind.BUSY, EndKind.UNSCHEDULABLE, EndKind.WITHDRAWN})
# How requests and the store fail; Airflow's own timeout ends what waits longer than it should.
FAILURES = (ApiException, HTTPError, StoreError, AirflowTaskTimeout)


class BenchPodOperator(KubernetesPodOperator):
    """Of the provider's operator it uses the connection and the request that it builds from the manifest.

    - The result is read from the pod's log into the store before the pod is deleted; Airflow gets its address. A pod
      whose result cannot be read or stored stays for the next try, and at last for `release`.
    - An API server that is away is waited for, for OUTAGE_S. The name of the pod is that of the task's try, so that a
      repeated creation finds its own pod.
    - The pod's end is pushed as XCom `pod_end`. Only failures that a new pod may cure are retried; a node that is not
      free skips the task, which then counts for no verdict.
    - When a pod of a gang fails, the rest of the gang is deleted, because it would wait for its peer.
    - It ends in bounded time (`time_limits`) when the node is dead, and names a pod that it could not remove.
    """

    def __init__(self, *, store: str | None = None, **kwargs: Any) -> None:
        """`store`: address of the store of results; None: the settings'."""
        super().__init__(**kwargs, random_name_suffix=False)
        self._store_address = store
        self._grace_s = GRACE_S if self.termination_grace_period is None else self.termination_grace_period
        self.manifest: Mapping[str, Any] = self.pod_template_dict or {}
        self.pod_name = ""
        self.is_made = False
        self.waited_s: Counter[str] = Counter()  # by stage of the pod
        self.left = Left(None)
        self._seen: Pod | None = None  # the pod as it was last seen
        self._is_gone = False
        self._end: PodEnd | None = None
        self._is_resumed = False

    def execute(self, context: Context) -> None:
        self.to_its_end(context)

    def to_its_end(self, context: Context, event: Mapping[str, Any] | None = None) -> None:
        """Run the pod in this process. `event`: of a trigger that did not see it end well; empty: it made none."""
        failure: BaseException | None = None
        self._is_resumed = event is not None
        if event:
            self.pod_name, self.is_made, self._seen = event["pod"], event["is_made"], event["seen"]
            self.waited_s.update(event["waited_s"])
        try:
            for pause_s in self.steps(context):
                time.sleep(pause_s)
        except FAILURES as error:
            failure = error
        if failure is None and self.has_succeeded:
            context["ti"].xcom_push(key="return_value", value=self.handed_over)
            self.remove()
        else:
            self._conclude(context, failure)

    @property
    def has_succeeded(self) -> bool:
        """Whether the program ended well and its result is stored."""
        if self.left.arrival is None or self.left.arrival.failure:
            return False
        return self._seen is None or self._is_gone or _exit_code(self._seen, self.base_container_name) == 0

    @property
    def progress(self) -> dict[str, Any]:
        """What another process needs to go on: the `event` of `to_its_end`."""
        return {"pod": self.pod_name, "is_made": self.is_made, "seen": self._seen, "waited_s": dict(self.waited_s)}

    @property
    def handed_over(self) -> Mapping[str, Any] | None:
        """What Airflow's database holds of the result."""
        return self.left.arrival.for_xcom if self.left.arrival else None

    def steps(self, context: Context, concludes: bool = True) -> Steps[None]:
        """Make the pod, wait until its program has ended, store what it left. Without `concludes`, a pod that has
        waited too long is left as it is. Raises FAILURES where it is not known what the pod holds.
        """
        self._is_gone, self._end = False, None
        if not self.is_made:
            yield from self._make(context)
        if self._end is not None or self.left.arrival is not None:
            return
        yield from self._wait(concludes)
        if self._is_gone or (self._seen and has_ended(self._seen, self.base_container_name)):
            yield from self._collect()

    def _make(self, context: Context) -> Steps[None]:
        """Make the pod, unless one of an earlier try is still there, or `self._end` says why none can be made."""
        request = self.build_pod_request_obj(context)
        ti, labels = context["ti"], request.metadata.labels
        if ti.try_number > 1:
            selector = ",".join(f"{name}={labels[name]}" for name in (*OF_TASK, INSTANCE) if name in labels)
            pods = yield from self._asked(lambda: list(list_pods(self._api, self._namespace, selector)))
            there = [pod["metadata"] for pod in pods if "deletionTimestamp" not in pod["metadata"]]
            if there:
                self.pod_name = max(there, key=lambda metadata: metadata["creationTimestamp"])["name"]
                self.is_made = True
                return
            if self._has_peers:
                raise AirflowFailException(
                    "Airflow lost this task, and its pod is gone: the report has its result if it was stored before; "
                    "else run the gang again"
                )
        name = node_of(self.manifest)
        node = read_node(self._api, name)
        if node == {}:
            unknown = f"no node has the label kubernetes.io/hostname={name}: is the name misspelt, or was it removed?"
            self._end = PodEnd(kind=EndKind.UNSCHEDULABLE, message=unknown)
        else:
            self._end = unplaceable(node, datetime.now(UTC))
        if self._end is not None:
            return
        digest = hashlib.sha256(f"{ti.id}/{ti.try_number}".encode()).hexdigest()[:HASH_CHARS]
        request.metadata.name = f"{request.metadata.name[: NAME_CHARS - HASH_CHARS - 1].rstrip('-.')}-{digest}"
        self.pod_name = request.metadata.name
        if arrival := arrived_of_pod(self._store, self.manifest, self.pod_name):
            self.left, self.is_made = Left(arrival), True  # by a triggerer that was ended before it could say so
            return
        yield from self._asked(lambda: self._create(request))
        self.is_made = True
        self.log.info("Made pod %s", self.pod_name)

    def _create(self, request: V1Pod) -> None:
        """Create the pod, unless a request without an answer did."""
        try:
            self._api.create_namespaced_pod(self._namespace, request, _request_timeout=timeouts())
        except ApiException as error:
            if error.status != 409:
                raise
            if read_pod(self._api, request.metadata.name, self._namespace) is None:  # a conflict about its quota
                raise ApiException(status=UNREACHABLE, reason=answer(error)) from None

    def _wait(self, concludes: bool) -> Steps[None]:
        """Wait until the program has ended, the pod is gone or late, or no longer may wait for its place or start."""
        began_at = looked_at = time.monotonic()
        node_seen_at = -float("inf") if self._is_resumed else began_at
        before = None
        start_s = self.startup_timeout_seconds
        limits = {
            Stage.QUEUED: self.schedule_timeout_seconds, Stage.STARTING: start_s, Stage.STUCK: min(STUCK_S, start_s),
        }  # fmt: skip
        while True:
            listed = yield from self._asked(lambda: self.listing.look(self._api))
            now, seen = time.monotonic(), listed.pods.get(self.pod_name)
            if seen is None and listed.at > began_at:
                self._is_gone = True
                return
            stage = None if seen is None else stage_of(seen, self.base_container_name, datetime.now(UTC))
            self._seen = seen or self._seen
            if stage is Stage.OVER:
                return
            if (
                stage is not None
                and stage is before
                and not (stage is Stage.QUEUED and self._is_behind_own(listed.pods))
            ):
                self.waited_s[stage] += min(now - looked_at, 2 * REFRESH_S)  # type: ignore[assignment]  # not an outage
            before, looked_at = stage, now
            if stage is Stage.QUEUED and now - node_seen_at > NODE_LOOK_S:
                node_seen_at = now
                self._end = unplaceable(read_node(self._api, node_of(self.manifest)), datetime.now(UTC))
            if self._end is not None or (stage in limits and self.waited_s[stage] >= limits[stage]):
                if not concludes or (yield from self._asked(partial(self._is_taken_back, seen))):
                    return
                self._end = None  # it was placed or started at the last moment
            yield REFRESH_S

    def _is_behind_own(self, pods: Mapping[str, Pod]) -> bool:
        """Whether a pod of the same campaign, an earlier round's, holds the node for which this one waits."""
        node = self.manifest["metadata"]["labels"].get(NODE)
        return node is not None and any(
            name != self.pod_name
            and pod["metadata"]["labels"].get(NODE) == node
            and stage_of(pod, self.base_container_name, datetime.now(UTC))
            in (Stage.STARTING, Stage.STUCK, Stage.RUNNING, Stage.LEAVING)
            for name, pod in pods.items()
        )

    def _is_taken_back(self, seen: Pod | None) -> bool:
        """Delete the pod as it was seen; False: it has changed, and may have been placed."""
        return delete_pod(self._api, self.pod_name, self._namespace, self._grace_s, seen)

    def _collect(self) -> Steps[None]:
        """Store what the pod left. A node that serves no log is asked again for as long as the pod is there, and for
        REREAD_S one whose log of a program that ended with 0 holds no whole result: the program prints it before.
        """
        first = time.monotonic()
        while True:
            try:
                self.left = collect(self._api, self._store, self.manifest, self.pod_name, self._namespace, self.log)
                ended_well = self._seen is not None and _exit_code(self._seen, self.base_container_name) == 0
                if self.left.is_whole or not ended_well or self._is_gone or time.monotonic() - first > REREAD_S:
                    break
                self.log.warning("%s ended well, and its log holds no result: it is read again", self.pod_name)
            except (ApiException, HTTPError) as error:
                if not is_outage(error) or time.monotonic() - first > time_limits.OUTAGE_S:
                    raise
                self.log.warning("The log of %s is not served, it is read again: %s", self.pod_name, answer(error))
            yield REFRESH_S
        for line in self.left.log.splitlines():
            self.log.info("[%s] %s", self.base_container_name, line)

    def _asked(self, request: Callable[[], T]) -> Steps[T]:
        """The answer of a request, which is repeated while the API server is away."""
        silent_since = time.monotonic()
        while True:
            try:
                return request()
            except (ApiException, HTTPError) as error:
                if not is_outage(error) or time.monotonic() - silent_since > time_limits.OUTAGE_S:
                    raise
                self.log.warning("The API server does not answer, it is asked again: %s", answer(error))
            yield REFRESH_S

    def _conclude(self, context: Context, failure: BaseException | None) -> NoReturn:
        """Raise the cause as the task's end, and hand over the address of what a failed pod left."""
        ti, arrival, end = context["ti"], self.left.arrival, self._cause(failure)
        if failure is None:  # else it is not known what the pod holds
            self.remove()
        if end.kind is EndKind.NODE_LOST and self._stays():
            left = (
                f"pod {self.pod_name} could not be removed and its program may still run there: it goes when the node "
                "answers again, or when its Node object is deleted"
            )
            end = end.model_copy(update={"message": f"{end.message}; {left}"})
        end = end.told(self.left.missing).model_copy(update={"pod": self.pod_name if self.is_made else None})
        if self._has_peers and end.kind in REATTACHED and ti.try_number <= ti.max_tries:
            raise AirflowException(end.message) from failure
        # Before this rank's pod was made, another rank's task may just be making its own.
        self._end_gang(wait_s=0 if end.kind in NEVER_PLACED and self.is_made else PEER_GRACE_S)
        if arrival:
            ti.xcom_push(key="return_value", value=arrival.for_xcom)
            if end.kind in (EndKind.NO_RESULT, EndKind.VANISHED):
                ill = f"its program did not end well, see its log; its result is stored as {arrival.address}"
                raise AirflowFailException(arrival.failure or ill) from failure
        ti.xcom_push(key=END, value=end.model_dump(mode="json"))
        if end.kind in (EndKind.BUSY, EndKind.WITHDRAWN):
            raise AirflowSkipException(end.message) from failure
        if end.is_infrastructure and not self._has_peers:
            raise AirflowException(end.message) from failure
        raise AirflowFailException(end.message) from failure

    def _cause(self, failure: BaseException | None) -> PodEnd:
        if isinstance(failure, StoreError):
            where = "its result is still in the pod" if self.is_made else "no pod was made"
            return PodEnd(kind=EndKind.NOT_STORED, message=f"{where}: {failure}")
        if self._end is not None:
            return self._end
        seen, now = self._seen, None if self._is_gone else datetime.now(UTC)
        status = status_of(failure) if isinstance(failure, ApiException | HTTPError) else None
        said = answer(failure) if failure else f"it waited for {max(self.waited_s.values(), default=0):.0f} s"
        if self._is_gone:  # what it last showed still says why, where it was displaced
            seen = seen if seen and _is_displaced(seen) else None
        events = read_events(self._api, self.pod_name, self._namespace) if self.is_made and seen is None else ()
        node = read_node(self._api, node_of(self.manifest))
        end = pod_end(seen, self.base_container_name, said, status, events, node, now)
        if isinstance(failure, ApiException | HTTPError) and is_outage(failure) and end.kind is not EndKind.NODE_LOST:
            is_unread = seen is not None and has_ended(seen, self.base_container_name)
            what = "its result could not be read, it is still in the pod" if is_unread else f"no answer ({status})"
            return PodEnd(kind=EndKind.API, message=f"the Kubernetes API: {what}: {said}")
        return end

    def remove(self) -> None:
        """Request the pod's deletion. Never by force: that would remove only the object, the last sign of a program
        that may still hold the GPUs.
        """
        if not self.is_made:
            return
        try:
            delete_pod(self._api, self.pod_name, self._namespace, self._grace_s)
        except (ApiException, HTTPError) as error:
            self.log.warning("Pod %s stays until the task `release`: %s", self.pod_name, answer(error))

    def _stays(self) -> bool:
        with suppress(ApiException, HTTPError):
            return self.is_made and read_pod(self._api, self.pod_name, self._namespace) is not None
        return True

    def _end_gang(self, wait_s: float) -> None:
        """Delete the gang's pods that still wait or run; their own tasks handle those that have ended."""
        if not self._has_peers:
            return
        time.sleep(wait_s)
        gang = self.manifest["metadata"]["labels"][GANG]
        try:
            delete_pods(self._api, self._namespace, {GANG: gang}, only_active=True)
        except (ApiException, HTTPError) as error:
            self.log.warning("The gang %s could not be ended (%s): its deadline will", gang, answer(error))

    def on_kill(self) -> None:
        """Delete the pod of a task that somebody ended. It stays where its program has ended, whose result `release`
        collects, and where the task has just been resumed: Airflow ends it where its scheduler took the report of the
        deferral for the task's end, and the next try needs pod and gang.
        """
        if self._is_resumed or not self.pod_name:
            return
        with suppress(ApiException, HTTPError):
            seen = read_pod(self._api, self.pod_name, self._namespace)
            if seen is not None and not has_ended(seen, self.base_container_name):
                delete_pod(self._api, self.pod_name, self._namespace, self._grace_s)
        self._end_gang(wait_s=0)

    @cached_property
    def listing(self) -> PodListing:
        """The campaign's pods on this pod's node; the triggerer lists the whole campaign, for all its tasks."""
        labels = self.manifest["metadata"]["labels"]
        own = {name: labels[name] for name in (CAMPAIGN, NODE) if name in labels}
        return PodListing(self._namespace, ",".join(f"{name}={value}" for name, value in (own or labels).items()))

    @property
    def _store(self) -> Store:
        return open_store(self._store_address or read_settings().store)

    @property
    def _api(self) -> Any:
        return self.hook.core_v1_client

    @property
    def _namespace(self) -> str:
        return str(self.manifest["metadata"]["namespace"])

    @property
    def _has_peers(self) -> bool:
        return RENDEZVOUS in self.manifest["metadata"]["labels"]


def _exit_code(pod: Pod, container: str) -> int | None:
    """None: the container has not ended."""
    for status in pod["status"].get("containerStatuses") or ():
        if status["name"] == container:
            code: int | None = (status.get("state") or {}).get("terminated", {}).get("exitCode")
            return code
    return None


def _is_displaced(pod: Pod) -> bool:
    conditions = pod["status"].get("conditions") or ()
    return any(each["type"] == "DisruptionTarget" and each["status"] == "True" for each in conditions)
