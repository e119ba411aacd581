"""What `release` does with a pod that ended and that no task could read: its result goes into the store."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from kubernetes.client import ApiException, V1Pod  # type: ignore[import-untyped]

from bench_image.contract.result_lines import ResultLinesError
from trainbench.orchestration.pod_reads import read_log
from trainbench.pods.manifests import CONTAINER
from trainbench.pods.pod_log import LogTail
from trainbench.results.arrivals import arrived_of_pod, store_arrival, store_log
from trainbench.results.artefacts import Store

NO_LOG = (400, 404)  # the pod has no log, or is gone; any other refusal leaves open what the pod holds


def rescue(client: Any, store: Store, pod: V1Pod) -> str | None:
    """Store the result and the log of an ended pod; return the result's address, None where the pod left none or it is
    stored already. Raises ApiException, HTTPError and StoreError where that is not known.
    """
    manifest, tail = client.api_client.sanitize_for_serialization(pod), LogTail()
    if arrived_of_pod(store, manifest, pod.metadata.name):
        return None
    try:
        reader = read_log(client, pod, CONTAINER, tail.add)
    except ApiException as error:
        if error.status in NO_LOG:
            return None
        raise
    store_log(store, manifest, tail.text)
    try:
        arrival = store_arrival(store, manifest, reader.text(), datetime.now(UTC))
    except ResultLinesError:
        return None
    return arrival.address if arrival else None
