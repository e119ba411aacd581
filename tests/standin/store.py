"""The objects of the cluster and their versions."""

from __future__ import annotations

import uuid
from datetime import UTC, datetime
from typing import Any, NamedTuple

from tests.standin.status import already_exists, not_found

Object = dict[str, Any]


class Kind(NamedTuple):
    name: str
    group_version: str = "v1"
    namespaced: bool = True


KINDS = {
    "pods": Kind("Pod"),
    "events": Kind("Event"),
    "services": Kind("Service"),
    "serviceaccounts": Kind("ServiceAccount"),
    "nodes": Kind("Node", namespaced=False),
    "namespaces": Kind("Namespace", namespaced=False),
    "resourcequotas": Kind("ResourceQuota"),
    "limitranges": Kind("LimitRange"),
    "configmaps": Kind("ConfigMap"),
    "runtimeclasses": Kind("RuntimeClass", "node.k8s.io/v1", namespaced=False),
    "priorityclasses": Kind("PriorityClass", "scheduling.k8s.io/v1", namespaced=False),
}


def timestamp(now: datetime | None = None) -> str:
    return (now or datetime.now(UTC)).strftime("%Y-%m-%dT%H:%M:%SZ")


class Store:
    """Objects are plain dicts. Whoever changes one in place calls `touch`, which gives it a new version."""

    def __init__(self) -> None:
        self._objects: dict[str, dict[tuple[str, str], Object]] = {resource: {} for resource in KINDS}
        self.version = 1

    def create(self, resource: str, item: Object) -> Object:
        metadata = item["metadata"]
        key = (metadata.get("namespace", ""), metadata["name"])
        if key in self._objects[resource]:
            raise already_exists(resource, metadata["name"])
        kind = KINDS[resource]
        item |= {"apiVersion": kind.group_version, "kind": kind.name}
        metadata |= {"uid": str(uuid.uuid4()), "creationTimestamp": timestamp()}
        self._objects[resource][key] = item
        self._renew(item)
        return item

    def get(self, resource: str, namespace: str, name: str) -> Object:
        item = self._objects[resource].get((namespace, name))
        if item is None:
            raise not_found(resource, name)
        return item

    def has(self, resource: str, namespace: str, name: str) -> bool:
        return (namespace, name) in self._objects[resource]

    def all(self, resource: str, namespace: str | None = None) -> list[Object]:
        return [item for (space, _), item in self._objects[resource].items() if namespace in (None, space)]

    def touch(self, resource: str, item: Object) -> None:
        """Nothing happens to an object that has been deleted meanwhile."""
        key = (item["metadata"].get("namespace", ""), item["metadata"]["name"])
        if self._objects[resource].get(key) is item:
            self._renew(item)

    def remove(self, resource: str, item: Object) -> None:
        key = (item["metadata"].get("namespace", ""), item["metadata"]["name"])
        if self._objects[resource].get(key) is item:
            del self._objects[resource][key]

    def _renew(self, item: Object) -> None:
        self.version += 1
        item["metadata"]["resourceVersion"] = str(self.version)
