"""Deletes pods: those that run only as they were seen, and those that have ended only when what they left is stored."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from bench_image.contract.frozen import ContractError
from trainbench.cluster.kubernetes_api import Cluster, Refused
from trainbench.pods.manifests import CONTAINER
from trainbench.pods.time_limits import GRACE_S, RESTART_S, has_ended, state_of
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


def delete_as_seen(cluster: Cluster, seen: Pod, grace_s: float) -> bool:
    """Request the pod's deletion; False: it has changed since it was seen, and may have been placed. Raises
    ClusterError.
    """
    metadata = seen["metadata"]
    try:
        cluster.delete_pod(metadata["name"], metadata["uid"], metadata["resourceVersion"], gracePeriodSeconds=grace_s)
    except Refused as error:
        if error.status != 409:
            raise
        now = read_pod(cluster, metadata["name"])  # an earlier request that got no answer may have changed it
        return now is None or "deletionTimestamp" in now["metadata"]
    return True


def delete_unless_ended(cluster: Cluster, seen: Pod) -> Pod | None:
    """Request the pod's deletion, unless its program has ended, also since it was seen: then return it as it is now,
    since it may hold a result. Raises ClusterError.
    """
    pod: Pod | None = seen
    while pod and not has_ended(pod, CONTAINER):
        if delete_as_seen(cluster, pod, GRACE_S):
            return None
        pod = read_pod(cluster, seen["metadata"]["name"])
        if pod and pod["metadata"]["uid"] != seen["metadata"]["uid"]:
            return None  # a new pod of the same name
    return pod


def delete_and_keep(cluster: Cluster, pods: Iterable[Pod], keep: Callable[[Pod], bool]) -> dict[str, Exception]:
    """Delete these pods, first those that hold GPUs. `keep` stores what a pod left whose program has ended, and says
    whether its result is stored. Return the error of each pod that stays, by name.

    A program that ended with 0 had printed its result: a log without one was not served as it is, unless it is still
    without one after RESTART_S. All such pods wait for that together.
    """
    errors: dict[str, Exception] = {}
    left = sorted(pods, key=lambda pod: has_ended(pod, CONTAINER))
    for is_last in (False, True):
        unread = []
        for pod in left:
            try:
                if not _is_deleted(cluster, pod, keep, is_last):
                    unread.append(pod)
            except Exception as error:  # also of the store's library: one pod's error costs that pod only
                errors[pod["metadata"]["name"]] = error
        left = unread
        if left and not is_last:
            time.sleep(RESTART_S)
    return errors


def _is_deleted(cluster: Cluster, seen: Pod, keep: Callable[[Pod], bool], is_last: bool) -> bool:
    """False: its program ended well, and its log showed no result."""
    pod, name = delete_unless_ended(cluster, seen), seen["metadata"]["name"]
    if pod is None:
        return True
    if _is_ours(pod) and not keep(pod) and _ended_well(pod) and not is_last and read_pod(cluster, name):
        return False
    cluster.delete_pod(name, seen["metadata"]["uid"], gracePeriodSeconds=GRACE_S)
    return True


def _is_ours(pod: Pod) -> bool:
    """Whether it holds a run that this version can read."""
    try:
        return run_of(pod) is not None
    except ContractError:
        return False


def _ended_well(pod: Pod) -> bool:
    code = state_of(pod, CONTAINER).get("terminated", {}).get("exitCode")
    return code == 0 or bool(pod["status"].get("phase") == "Succeeded")
