"""What a pod's task and `release` ask of the API server and of the pod's node: reads, deletions, results."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any

from bench_image.contract.frozen import Frozen
from bench_image.contract.result_lines import ABSENT, ResultLinesError, ResultReader
from trainbench.cluster.kubernetes_api import Cluster, ClusterError, Refused
from trainbench.cluster.pod_deletions import Pod as Pod
from trainbench.cluster.pod_deletions import delete_and_keep, delete_unless_ended
from trainbench.cluster.pod_deletions import delete_as_seen as delete_as_seen
from trainbench.cluster.pod_deletions import read_pod as read_pod
from trainbench.core.formats import listing
from trainbench.planning.nodes import not_ready
from trainbench.pods import time_limits
from trainbench.pods.manifests import CAMPAIGN, CONTAINER, node_of
from trainbench.pods.pod_log import MAX_LINE, LogTail
from trainbench.results.arrivals import Arrival, arrived_of_pod, keep_log, store_arrival
from trainbench.results.artefacts import Store

REFRESH_S = 5.0
PASSING = (410, 429)  # statuses beside 5xx: a page of a list expired, too many requests
NO_LOG = (400, 404)  # the pod has no log, or is gone; any other refusal leaves open what the pod holds


def cluster_of(hook: Any, namespace: str) -> Cluster:
    """The cluster of Airflow's hook. Tasks wait longer for an answer than people do."""
    client = hook.api_client
    if client.configuration.retries is not False:  # urllib3 would repeat a request without an answer three times
        from kubernetes.client.rest import RESTClientObject  # type: ignore[import-untyped]

        client.configuration.retries = False
        client.rest_client = RESTClientObject(client.configuration)  # reads its configuration only here
    return Cluster(client, namespace, timeouts_s=(time_limits.CONNECT_S, time_limits.LOG_SILENCE_S))


def is_outage(error: ClusterError) -> bool:
    """Whether the same request may be answered later."""
    return error.status >= 500 or error.status in PASSING


class PodListing:
    """The pods with these labels, read at most every REFRESH_S for all that wait for them: one request instead of one
    for each pod. An error is kept as long, so that of a thousand tasks one asks a server that is away.
    """

    def __init__(self, labels: Mapping[str, str]) -> None:
        self._labels, self._lock = labels, threading.Lock()
        self._read_at = -float("inf")
        self._answer: tuple[float, Mapping[str, Pod]] | ClusterError = self._read_at, {}

    def look(self, cluster: Cluster) -> tuple[float, Mapping[str, Pod]]:
        """The moment of the request on the monotonic clock, at most REFRESH_S ago, and name -> pod. Raises
        ClusterError.
        """
        with self._lock:
            if time.monotonic() - self._read_at > REFRESH_S:
                asked_at = time.monotonic()
                try:
                    pods = cluster.pods(self._labels)
                    for container in (each for pod in pods for each in pod["spec"]["containers"]):
                        container.pop("env", None)  # the run's specification: most of the pod
                    self._answer = asked_at, {pod["metadata"]["name"]: pod for pod in pods}
                except ClusterError as error:
                    self._answer = error
                self._read_at = time.monotonic()
            if isinstance(self._answer, ClusterError):
                raise self._answer
            return self._answer


@lru_cache(maxsize=8)
def campaign_listing(campaign: str) -> PodListing:
    """The one of this process for all tasks of a campaign."""
    return PodListing({CAMPAIGN: campaign})


def read_node(cluster: Cluster, name: str | None) -> Mapping[str, Any] | None:
    """The node, empty where there is none of this name; None: it may not be read."""
    if name is None:
        return None
    try:
        return next(iter(cluster.nodes({"kubernetes.io/hostname": name})), {})
    except ClusterError:
        return None


def delete_pods(cluster: Cluster, labels: Mapping[str, str]) -> None:
    """Delete the pods with these labels whose program runs. Raises ClusterError with the names of the pods that could
    not be deleted, after trying all.
    """
    kept = []
    for pod in cluster.pods(labels):
        try:
            delete_unless_ended(cluster, pod)
        except ClusterError as error:
            kept.append(f"{pod['metadata']['name']} ({error})")
    if kept:
        raise ClusterError(f"could not be deleted: {listing(kept)}")


def release(cluster: Cluster, store: Store, labels: Mapping[str, str], log: Callable[[str], None]) -> tuple[str, ...]:
    """Store the results that the tasks could not read, and delete the pods. One whose node is dead stays: nobody can
    read it, and it holds no GPU. Returns the names of the deleted. Raises ClusterError with the names of the pods that
    could not be deleted, after trying all.
    """
    on_dead_nodes = set()

    def keep(pod: Pod) -> bool:
        name = pod["metadata"]["name"]
        try:
            left = collect(cluster, store, pod, name, log)
        except ClusterError as error:
            node = read_node(cluster, node_of(pod))
            trouble = not_ready(node) if node else None
            if is_outage(error) and trouble:
                log(f"{name} stays, its node does not serve its log ({trouble}): clear this task when the node is back")
                on_dead_nodes.add(name)
            raise
        if left.arrival:
            log(f"the result of {name} is stored as {left.arrival.address}")
        return left.arrival is not None

    pods = cluster.pods(labels)
    errors = delete_and_keep(cluster, pods, keep)
    if kept := [f"{name} ({error})" for name, error in errors.items() if name not in on_dead_nodes]:
        raise ClusterError(f"could not be deleted: {listing(kept)}")
    return tuple(pod["metadata"]["name"] for pod in pods if pod["metadata"]["name"] not in errors)


class Left(Frozen):
    """What a pod left. `missing`: what the reader missed where it left no result. `log`: its last part, where it was
    read now.
    """

    arrival: Arrival | None = None
    missing: str = ABSENT
    log: str = ""


def collect(cluster: Cluster, store: Store, manifest: Mapping[str, Any], name: str, log: Callable[[str], None]) -> Left:
    """Store the result and the log of a pod whose program has ended, unless an earlier task did: the one way of a
    result. Raises ClusterError and StoreError where it is not known whether there is a result, or it is not stored:
    the pod has to stay.
    """
    if arrival := arrived_of_pod(store, manifest, name):
        return Left(arrival=arrival)
    tail, reader = LogTail(), ResultReader()
    try:
        for line in _lines(cluster.log_chunks(name, CONTAINER)):
            if line and not reader.add(line):
                tail.add(line)
    except Refused as error:
        if error.status in NO_LOG:
            return Left()
        raise
    keep_log(store, manifest, tail.text, log)
    try:
        text = reader.text()
    except ResultLinesError as error:
        return Left(missing=str(error), log=tail.text)
    return Left(arrival=store_arrival(store, manifest, text, datetime.now(UTC)), log=tail.text)


def _lines(chunks: Iterator[bytes]) -> Iterator[str]:
    """The lines, of each the last MAX_LINE bytes: a part of a result ends its line, whatever stands before it. One
    chunk is in memory; how long a log can be, the node's kubelet limits.
    """
    begun = b""
    for chunk in chunks:
        *complete, last = chunk.split(b"\n")
        for piece in complete:
            yield (begun + piece)[-MAX_LINE:].decode(errors="backslashreplace")
            begun = b""
        begun = (begun + last)[-MAX_LINE:]
    yield begun.decode(errors="backslashreplace")
