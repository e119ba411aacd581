"""Bounded requests about pods: those of a campaign, their node, their events, a log. They raise ApiException and
HTTPError; `is_outage` says whether the same request may be answered later.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from typing import Any, ClassVar, NamedTuple
from weakref import WeakValueDictionary

from kubernetes.client import ApiException  # type: ignore[import-untyped]
from urllib3.exceptions import HTTPError

from bench_image.contract.result_lines import ResultReader
from trainbench.pods import time_limits
from trainbench.pods.pod_log import MAX_LINE

Pod = Mapping[str, Any]  # as the API's JSON
REFRESH_S = 5.0
PAGE = 500  # pods in one answer
CHUNK_BYTES = 65_536
UNREACHABLE = 503  # the status that stands for "no answer at all"
PASSING = (0, 410, 429)  # statuses beside 5xx: the connection broke, a page of a list expired, too many requests


def timeouts() -> tuple[float, float]:
    """Of one request, in seconds: to connect, and between two parts of the answer."""
    return time_limits.CONNECT_S, time_limits.LOG_SILENCE_S


def status_of(error: ApiException | HTTPError) -> int:
    return int(error.status or 0) if isinstance(error, ApiException) else UNREACHABLE


def is_outage(error: ApiException | HTTPError) -> bool:
    return status_of(error) >= 500 or status_of(error) in PASSING


def answer(error: BaseException) -> str:
    """The message of the API server's answer. The HTTP reason alone ("Forbidden") hides a quota or missing right."""
    if not isinstance(error, ApiException):
        return str(error)
    try:
        return str(json.loads(error.body)["message"])
    except (TypeError, ValueError, KeyError):
        return str(error.reason)


class Listed(NamedTuple):
    """`at`: time of the request on the monotonic clock; `pods`: name -> pod."""

    at: float
    pods: Mapping[str, Pod]


class PodListing:
    """The pods that match a selector, read at most every REFRESH_S for all that wait for them: one request instead of
    one for each pod. An error is kept as long, so that of a thousand tasks one asks a server that is away.
    """

    _shared: ClassVar[WeakValueDictionary[tuple[str | None, str, str], PodListing]] = WeakValueDictionary()

    def __init__(self, namespace: str, selector: str) -> None:
        self._namespace, self._selector = namespace, selector
        self._lock = threading.Lock()
        self._read_at = -float("inf")
        self._listed = Listed(self._read_at, {})
        self._error: ApiException | HTTPError | None = None

    @classmethod
    def shared(cls, connection: str | None, namespace: str, selector: str) -> PodListing:
        """The one of this process."""
        key = (connection, namespace, selector)
        if (listing := cls._shared.get(key)) is None:
            listing = cls._shared[key] = cls(namespace, selector)
        return listing

    def look(self, api: Any) -> Listed:
        """The pods, at most REFRESH_S old. `api`: the calling thread's client."""
        with self._lock:
            if time.monotonic() - self._read_at > REFRESH_S:
                asked_at = time.monotonic()
                try:
                    self._listed, self._error = Listed(asked_at, dict(self._read(api))), None
                except (ApiException, HTTPError) as error:
                    self._error = error
                self._read_at = time.monotonic()
            if self._error is not None:
                raise self._error
            return self._listed

    def _read(self, api: Any) -> Iterator[tuple[str, Pod]]:
        for pod in list_pods(api, self._namespace, self._selector):
            for container in pod["spec"]["containers"]:
                container.pop("env", None)  # the run's specification: most of the pod
            yield pod["metadata"]["name"], pod


def list_pods(api: Any, namespace: str, selector: str) -> Iterator[Pod]:
    more: str | None = ""
    while more is not None:
        reply = api.list_namespaced_pod(
            namespace,
            label_selector=selector,
            limit=PAGE,
            _continue=more,
            _preload_content=False,  # the client would parse it into thousands of objects
            _request_timeout=timeouts(),
        )
        page = json.loads(reply.data)
        yield from page["items"]
        more = page["metadata"].get("continue") or None


def read_pod(api: Any, name: str, namespace: str) -> Pod | None:
    """None: it is gone."""
    try:
        reply = api.read_namespaced_pod(name, namespace, _preload_content=False, _request_timeout=timeouts())
    except ApiException as error:
        if error.status == 404:
            return None
        raise
    pod: Pod = json.loads(reply.data)
    return pod


def read_node(api: Any, name: str | None) -> Mapping[str, Any] | None:
    """The node as the API's JSON, empty where there is none of this name; None: it may not be read."""
    if name is None:
        return None
    try:
        reply = api.list_node(
            label_selector=f"kubernetes.io/hostname={name}", _preload_content=False, _request_timeout=timeouts()
        )
    except (ApiException, HTTPError):
        return None
    return next(iter(json.loads(reply.data)["items"]), {})


def read_events(api: Any, name: str, namespace: str) -> tuple[tuple[str, str], ...]:
    """Reason and message of each event of the pod; none where they may not be read. Events outlive the pod."""
    try:
        listed = api.list_namespaced_event(
            namespace, field_selector=f"involvedObject.name={name}", _request_timeout=timeouts()
        )
    except (ApiException, HTTPError):
        return ()
    return tuple((event.reason or "", event.message or "") for event in listed.items)


def read_log(api: Any, name: str, namespace: str, container: str, on_line: Callable[[str], None]) -> ResultReader:
    """Read the whole log of a container that has ended: the result, and `on_line` for each other line. It holds one
    chunk in memory; how long a log can be, the node's kubelet limits.
    """
    reply = api.read_namespaced_pod_log(
        name, namespace, container=container, _request_timeout=timeouts(), _preload_content=False
    )
    reader = ResultReader()
    with closing(reply):
        for line in _lines(reply.stream(CHUNK_BYTES)):
            if line and not reader.add(line):
                on_line(line)
    return reader


def _lines(chunks: Iterator[bytes]) -> Iterator[str]:
    """The lines, of each the last MAX_LINE bytes: a part of a result ends its line, whatever stands before it."""
    begun = b""
    for chunk in chunks:
        *complete, last = chunk.split(b"\n")
        for piece in complete:
            yield (begun + piece)[-MAX_LINE:].decode(errors="backslashreplace")
            begun = b""
        begun = (begun + last)[-MAX_LINE:]
    yield begun.decode(errors="backslashreplace")
