"""Reads what a pod left from its log into the store: the one way of a result."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime
from typing import Any

from bench_image.contract.frozen import Frozen
from bench_image.contract.result_lines import ABSENT, ResultLinesError, ResultReader
from trainbench.cluster.kubernetes_api import Cluster, Refused
from trainbench.pods.manifests import CONTAINER
from trainbench.pods.pod_log import MAX_LINE, LogTail
from trainbench.results.arrivals import Arrival, arrived_of_pod, keep_log, store_arrival
from trainbench.results.artefacts import Store

NO_LOG = (400, 404)  # the pod has no log, or is gone; any other refusal leaves open what the pod holds


class Left(Frozen):
    """What a pod left. `missing`: what the reader missed where it left no result. `log`: its last part, where it was
    read now.
    """

    arrival: Arrival | None = None
    missing: str = ABSENT
    log: str = ""


def collect(
    cluster: Cluster,
    store: Store,
    manifest: Mapping[str, Any],
    name: str,
    warn: Callable[[str], None],
    replaces: bool = True,
) -> Left:
    """Store the result and the log of the pod `name` whose program has ended, unless an earlier task did. `replaces`:
    also where the store has the result of another pod of its run. Raises ClusterError and StoreError where it is not
    known whether there is a result, or it is not stored: the pod has to stay.
    """
    if arrival := arrived_of_pod(store, manifest, name if replaces else None):
        return Left(arrival=arrival)
    tail, reader = LogTail(), ResultReader()
    try:
        for line in log_lines(cluster.log_chunks(name, CONTAINER)):
            if line and not reader.add(line):
                tail.add(line)
    except Refused as error:
        if error.status in NO_LOG:
            return Left()
        raise
    keep_log(store, manifest, tail.text, warn)
    try:
        text = reader.text()
    except ResultLinesError as error:
        return Left(missing=str(error), log=tail.text)
    return Left(arrival=store_arrival(store, manifest, text, datetime.now(UTC)), log=tail.text)


def log_lines(chunks: Iterator[bytes]) -> Iterator[str]:
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
