"""Bounded reads of one pod: its state, events, node and log. Where the API server does not answer, `follow_log` and
`read_pod` raise HTTPError; the others return None.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import Any

from kubernetes.client import ApiException, V1Pod  # type: ignore[import-untyped]
from urllib3.exceptions import HTTPError

from bench_image.contract.pod_io import MAX_RESULT_BYTES
from trainbench.orchestration.bounded_pod_manager import log_timeout
from trainbench.pods.pod_log import LogTail

TAIL_LINES, TAIL_BYTES, TAIL_TIMEOUT_S = 1000, 4_000_000, (5, 10)  # of a log that is kept; the last: connect, read


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
        if text := line.decode(errors="backslashreplace").rstrip("\n"):
            yield text


def log_tail(client: Any, pod: V1Pod, container: str) -> str:
    """The last part of the container's log; empty where its node serves none."""
    try:
        reply = client.read_namespaced_pod_log(
            pod.metadata.name,
            pod.metadata.namespace,
            container=container,
            tail_lines=TAIL_LINES,
            limit_bytes=TAIL_BYTES,
            _request_timeout=TAIL_TIMEOUT_S,
            _preload_content=False,
        )
        lines = reply.data.decode(errors="replace").split("\n")
    except (ApiException, HTTPError):
        return ""
    return LogTail(line for line in lines if line).text


def result_line(client: Any, pod: V1Pod, container: str) -> str | None:
    """The result from the log's last line, for pods whose file cannot be read. None: no result."""
    try:
        reply = client.read_namespaced_pod_log(
            pod.metadata.name,
            pod.metadata.namespace,
            container=container,
            tail_lines=1,
            limit_bytes=MAX_RESULT_BYTES + 1,
            _request_timeout=log_timeout(),
            _preload_content=False,  # the client would turn JSON into Python's notation
        )
        text: str = reply.data.decode(errors="replace")
    except (ApiException, HTTPError):
        return None
    return text if text.startswith("{") else None
