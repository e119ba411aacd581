"""From a pod's log into the store: the one way of a result, for tasks and for `release`."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, NamedTuple

from bench_image.contract.result_lines import ABSENT, ResultLinesError
from trainbench.pods.manifests import CONTAINER
from trainbench.pods.pod_log import LogTail
from trainbench.settings.environment import read_settings

if TYPE_CHECKING:
    from trainbench.results.arrivals import Arrival
    from trainbench.results.artefacts import Store

NOTICE = "unable to retrieve container logs"  # the kubelet's text in place of a log, with status 200
NO_LOG = (400, 404)  # the pod has no log, or is gone; any other refusal leaves open what the pod holds


class Left(NamedTuple):
    """What a pod left. `missing`: what the reader missed where it left no result. `log`: its last part, where it was
    read now.
    """

    arrival: Arrival | None
    missing: str = ABSENT
    log: str = ""

    @property
    def is_whole(self) -> bool:
        """Whether its log was served as the program wrote it, as far as one can see."""
        return self.arrival is not None or (self.missing == ABSENT and bool(self.log) and NOTICE not in self.log)


def collect(api: Any, store: Store, manifest: Mapping[str, Any], name: str, namespace: str, log: Any) -> Left:
    """Store the result and the log of a pod whose program has ended, unless an earlier task did. Raises ApiException,
    HTTPError and StoreError where it is not known whether there is a result, or it is not stored: the pod has to stay.
    """
    from kubernetes.client import ApiException  # type: ignore[import-untyped]

    from trainbench.orchestration.pod_reads import read_log
    from trainbench.results.arrivals import arrived_of_pod, store_arrival

    if arrival := arrived_of_pod(store, manifest, name):
        return Left(arrival)
    tail = LogTail()
    try:
        reader = read_log(api, name, namespace, CONTAINER, tail.add)
    except ApiException as error:
        if error.status in NO_LOG:
            return Left(None)
        raise
    keep_log(manifest, tail.text, log, store)
    try:
        text = reader.text()
    except ResultLinesError as error:
        return Left(None, str(error), tail.text)
    return Left(store_arrival(store, manifest, text, datetime.now(UTC)), ABSENT, tail.text)


def keep_log(manifest: Mapping[str, Any], text: str, log: Any, store: Store | None = None) -> None:
    """Store the last part of the pod's log. Errors are only logged: a run never fails by its log. `store`: None: the
    settings'.
    """
    from trainbench.results.arrivals import store_log
    from trainbench.results.artefacts import open_store

    try:
        store_log(store or open_store(read_settings().store), manifest, text)
    except Exception as error:  # whatever the store's library raises
        log.warning("The pod's log is not kept beside its result: %s", error)
