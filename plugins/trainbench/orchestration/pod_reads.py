"""Bounded reads of one pod: its state, events, node and log. Where the API server does not answer, `follow_log`,
`read_log` and `read_pod` raise HTTPError; the others return None.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from datetime import UTC, datetime
from typing import Any

from kubernetes.client import ApiException, V1Pod  # type: ignore[import-untyped]
from urllib3.exceptions import HTTPError

from bench_image.contract.result_lines import ResultReader, is_part
from trainbench.orchestration.bounded_pod_manager import log_timeout
from trainbench.pods.pod_log import MAX_LINE

CHUNK_BYTES = 65_536


def read_pod(client: Any, name: str, namespace: str) -> Mapping[str, Any] | None:
    """The pod as the API's JSON; None where it is gone or may not be read."""
    try:
        pod = client.read_namespaced_pod(name, namespace)
    except ApiException:
        return None
    state: Mapping[str, Any] = client.api_client.sanitize_for_serialization(pod)
    return state


def read_events(client: Any, name: str, namespace: str) -> tuple[tuple[str, str], ...]:
    """Reason and message of each event of the pod. Events outlive the pod."""
    try:
        listed = client.list_namespaced_event(namespace, field_selector=f"involvedObject.name={name}")
    except (ApiException, HTTPError):
        return ()
    return tuple((event.reason or "", event.message or "") for event in listed.items)


def read_node(client: Any, name: str) -> Mapping[str, Any] | None:
    """The node as the API's JSON; None where it is gone or may not be read."""
    try:
        listed = client.list_node(label_selector=f"kubernetes.io/hostname={name}").items
    except (ApiException, HTTPError):
        return None
    return client.api_client.sanitize_for_serialization(listed[0]) if listed else None


def follow_log(client: Any, pod: V1Pod, container: str, follow: bool, since: datetime | None) -> Iterator[str]:
    """Lines of the container's log since that time. The request has a timeout, unlike the provider's, which waits for
    ever for a node that accepts it and never answers.
    """
    lines = client.read_namespaced_pod_log(
        pod.metadata.name,
        pod.metadata.namespace,
        container=container,
        follow=follow,
        since_seconds=math.ceil((datetime.now(UTC) - since).total_seconds()) if since else None,
        _request_timeout=log_timeout(),
        _preload_content=False,
    )
    for line in lines:
        text = line.decode(errors="backslashreplace").rstrip("\n")
        if text and not is_part(text):
            yield text


def read_log(client: Any, pod: V1Pod, container: str, on_line: Callable[[str], None]) -> ResultReader:
    """Read the whole log of a container that has ended: the result, and `on_line` for each other line. It holds one
    chunk in memory; how long a log can be, the node's kubelet limits. Raises ApiException and HTTPError.
    """
    reply = client.read_namespaced_pod_log(
        pod.metadata.name,
        pod.metadata.namespace,
        container=container,
        _request_timeout=log_timeout(),
        _preload_content=False,
    )
    reader = ResultReader()
    with closing(reply):
        for line in _lines(reply.stream(CHUNK_BYTES)):
            if line and not reader.add(line):
                on_line(line)
    return reader


def _lines(chunks: Iterator[bytes]) -> Iterator[str]:
    """The lines, each cut to MAX_LINE bytes."""
    begun = b""
    for chunk in chunks:
        *complete, last = chunk.split(b"\n")
        for piece in complete:
            yield (begun + piece)[:MAX_LINE].decode(errors="backslashreplace")
            begun = b""
        begun = (begun + last)[:MAX_LINE]
    yield begun.decode(errors="backslashreplace")
