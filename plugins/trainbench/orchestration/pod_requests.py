"""What a pod's task and `release` ask of the API server about pods and nodes."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any

from trainbench.cluster import pod_results
from trainbench.cluster.kubernetes_api import Cluster, ClusterError
from trainbench.cluster.pod_deletions import Pod, delete_pods
from trainbench.core.formats import listing
from trainbench.planning.nodes import not_ready
from trainbench.pods import time_limits
from trainbench.pods.manifests import CAMPAIGN, node_of
from trainbench.results.artefacts import Store

REFRESH_S = 5.0
PASSING = (410, 429)  # statuses beside 5xx: a page of a list expired, too many requests


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


def release(cluster: Cluster, store: Store, labels: Mapping[str, str], log: Callable[[str], None]) -> tuple[str, ...]:
    """Store the results that the tasks could not read, and delete the pods. One whose node is dead stays: nobody can
    read it, and it holds no GPU. Returns the names of the deleted. Raises ClusterError with the names of the pods that
    could not be deleted, after trying all.
    """

    def keep(pod: Pod) -> bool:
        name = pod["metadata"]["name"]
        if arrival := pod_results.collect(cluster, store, pod, name, log).arrival:
            log(f"the result of {name} is stored as {arrival.address}")
        return arrival is not None

    pods, kept = {pod["metadata"]["name"]: pod for pod in cluster.pods(labels)}, []
    errors = delete_pods(cluster, pods.values(), keep)
    for name, error in errors.items():
        node = read_node(cluster, node_of(pods[name]))
        trouble = not_ready(node) if node else None
        if trouble and isinstance(error, ClusterError) and is_outage(error):
            log(f"{name} stays, its node does not answer ({trouble}): clear this task when the node is back")
        else:
            kept.append(f"{name} ({error})")
    if kept:
        raise ClusterError(f"could not be deleted: {listing(kept)}")
    return tuple(name for name in pods if name not in errors)
