"""Deletion of pods: of one, or of all with the same labels."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from kubernetes.client import ApiException, V1DeleteOptions, V1Preconditions  # type: ignore[import-untyped]
from urllib3.exceptions import HTTPError

from trainbench.core.formats import listing
from trainbench.orchestration.pod_reads import UNREACHABLE, Pod, answer, list_pods, read_pod, timeouts
from trainbench.pods.manifests import CONTAINER
from trainbench.pods.time_limits import GRACE_S, has_ended
from trainbench.results.store_files import StoreError


def delete_pod(api: Any, name: str, namespace: str, grace_s: int = GRACE_S, unchanged: Pod | None = None) -> bool:
    """Request the pod's deletion; return False where it differs from `unchanged`, as it was last seen. Raises
    ApiException and HTTPError.
    """
    seen = unchanged["metadata"] if unchanged else {}
    only = V1Preconditions(uid=seen["uid"], resource_version=seen["resourceVersion"]) if seen else None
    body = V1DeleteOptions(grace_period_seconds=grace_s, preconditions=only)
    try:
        api.delete_namespaced_pod(name, namespace, body=body, _request_timeout=timeouts())
    except ApiException as error:
        if error.status == 409 and seen:  # it changed, if only by an earlier request that got no answer
            now = read_pod(api, name, namespace)
            return now is None or "deletionTimestamp" in now["metadata"]
        if error.status != 404:
            raise
    return True


def delete_pods(
    api: Any,
    namespace: str,
    labels: Mapping[str, str],
    only_active: bool = False,
    before: Callable[[Pod], None] | None = None,
) -> tuple[str, ...]:
    """Delete the pods with these labels; with `only_active` only those whose program runs. `before`: called with each
    pod whose program has ended; where it raises, the pod stays. Returns the names. Raises ApiException with the names
    of the pods that could not be deleted, after trying all.
    """
    deleted, kept = [], []
    for pod in list_pods(api, namespace, ",".join(f"{key}={value}" for key, value in labels.items())):
        name, is_over = pod["metadata"]["name"], has_ended(pod, CONTAINER)
        if only_active and is_over:
            continue
        try:
            if before and is_over:
                before(pod)
            delete_pod(api, name, namespace)
        except (ApiException, HTTPError, StoreError) as error:
            kept.append(f"{name} ({answer(error)})")
        else:
            deleted.append(name)
    if kept:
        raise ApiException(status=UNREACHABLE, reason=f"could not be deleted: {listing(kept)}")
    return tuple(deleted)
