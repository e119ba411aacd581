"""Deletes pods: those that run only as they were seen, and those that have ended only when what they left is stored."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from functools import partial
from typing import Any

from bench_image.contract.frozen import ContractError
from trainbench.cluster.kubernetes_api import Cluster, Refused
from trainbench.pods.manifests import CONTAINER
from trainbench.pods.time_limits import GRACE_S, RESTART_S, ended_well, has_ended
from trainbench.results.arrivals import run_of

Pod = Mapping[str, Any]  # as the API's JSON


def read_pod(cluster: Cluster, name: str) -> Pod | None:
    """None: it is gone. Raises ClusterError."""
    try:
        return cluster.pod(name)
    except Refused as error:
        if error.status == 404:
            return None
        raise


def runs_or_waits(pod: Pod) -> bool:
    return not has_ended(pod, CONTAINER)


def delete_while(
    cluster: Cluster, holds: Callable[[Pod], bool] | None, seen: Pod, grace_s: float = GRACE_S
) -> Pod | None:
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
            cluster.delete_pod(metadata["name"], uid, version, gracePeriodSeconds=grace_s)
            return None
        except Refused as error:
            if error.status != 409:  # it has changed since it was seen
                raise
        pod = read_pod(cluster, metadata["name"])
    return None


def delete_pods(
    cluster: Cluster, pods: Iterable[Pod], keep: Callable[[Pod], bool] | None = None
) -> dict[str, Exception]:
    """Delete these pods, first those that hold GPUs. `keep` stores what a pod left whose program has ended, and says
    whether its result is stored; None: such pods stay. Return the error of each pod that should be gone, by name.

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

    def delete_ended(pod: Pod, waits: bool) -> Pod | None:
        run = None
        with suppress(ContractError):  # of a version that nobody here can read
            run = run_of(pod)
        is_unread = run and keep and not keep(pod)
        if is_unread and waits and ended_well(pod, CONTAINER) and read_pod(cluster, pod["metadata"]["name"]):
            return pod
        return delete_while(cluster, None, pod)

    ended = left_by(partial(delete_while, cluster, runs_or_waits), pods)
    if keep and (unread := left_by(partial(delete_ended, waits=True), ended)):
        time.sleep(RESTART_S)
        left_by(partial(delete_ended, waits=False), unread)
    return errors
