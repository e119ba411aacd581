"""Stores what pods left, and deletes them: those that run only as they were seen, and those that have ended only when
their result is stored, or its absence is established.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from functools import partial
from typing import Any

from pydantic import Field

from bench_image.contract.frozen import ContractError, Frozen
from bench_image.contract.result_lines import ResultLinesError, ResultReader
from trainbench.cluster.kubernetes_api import Cluster, ClusterError, Refused
from trainbench.core.formats import listing
from trainbench.planning.nodes import not_ready
from trainbench.pods.manifests import CONTAINER, node_of
from trainbench.pods.pod_log import LogTail
from trainbench.pods.time_limits import RESTART_S, ended_well, has_ended
from trainbench.results.arrivals import Arrival, arrived_of_pod, keep_log, run_of, store_arrival
from trainbench.results.artefacts import Store

Pod = Mapping[str, Any]  # as the API's JSON
Log = Callable[[str], None]


class Left(Frozen):
    """What a pod left; neither `arrival` nor `missing`: it was not looked for. `missing`: what the reader missed where
    it left no result. `log`: its last part, where it was read now.
    """

    arrival: Arrival | None = None
    missing: str = ""
    log: str = Field("", exclude=True)


def collect(cluster: Cluster, store: Store, manifest: Pod, name: str, warn: Log, replaces: bool = True) -> Left:
    """Store the result and the log of the pod `name` whose program has ended, unless an earlier task did. `replaces`:
    also where the store has the result of another pod of its run. Raises ClusterError and StoreError where it is not
    known whether there is a result, or it is not stored: the pod has to stay.
    """
    if arrival := arrived_of_pod(store, manifest, name if replaces else None):
        return Left(arrival=arrival)
    tail, reader = LogTail(), ResultReader()
    for line in cluster.log_lines(name, CONTAINER):
        if line and not reader.add(line):
            tail.add(line)
    keep_log(store, manifest, tail.text, warn)
    try:
        text = reader.text()
    except ResultLinesError as error:
        return Left(missing=str(error), log=tail.text)
    return Left(arrival=store_arrival(store, manifest, text, datetime.now(UTC)), log=tail.text)


def runs_or_waits(pod: Pod) -> bool:
    return not has_ended(pod, CONTAINER)


def delete_while(cluster: Cluster, holds: Callable[[Pod], bool] | None, seen: Pod) -> Pod | None:
    """Request the deletion of this very pod, as long as `holds` is true of it as it is then: else return it, since it
    may hold a result. `holds` None: whatever it has become. None: it goes, or is gone. Raises ClusterError.
    """
    pod: Pod | None = seen
    uid = seen["metadata"]["uid"]
    while pod and pod["metadata"]["uid"] == uid:
        metadata = pod["metadata"]
        if holds and not holds(pod):
            return pod
        if "deletionTimestamp" in metadata:  # as by an earlier request that got no answer
            return None
        version = metadata["resourceVersion"] if holds else None
        try:
            cluster.delete_pod(metadata["name"], uid, version)
            return None
        except Refused as error:
            if error.status != 409:  # it has changed since it was seen
                raise
        pod = cluster.pod(metadata["name"])
    return None


def delete_pods(
    cluster: Cluster, pods: Iterable[Pod], store: Store | None = None, log: Log = print, replaces: bool = True
) -> dict[str, Exception]:
    """Delete these pods, first those that hold GPUs. What a pod left whose program has ended is stored before, see
    `collect`; `store` None: such pods stay. Return the error of each pod that should be gone, by name.

    A program that ended with 0 had printed its result: a log without one was not served as it is, unless it is still
    without one after RESTART_S. All such pods wait for that together.
    """
    errors: dict[str, Exception] = {}

    def left_by(delete: Callable[[Pod], Pod | None], pods: Iterable[Pod]) -> list[Pod]:
        left = []
        for pod in pods:
            try:
                left.append(delete(pod))
            except Exception as error:  # also of the store's library: one pod's error costs that pod only
                errors[pod["metadata"]["name"]] = error
        return [pod for pod in left if pod]

    def delete_ended(pod: Pod, store: Store, waits: bool) -> Pod | None:
        name = pod["metadata"]["name"]
        with suppress(ContractError):  # a run of a version that nobody here can read leaves nothing to store
            run = run_of(pod)
            if run and (arrival := collect(cluster, store, pod, name, log, replaces).arrival):
                log(f"the result of {name} is stored as {arrival.address}")
            elif run and waits and ended_well(pod, CONTAINER) and cluster.pod(name):
                return pod
        return delete_while(cluster, None, pod)

    ended = left_by(partial(delete_while, cluster, runs_or_waits), pods)
    if store and (unread := left_by(partial(delete_ended, store=store, waits=True), ended)):
        time.sleep(RESTART_S)
        left_by(partial(delete_ended, store=store, waits=False), unread)
    return errors


def release(cluster: Cluster, store: Store, labels: Mapping[str, str], log: Log) -> tuple[str, ...]:
    """Store the results that the tasks could not read, and delete the pods. One whose node is dead stays: nobody can
    read it, and it holds no GPU. Returns the names of the deleted. Raises ClusterError with the names of the pods that
    could not be deleted, after trying all.
    """
    pods, kept = {pod["metadata"]["name"]: pod for pod in cluster.pods(labels)}, []
    errors = delete_pods(cluster, pods.values(), store, log)
    for name, error in errors.items():
        trouble = not_ready(node) if (node := cluster.node_or_none(node_of(pods[name]))) else None
        if trouble and isinstance(error, ClusterError) and error.is_outage:
            log(f"{name} stays, its node does not answer ({trouble}): clear this task when the node is back")
        else:
            kept.append(f"{name} ({error})")
    if kept:
        raise ClusterError(f"could not be deleted: {listing(kept)}")
    return tuple(name for name in pods if name not in errors)
