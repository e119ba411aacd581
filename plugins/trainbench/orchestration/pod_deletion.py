"""Deletion of pods by their labels."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from kubernetes.client import ApiException, V1DeleteOptions, V1Pod  # type: ignore[import-untyped]
from urllib3.exceptions import HTTPError

from trainbench.core.formats import listing
from trainbench.orchestration.api_errors import UNREACHABLE, answer
from trainbench.pods.manifests import CONTAINER
from trainbench.pods.time_limits import GRACE_S
from trainbench.results.store_files import StoreError


def delete_pods(
    client: Any,
    namespace: str,
    labels: Mapping[str, str],
    only_active: bool = False,
    before: Callable[[V1Pod], None] | None = None,
) -> tuple[str, ...]:
    """Delete the pods with these labels; with `only_active` only those whose program runs. `before`: called with each
    pod whose program has ended; where it raises, the pod stays. Returns the names. Raises ApiException with the names
    of the pods that could not be deleted, after trying all.
    """
    deleted, kept = [], []
    selector = ",".join(f"{key}={value}" for key, value in labels.items())
    for pod in client.list_namespaced_pod(namespace, label_selector=selector).items:
        base = next((s for s in pod.status.container_statuses or () if s.name == CONTAINER), None)
        has_ended = base is not None and base.state.terminated
        if only_active and has_ended:
            continue
        try:
            if before and has_ended:
                before(pod)
            client.delete_namespaced_pod(
                pod.metadata.name, namespace, body=V1DeleteOptions(grace_period_seconds=GRACE_S)
            )
        except (ApiException, HTTPError, StoreError) as error:
            if not isinstance(error, ApiException) or error.status != 404:
                kept.append(f"{pod.metadata.name} ({answer(error) if isinstance(error, ApiException) else error})")
                continue
        deleted.append(pod.metadata.name)
    if kept:
        raise ApiException(status=UNREACHABLE, reason=f"could not be deleted: {listing(kept)}")
    return tuple(deleted)
