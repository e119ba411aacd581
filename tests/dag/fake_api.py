"""A Kubernetes API in memory, with a clock of its own, for tests of what the pod operator does in hours."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from copy import deepcopy
from typing import Any

from kubernetes.client import ApiClient  # type: ignore[import-untyped]

from trainbench.cluster.kubernetes_api import Cluster, Refused, Unreachable

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
    """What the operator asks of `Cluster`. `away`: no request is answered. `logs`: of each pod, or the error that its
    node answers.
    """

    node_or_none: Any = Cluster.node_or_none

    def __init__(self) -> None:
        self.there: dict[str, dict[str, Any]] = {}
        self.known_nodes: list[dict[str, Any]] = []
        self.logs: dict[str, Any] = {}
        self.created: list[str] = []
        self.deleted: list[str] = []
        self.away = False
        self.on_delete: Callable[[str], None] = lambda _: None

    def add_node(self, name: str, **spec: Any) -> dict[str, Any]:
        self.known_nodes.append(
            {"metadata": {"name": name}, "spec": spec, "status": {"conditions": [READY], "allocatable": ROOM}}
        )
        return self.known_nodes[-1]

    def become(self, name: str, *conditions: Any, **status: Any) -> None:
        """Give a pod this status, and a new version."""
        pod = self.there[name]
        pod["status"] = {"conditions": list(conditions), **status}
        pod["metadata"]["resourceVersion"] += "1"

    def run(self, name: str) -> None:
        self._base(name, "Running", {"running": {}})

    def replace(self, name: str) -> None:
        """Somebody deletes the pod and makes another of the same name, which runs."""
        self.there[name] = deepcopy(self.there[name])
        self.there[name]["metadata"] |= {"uid": f"another-{name}"}
        self.run(name)

    def end(self, name: str, exit_code: int = 0) -> None:
        self._base(name, "Failed" if exit_code else "Succeeded", {"terminated": {"exitCode": exit_code}})

    def create_pod(self, request: Any) -> None:
        self._answer()
        pod = ApiClient().sanitize_for_serialization(request)
        name = pod["metadata"]["name"]
        if name in self.there:
            raise refusal(409, "Conflict", f'pods "{name}" already exists')
        pod["metadata"] |= {"uid": f"uid-{name}", "resourceVersion": "1", "creationTimestamp": "2026-11-25T02:00:00Z"}
        pod["status"] = {"phase": "Pending"}
        self.there[name] = pod
        self.created.append(name)

    def pods(self, labels: Mapping[str, str]) -> tuple[Any, ...]:
        self._answer()
        found = [pod for pod in self.there.values() if labels.items() <= pod["metadata"]["labels"].items()]
        return tuple(deepcopy(found))

    def pod(self, name: str) -> Any:
        self._answer()
        return deepcopy(self.there.get(name))

    def nodes(self, labels: Mapping[str, str]) -> tuple[Any, ...]:
        self._answer()
        return tuple(node for node in self.known_nodes if node["metadata"]["name"] in labels.values())

    def events(self, _: str) -> tuple[Any, ...]:
        self._answer()
        return ()

    def log_lines(self, name: str, _: str) -> Iterator[str]:
        self._answer()
        log = self.logs.get(name, []) if name in self.there else []
        if isinstance(log, Exception):
            raise log
        yield from log

    def delete_pod(self, name: str, uid: str | None = None, version: str | None = None, **options: Any) -> None:
        self._answer()
        self.on_delete(name)
        metadata = self._pod(name)["metadata"]
        if uid not in (None, metadata["uid"]) or version not in (None, metadata["resourceVersion"]):
            raise refusal(409, "Conflict", "the UID or ResourceVersion in the precondition does not match")
        del self.there[name]
        self.deleted.append(name)

    def _base(self, name: str, phase: str, state: dict[str, Any]) -> None:
        placed = {"type": "PodScheduled", "status": "True"}
        self.become(name, placed, phase=phase, containerStatuses=[{"name": "base", "state": state}])

    def _answer(self) -> None:
        if self.away:
            raise Unreachable("no Kubernetes API: connection refused")

    def _pod(self, name: str) -> dict[str, Any]:
        if name not in self.there:
            raise refusal(404, "Not Found", f'pods "{name}" not found')
        return self.there[name]


def refusal(status: int, reason: str, message: str) -> Refused:
    return Refused("request", status, reason, message)
