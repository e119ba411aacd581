"""A Kubernetes API in memory, with a clock of its own, for tests of what the pod operator does in hours."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any
from unittest.mock import Mock

from kubernetes.client import ApiClient, ApiException  # type: ignore[import-untyped]

ROOM = {"cpu": "64", "memory": "512Gi", "pods": "110", "nvidia.com/gpu": "8"}
READY = {"type": "Ready", "status": "True"}


class Clock:
    """`at`: what happens at a moment, in seconds; it happens while somebody sleeps."""

    def __init__(self) -> None:
        self.now = 0.0
        self._due: list[tuple[float, Callable[[], None]]] = []

    def at(self, moment_s: float, act: Callable[[], None]) -> None:
        self._due.append((moment_s, act))

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds
        assert self.now < 1e5, "it waits without an end"
        for moment, act in sorted((due for due in self._due if due[0] <= self.now), key=lambda due: due[0]):
            self._due.remove((moment, act))
            act()


class FakeApi:
    """`away`: no request is answered. `logs`: of each pod, or the error that its node answers."""

    def __init__(self) -> None:
        self.pods: dict[str, dict[str, Any]] = {}
        self.nodes: list[dict[str, Any]] = []
        self.logs: dict[str, Any] = {}
        self.created: list[str] = []
        self.deleted: list[str] = []
        self.away = False
        self.on_delete: Callable[[str], None] = lambda _: None

    def add_node(self, name: str, **spec: Any) -> dict[str, Any]:
        self.nodes.append(
            {"metadata": {"name": name}, "spec": spec, "status": {"conditions": [READY], "allocatable": ROOM}}
        )
        return self.nodes[-1]

    def become(self, name: str, *conditions: Any, **status: Any) -> None:
        """Give a pod this status, and a new version."""
        pod = self.pods[name]
        pod["status"] = {"conditions": list(conditions), **status}
        pod["metadata"]["resourceVersion"] += "1"

    def run(self, name: str) -> None:
        self._base(name, "Running", {"running": {}})

    def end(self, name: str, exit_code: int = 0) -> None:
        self._base(name, "Failed" if exit_code else "Succeeded", {"terminated": {"exitCode": exit_code}})

    def create_namespaced_pod(self, _: str, request: Any, **__: Any) -> None:
        self._answer()
        pod = ApiClient().sanitize_for_serialization(request)
        name = pod["metadata"]["name"]
        if name in self.pods:
            raise refusal(409, "Conflict", f'pods "{name}" already exists')
        pod["metadata"] |= {"uid": f"uid-{name}", "resourceVersion": "1", "creationTimestamp": "2026-11-25T02:00:00Z"}
        pod["status"] = {"phase": "Pending"}
        self.pods[name] = pod
        self.created.append(name)

    def list_namespaced_pod(self, *_: Any, label_selector: str, **__: Any) -> Any:
        self._answer()
        wanted = dict(each.split("=") for each in label_selector.split(","))
        items = [pod for pod in self.pods.values() if wanted.items() <= pod["metadata"]["labels"].items()]
        return Mock(data=json.dumps({"metadata": {}, "items": items}))

    def read_namespaced_pod(self, name: str, *_: Any, **__: Any) -> Any:
        self._answer()
        return Mock(data=json.dumps(self._pod(name)))

    def list_node(self, *, label_selector: str, **_: Any) -> Any:
        self._answer()
        name = label_selector.split("=")[1]
        return Mock(data=json.dumps({"items": [node for node in self.nodes if node["metadata"]["name"] == name]}))

    def list_namespaced_event(self, *_: Any, **__: Any) -> Any:
        self._answer()
        return Mock(items=[])

    def read_namespaced_pod_log(self, name: str, *_: Any, **__: Any) -> Any:
        self._answer()
        self._pod(name)
        log = self.logs.get(name, [])
        if isinstance(log, Exception):
            raise log
        return Mock(stream=lambda _: iter(["\n".join(log).encode()]))

    def delete_namespaced_pod(self, name: str, *_: Any, body: Any, **__: Any) -> None:
        self._answer()
        self.on_delete(name)
        version = body.preconditions.resource_version if body.preconditions else None
        if version not in (None, self._pod(name)["metadata"]["resourceVersion"]):
            raise refusal(409, "Conflict", "the ResourceVersion in the precondition does not match")
        del self.pods[name]
        self.deleted.append(name)

    def _base(self, name: str, phase: str, state: dict[str, Any]) -> None:
        placed = {"type": "PodScheduled", "status": "True"}
        self.become(name, placed, phase=phase, containerStatuses=[{"name": "base", "state": state}])

    def _answer(self) -> None:
        if self.away:
            raise ApiException(status=503, reason="Service Unavailable")

    def _pod(self, name: str) -> dict[str, Any]:
        if name not in self.pods:
            raise refusal(404, "Not Found", f'pods "{name}" not found')
        return self.pods[name]


def refusal(status: int, reason: str, message: str) -> Any:
    error = ApiException(status=status, reason=reason)
    error.body = json.dumps({"kind": "Status", "message": message})
    return error
