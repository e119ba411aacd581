"""The Airflow operator that runs a Pod manifest on the cluster, stores its result, says why it failed, and removes it.

One generator, `steps`, makes the pod, waits for its program's end and stores its result. A worker runs it in a loop
(`to_its_end`), the triggerer in threads (`run_trigger`). Whoever runs it, only a worker says how the task ended.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Generator, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from functools import lru_cache, partial
from typing import Any, NoReturn, TypeVar

from airflow.providers.cncf.kubernetes.hooks.kubernetes import KubernetesHook
from airflow.providers.cncf.kubernetes.operators.pod import KubernetesPodOperator
from airflow.sdk import Context
from airflow.sdk.exceptions import AirflowException, AirflowFailException, AirflowSkipException, AirflowTaskTimeout
from pydantic import BaseModel

from bench_image.contract.result_lines import ABSENT
from trainbench.cluster import pod_deletions
from trainbench.cluster.kubernetes_api import Cluster, ClusterError, Refused
from trainbench.cluster.pod_deletions import Left, Pod, delete_while, runs_or_waits
from trainbench.planning.plan import identifier
from trainbench.pods import time_limits
from trainbench.pods.manifests import CAMPAIGN, GANG, INSTANCE, NODE, RENDEZVOUS, node_of
from trainbench.pods.pod_end import BESIDES_THE_PROGRAM, END, INFRASTRUCTURE, EndKind, PodEnd, pod_end
from trainbench.pods.time_limits import RESTART_S, Stage, condition_of, ended_well, has_ended, stage_of
from trainbench.results.arrivals import arrived_of_pod
from trainbench.results.artefacts import Store, open_store
from trainbench.results.store_files import StoreError

REFRESH_S = 5.0
HOOK_S = 600.0  # the credentials of the cluster are read anew so often


def cluster_of(connection: str | None, namespace: str) -> Cluster:
    """The cluster of an Airflow connection, with this thread's open requests. Tasks wait longer for an answer than
    people do.
    """
    client = _client(connection, threading.get_ident(), int(time.monotonic() / HOOK_S))
    return Cluster(client, namespace, timeouts_s=(time_limits.CONNECT_S, time_limits.LOG_SILENCE_S))


@lru_cache(maxsize=64)
def _client(connection: str | None, thread: int, period: int) -> Any:
    client = KubernetesHook(conn_id=connection).api_client
    # urllib3 would send a request without an answer four times.
    client.rest_client.pool_manager.connection_pool_kw["retries"] = False
    return client


class PodListing:
    """The pods with these labels, read at most every REFRESH_S for all that wait for them: one request instead of one
    for each pod. An error is kept as long, so that of a thousand tasks one asks a server that is away.
    """

    def __init__(self, labels: frozenset[tuple[str, str]]) -> None:
        self._labels, self._lock = dict(labels), threading.Lock()
        self._read_at = -float("inf")
        self._answer: Mapping[str, Pod] | ClusterError = {}

    def look(self, cluster: Cluster) -> Mapping[str, Pod]:
        """Name -> pod, of a request that was answered at most REFRESH_S ago. Raises ClusterError."""
        with self._lock:
            if time.monotonic() - self._read_at > REFRESH_S:
                try:
                    pods = cluster.pods(self._labels)
                    for container in (each for pod in pods for each in pod["spec"]["containers"]):
                        container.pop("env", None)  # the run's specification: most of the pod
                    self._answer = {pod["metadata"]["name"]: pod for pod in pods}
                except ClusterError as error:
                    self._answer = error
                self._read_at = time.monotonic()
            if isinstance(self._answer, ClusterError):
                raise self._answer
            return self._answer


pod_listing = lru_cache(maxsize=64)(PodListing)  # the one of this process for these labels
T = TypeVar("T")
Steps = Generator[float, None, T]  # yields the seconds until the next step
NODE_LOOK_S = 30.0  # between two looks at the node of a pod that waits for a place
STUCK_S = 60.0  # a container that cannot start, as without its image, may still start within this time
PEER_GRACE_S = 10.0  # time in which the peers of a failed pod may fail with a cause of their own
OF_TASK = ("dag_id", "run_id", "task_id", "map_index")  # the provider's labels that all tries of a task share


class Progress(BaseModel):
    """How far a pod's task is: what a worker needs to go on where a trigger stopped. `seen`: the pod as it was last
    seen; `end`: why it was given up before it ran; `waited_s`: by stage of the pod; `silent_s`: time for which the API
    server, or the pod's node, has given no answer.
    """

    pod: str = ""
    is_made: bool = False
    seen: Pod | None = None
    is_gone: bool = False
    left: Left = Left()
    end: PodEnd | None = None
    waited_s: dict[Stage, float] = {}
    silent_s: float = 0.0


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
        self.manifest: Mapping[str, Any] = self.pod_template_dict or {}
        self._labels: Mapping[str, str] = self.manifest.get("metadata", {}).get("labels", {})
        self._has_peers = RENDEZVOUS in self._labels
        self.progress = Progress()
        self.listed_by: tuple[str, ...] = (CAMPAIGN, NODE)  # the labels of the pods that it lists to see its own
        self._answers_since = float("inf")  # the first answer after the latest one that was none
        self._is_resumed = False

    def execute(self, context: Context) -> None:
        self.to_its_end(context)

    def to_its_end(self, context: Context, event: Mapping[str, Any] | None = None) -> None:
        """Run the pod in this process. `event`: of a trigger that did not see it end well; empty: it made none."""
        failure: BaseException | None = None
        self._is_resumed, self.progress = event is not None, Progress.model_validate(event or {})
        try:
            for pause_s in self.steps(context):
                time.sleep(pause_s)
        except (ClusterError, StoreError, AirflowTaskTimeout) as error:
            failure = error  # Airflow's own timeout ends what waits longer than it should
        if failure or not self.good_result:
            self._conclude(context, failure)
        context["ti"].xcom_push(key="return_value", value=self.good_result)
        self.remove()

    @property
    def good_result(self) -> Mapping[str, Any] | None:
        """What Airflow's database holds of the stored result; None: there is none, or the program did not end well."""
        ended_ill = self.progress.seen and not self.progress.is_gone and not self._ended_well
        arrival = self.progress.left.arrival
        return arrival.for_xcom if arrival and not arrival.failure and not ended_ill else None

    def steps(self, context: Context) -> Steps[None]:
        """Make the pod, wait until its program has ended, store what it left. Raises ClusterError and StoreError where
        it is not known what the pod holds.
        """
        if not self.progress.is_made and not self.progress.end:
            yield from self._make(context)
        if self.progress.end or self.progress.left.arrival:
            return
        if not self._has_ended:  # else a trigger saw its end, and may have waited for its log
            yield from self._wait()
        if self.progress.is_gone or self._has_ended:
            yield from self._collect()

    def _make(self, context: Context) -> Steps[None]:
        """Make the pod, unless one of an earlier try is still there, or `progress.end` says why none can be made."""
        request = self.build_pod_request_obj(context, dry_run=True)  # without asking the cluster where Airflow runs
        ti, labels = context["ti"], request.metadata.labels
        if ti.try_number > 1:
            own = {name: labels[name] for name in (*OF_TASK, INSTANCE) if name in labels}
            pods = yield from self._asked(lambda: self._cluster.pods(own))
            if there := [pod["metadata"]["name"] for pod in pods if "deletionTimestamp" not in pod["metadata"]]:
                self.progress = Progress(pod=there[0], is_made=True)  # as long as it is there no other is made
                return
        name = identifier(f"{request.metadata.name}-{ti.id}-{ti.try_number}", 63).replace("_", "-")
        request.metadata.name = self.progress.pod = name
        is_lost_rank = self._has_peers and ti.try_number > 1  # no rank has two pods: any pod's result is its own
        if arrival := arrived_of_pod(self._store, self.manifest, None if is_lost_rank else name):
            self.progress.left = Left(arrival=arrival)  # a triggerer was ended before it could say so
        elif is_lost_rank:
            lost = "Airflow lost this task, and its pod is gone without a stored result: run the gang again"
            self.progress.end = PodEnd(kind=EndKind.VANISHED, message=lost)
            return
        else:
            yield from self._asked(lambda: self._create(request))
            self.log.info("Made pod %s", name)
        self.progress.is_made = True

    def _create(self, request: Any) -> None:
        """Create the pod, unless a request without an answer did."""
        try:
            self._cluster.create_pod(request)
        except Refused as error:
            if error.status != 409 or not self._cluster.pod(self.progress.pod):  # a conflict about its quota
                raise

    def _wait(self) -> Steps[None]:
        """Wait until the program has ended, the pod is gone or late, or no longer may wait for its place or start: then
        it is deleted, and `progress.end` says why.
        """
        looked_at = node_seen_at = time.monotonic()
        self.progress.is_gone, name, waited_s = False, self.progress.pod, self.progress.waited_s
        queue_s, start_s = self.schedule_timeout_seconds, self.startup_timeout_seconds
        limits = {Stage.QUEUED: queue_s, Stage.STARTING: start_s, Stage.STUCK: min(STUCK_S, start_s)}
        listing = pod_listing(frozenset((key, self._labels[key]) for key in self.listed_by if key in self._labels))
        while True:
            yield REFRESH_S
            pods = yield from self._asked(lambda: listing.look(self._cluster))
            seen = pods.get(name) or (yield from self._asked(lambda: self._cluster.pod(name)))  # newer than the list?
            if seen is None:
                self.progress.is_gone = True
                return
            self.progress.seen, stage, now, end = seen, self._stage(seen), time.monotonic(), None
            if stage is Stage.OVER:
                return
            if stage is not Stage.QUEUED or not self._is_behind_own(pods):
                waited_s[stage] = waited_s.get(stage, 0.0) + min(now - looked_at, 2 * REFRESH_S)  # no outage
            looked_at = now
            if stage is Stage.QUEUED and now - node_seen_at > NODE_LOOK_S:
                node_seen_at, cause = now, self._cause(None)
                is_dead = cause.kind is EndKind.NODE_LOST and waited_s.get(stage, 0.0) > time_limits.DEAD_AFTER_S
                end = cause if is_dead or cause.kind in (EndKind.WITHDRAWN, EndKind.NO_NODE) else None
            if end or waited_s.get(stage, 0.0) >= limits.get(stage, float("inf")):
                waits = lambda pod, stage=stage: self._stage(pod) in (stage, Stage.LEAVING)  # noqa: E731
                delete = partial(delete_while, self._cluster, waits, seen)
                if (yield from self._asked(delete)) is None:  # else placed or started at the last moment
                    self.progress.end = end or self._cause(None)
                    return

    def _stage(self, pod: Pod) -> Stage:
        # An API server that was away shows a pod as it was before, until its node tells what became of it.
        is_news = time.monotonic() - self._answers_since > RESTART_S
        return stage_of(pod, self.base_container_name, datetime.now(UTC) if is_news else None)

    def _is_behind_own(self, pods: Mapping[str, Pod]) -> bool:
        """Whether a pod of the same campaign, an earlier round's, holds the node for which this one waits."""
        others = (pod for name, pod in pods.items() if name != self.progress.pod)
        on_node = (pod for pod in others if pod["metadata"]["labels"].get(NODE) == self._labels.get(NODE, ""))
        return any(self._stage(pod) not in (Stage.QUEUED, Stage.OVER) for pod in on_node)

    def _collect(self) -> Steps[None]:
        """Store what the pod left. A node whose log of a program that ended with 0 holds no result is asked again for
        RESTART_S, which begin anew after a time without an answer: the program prints its result before it ends.
        """
        pod, warn = self.progress.pod, self.log.warning
        collect = partial(pod_deletions.collect, self._cluster, self._store, self.manifest, pod, warn)
        self._answers_since = float("inf")
        while True:
            left = self.progress.left = yield from self._asked(collect)
            must_hold_one = self._ended_well and not self.progress.is_gone
            if left.arrival or not must_hold_one or time.monotonic() - self._answers_since > RESTART_S:
                break
            warn("%s ended well, and its log holds no result: it is read again", pod)
            yield REFRESH_S
        for line in left.log.splitlines():
            self.log.info("[%s] %s", self.base_container_name, line)

    def _asked(self, request: Callable[[], T]) -> Steps[T]:
        """The answer of a request, which is repeated while API server or node are away, in all for OUTAGE_S. Once the
        pod is made, a request that is not allowed is repeated for RESTART_S.
        """
        silent_since, num_denied = time.monotonic() - self.progress.silent_s, 0
        while True:
            try:
                answer = request()
            except ClusterError as error:
                self.progress.silent_s, self._answers_since = time.monotonic() - silent_since, float("inf")
                is_denied = self.progress.is_made and error.status in (401, 403)
                num_denied += is_denied
                is_passing = num_denied * REFRESH_S <= RESTART_S if is_denied else error.is_outage
                if not is_passing or self.progress.silent_s > time_limits.OUTAGE_S:
                    raise
                self.log.warning("There is no answer, the request is repeated: %s", error)
            else:
                self.progress.silent_s, self._answers_since = 0.0, min(self._answers_since, time.monotonic())
                return answer
            yield REFRESH_S

    def _conclude(self, context: Context, failure: BaseException | None) -> NoReturn:
        """Raise the cause as the task's end, and hand over the address of what a failed pod left."""
        ti, left, end = context["ti"], self.progress.left, self._cause(failure)
        if failure is None:  # else it is not known what the pod holds
            self.remove()
        pod, message = self.progress.pod if self.progress.is_made else None, end.message
        with suppress(ClusterError):
            if end.kind is EndKind.NODE_LOST and pod and self._cluster.pod(pod):
                message += f"; pod {pod} could not be removed and its program may still run there: it goes when the "
                message += "node answers again, or when its Node object is deleted"
        end = end.model_copy(update={"message": message, "pod": pod})
        # A pod of a gang is never made anew; after a failure of the API or the store the one that was made is there.
        cured = INFRASTRUCTURE if not self._has_peers else BESIDES_THE_PROGRAM if pod else frozenset()
        is_unread = end.kind is EndKind.API and self._has_ended  # waited for as long as may be: `release` asks again
        is_retried = end.kind in cured and not is_unread and ti.try_number <= ti.max_tries
        if self._has_peers and not is_retried:
            time.sleep(PEER_GRACE_S)
            self._end_gang()
        if left.arrival:
            ti.xcom_push(key="return_value", value=left.arrival.for_xcom)
            if end.kind in (EndKind.NO_RESULT, EndKind.VANISHED, EndKind.CUT_OFF):
                ill = f"its program did not end well, see its log; its result is stored as {left.arrival.address}"
                raise AirflowFailException(left.arrival.failure or ill) from failure
        ti.xcom_push(key=END, value=end.model_dump(mode="json"))
        if end.kind in (EndKind.BUSY, EndKind.WITHDRAWN):
            raise AirflowSkipException(end.message) from failure
        raise (AirflowException if is_retried else AirflowFailException)(end.message) from failure

    def _cause(self, failure: BaseException | None) -> PodEnd:
        progress, seen = self.progress, self.progress.seen
        if isinstance(failure, StoreError):
            where = "its result is still in the pod" if progress.is_made else "no pod was made"
            return PodEnd(kind=EndKind.NOT_STORED, message=f"{where}: {failure}")
        if progress.end:
            return progress.end
        if progress.is_gone and condition_of(seen or {}, "DisruptionTarget").get("status") != "True":
            seen = None  # else what it last showed still says why
        events: tuple[Mapping[str, Any], ...] = ()
        with suppress(ClusterError):
            if seen is None or seen["spec"].get("nodeName"):
                events = self._cluster.events(progress.pod)
        said, status = f"it waited for {max(progress.waited_s.values(), default=0):.0f} s", None
        if failure:
            said, status = getattr(failure, "message", str(failure)), getattr(failure, "status", None)
        node = self._cluster.node_or_none(node_of(self.manifest))
        now = None if progress.is_gone else datetime.now(UTC)
        missing = progress.left.missing or ABSENT
        end = pod_end(seen, self.base_container_name, said, status, events, node, now, missing)
        ran_s = progress.waited_s.get(Stage.RUNNING, 0.0)
        if self._has_peers and end.kind is EndKind.VANISHED and ran_s >= PEER_GRACE_S:
            # In this time it would have failed by a cause that it shares with its peers.
            return PodEnd(kind=EndKind.CUT_OFF, message=f"its program ran for {ran_s:.0f} s, until its pod was deleted")
        return end

    def remove(self) -> None:
        """Request the pod's deletion; where its program has ended, only if its log was read. Never by force: that would
        remove only the object, the last sign of a program that may still hold the GPUs.
        """
        name, left = self.progress.pod, self.progress.left
        holds = None if left.arrival or left.missing else runs_or_waits
        try:
            if name and (seen := self.progress.seen or self._cluster.pod(name)):
                delete_while(self._cluster, holds, seen)
        except ClusterError as error:
            self.log.warning("Pod %s stays until the task `release`: %s", name, error)

    def _end_gang(self) -> None:
        """Delete the gang's pods that still wait or run; their own tasks handle those that have ended."""
        stay = "Pods of the gang could not be deleted (%s): their deadline ends them"
        try:
            if errors := pod_deletions.delete_pods(self._cluster, self._cluster.pods({GANG: self._labels[GANG]})):
                self.log.warning(stay, errors)
        except ClusterError as error:
            self.log.warning(stay, error)

    def on_kill(self) -> None:
        """Delete the pod of a task that somebody ended. It stays where its program has ended, whose result `release`
        collects, and where the task has just been resumed: Airflow ends it where its scheduler took the report of the
        deferral for the task's end, and the next try needs pod and gang.
        """
        if not self._is_resumed and self.progress.pod:
            self.remove()
            if self._has_peers:
                self._end_gang()

    @property
    def _store(self) -> Store:
        return open_store(self._store_address)

    @property
    def _cluster(self) -> Cluster:
        return cluster_of(self.kubernetes_conn_id, self.manifest["metadata"]["namespace"])

    @property
    def _has_ended(self) -> bool:
        return has_ended(self.progress.seen or {}, self.base_container_name)

    @property
    def _ended_well(self) -> bool:
        return ended_well(self.progress.seen or {}, self.base_container_name)
