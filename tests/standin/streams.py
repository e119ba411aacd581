"""Replies that go on: watches and logs."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

from aiohttp import web

from tests.standin.container import Container, Line
from tests.standin.kubelet import Kubelets
from tests.standin.rbac import Call
from tests.standin.selectors import Match
from tests.standin.status import ApiError, failure
from tests.standin.store import Store

Object = dict[str, Any]


def _is_true(text: str | None) -> bool:
    """Clients of generated code send `True`."""
    return (text or "").lower() in ("true", "1")


async def watch(store: Store, call: Call, request: web.Request, match: Match) -> web.StreamResponse:
    version = request.query.get("resourceVersion", "")
    since = int(version) if version.isdecimal() and version != "0" else None
    response = web.StreamResponse(headers={"Content-Type": "application/json"})
    await response.prepare(request)
    with suppress(TimeoutError, ConnectionResetError):
        async with asyncio.timeout(float(request.query.get("timeoutSeconds") or 1800)):
            try:
                async for kind, item in store.watch(call.resource, call.namespace or None, match, since):
                    await _send(response, {"type": kind, "object": item})
            except ApiError as error:
                await _send(response, {"type": "ERROR", "object": error.body()})
    return response


async def _send(response: web.StreamResponse, item: Object) -> None:
    await response.write(json.dumps(item).encode() + b"\n")


async def log(kubelets: Kubelets, pod: Object, request: web.Request) -> web.StreamResponse:
    name = _container_name(pod, request)
    where = f"{pod['metadata']['namespace']}/{pod['metadata']['name']}/{name}?{request.query_string}"
    if not kubelets.answers(pod):
        address = f"{pod['status'].get('hostIP', '127.0.0.1')}:10250"
        dialled = f"dial tcp {address}: connect: no route to host"
        raise failure(500, f'Get "https://{address}/containerLogs/{where}": {dialled}')
    run = kubelets.runs.get(pod["metadata"]["uid"])
    if run is None:
        return web.Response(status=204)  # not bound to a node yet: there is no kubelet to ask
    container = run.containers.get(name)
    if container is None or not container.started_file.exists():
        raise failure(
            400, f'container "{name}" in pod "{pod["metadata"]["name"]}" is waiting to start: {_waits(pod, name)}'
        )
    if _is_true(request.query.get("previous")):
        raise failure(400, f'previous terminated container "{name}" in pod "{pod["metadata"]["name"]}" not found')
    response = web.StreamResponse(headers={"Content-Type": "text/plain"})
    await response.prepare(request)
    stamped = _is_true(request.query.get("timestamps"))
    sent, bytes_left = _first_line(container, request), int(request.query.get("limitBytes") or 10**12)
    goes_on = False  # the last entry was a piece of a line
    with suppress(ConnectionResetError):
        while True:
            changed = container.changed
            batch, sent = container.lines[sent:], len(container.lines)
            if batch:
                text = b"".join(_rendered(batch, stamped, goes_on))[:bytes_left]
                goes_on = not batch[-1].text.endswith(b"\n")
                bytes_left -= len(text)
                await response.write(text)
            if not kubelets.answers(pod) and request.transport is not None:
                request.transport.abort()  # the API server's own connection to the kubelet is dead
                break
            if container.exit_code is not None or not _is_true(request.query.get("follow")):
                if sent == len(container.lines):
                    break
                continue
            await changed.wait()
    return response


def _first_line(container: Container, request: web.Request) -> int:
    lines = container.lines
    first = 0
    if seconds := request.query.get("sinceSeconds"):
        since = time.time_ns() - int(seconds) * 10**9
        first = next((i for i, line in enumerate(lines) if line.at_ns >= since), len(lines))
    if (tail := request.query.get("tailLines")) is not None:
        first = max(first, len(lines) - int(tail))
    return first


def _rendered(entries: list[Line], stamped: bool, goes_on: bool) -> Iterator[bytes]:
    """As a kubelet writes them: a time at the start of each line, none within it."""
    for entry in entries:
        yield entry.stamp + entry.text if stamped and not goes_on else entry.text
        goes_on = not entry.text.endswith(b"\n")


def _container_name(pod: Object, request: web.Request) -> str:
    names = [c["name"] for c in [*pod["spec"].get("initContainers", []), *pod["spec"]["containers"]]]
    name = request.query.get("container", "")
    if not name and len(pod["spec"]["containers"]) == 1:
        return str(pod["spec"]["containers"][0]["name"])
    if not name:
        choices = " ".join(names)
        raise failure(
            400, f"a container name must be specified for pod {pod['metadata']['name']}, choose one of: [{choices}]"
        )
    if name not in names:
        raise failure(400, f"container {name} is not valid for pod {pod['metadata']['name']}")
    return name


def _waits(pod: Object, name: str) -> str:
    statuses = [*pod["status"].get("initContainerStatuses", []), *pod["status"].get("containerStatuses", [])]
    reason = next((own["state"].get("waiting", {}).get("reason", "") for own in statuses if own["name"] == name), "")
    return "trying and failing to pull image" if reason in ("ErrImagePull", "ImagePullBackOff") else reason
