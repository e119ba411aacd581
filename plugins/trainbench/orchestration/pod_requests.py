"""The cluster of a pod's task, and the list by which many tasks watch their pods."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from trainbench.cluster.kubernetes_api import Cluster, ClusterError
from trainbench.cluster.pod_deletions import Pod
from trainbench.pods import time_limits

REFRESH_S = 5.0


def cluster_of(hook: Any, namespace: str) -> Cluster:
    """The cluster of Airflow's hook. Tasks wait longer for an answer than people do."""
    client = hook.api_client
    if client.configuration.retries is not False:  # urllib3 would repeat a request without an answer three times
        from kubernetes.client.rest import RESTClientObject  # type: ignore[import-untyped]

        client.configuration.retries = False
        client.rest_client = RESTClientObject(client.configuration)  # reads its configuration only here
    return Cluster(client, namespace, timeouts_s=(time_limits.CONNECT_S, time_limits.LOG_SILENCE_S))


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


@lru_cache(maxsize=64)
def pod_listing(labels: frozenset[tuple[str, str]]) -> PodListing:
    """The one of this process for these labels."""
    return PodListing(dict(labels))
