"""The objects of the cluster, their versions and the changes that watches hand out."""

from __future__ import annotations

import asyncio
import copy
import uuid
from collections import deque
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from typing import Any, NamedTuple

from tests.standin.selectors import Match
from tests.standin.status import already_exists, expired, not_found

Object = dict[str, Any]
MAX_CHANGES = 20_000  # older resource versions are gone: watches from there get 410


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


class Change(NamedTuple):
    version: int
    resource: str
    before: Object | None
    after: Object | None  # None: deleted


def timestamp(now: datetime | None = None) -> str:
    return (now or datetime.now(UTC)).strftime("%Y-%m-%dT%H:%M:%SZ")


class Store:
    """Objects are plain dicts. Whoever changes one in place calls `touch`, which shows the change to watches."""

    def __init__(self) -> None:
        self._objects: dict[str, dict[tuple[str, str], Object]] = {resource: {} for resource in KINDS}
        self._last_seen: dict[str, Object] = {}
        self._changes: deque[Change] = deque(maxlen=MAX_CHANGES)
        self._pulse = asyncio.Event()
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
        self._record(resource, item, item)
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
            self._record(resource, item, item)

    def remove(self, resource: str, item: Object) -> None:
        key = (item["metadata"].get("namespace", ""), item["metadata"]["name"])
        if self._objects[resource].get(key) is item:
            del self._objects[resource][key]
            self._record(resource, item, None)

    def _record(self, resource: str, item: Object, after: Object | None) -> None:
        self.version += 1
        item["metadata"]["resourceVersion"] = str(self.version)
        uid = item["metadata"]["uid"]
        before, now = self._last_seen.pop(uid, None), copy.deepcopy(item)
        if after is None:
            self._changes.append(Change(self.version, resource, now, None))
        else:
            self._last_seen[uid] = now
            self._changes.append(Change(self.version, resource, before, now))
        self._pulse.set()
        self._pulse = asyncio.Event()

    async def watch(
        self, resource: str, namespace: str | None, match: Match, since: int | None
    ) -> AsyncIterator[tuple[str, Object]]:
        """(ADDED | MODIFIED | DELETED, object), from version `since` on; None: first everything that is there."""
        if since is None:
            since = self.version
            for item in self.all(resource, namespace):
                if match(item):
                    yield "ADDED", copy.deepcopy(item)
        if self._changes and since < self._changes[0].version - 1:
            raise expired(since, self._changes[0].version)
        while True:
            pulse = self._pulse
            for change in [c for c in self._changes if c.version > since]:
                since = change.version
                if change.resource == resource and (event := _event(change, namespace, match)):
                    yield event
            await pulse.wait()


def _event(change: Change, namespace: str | None, match: Match) -> tuple[str, Object] | None:
    """How a watch with a selector sees a change: an object that no longer matches is DELETED for it."""
    subject = change.after or change.before
    assert subject is not None
    if namespace is not None and subject["metadata"].get("namespace") != namespace:
        return None
    matched_before = change.before is not None and match(change.before)
    matches_now = change.after is not None and match(change.after)
    if matches_now:
        return ("MODIFIED" if matched_before else "ADDED"), subject
    if matched_before:
        gone = dict(subject, metadata=dict(subject["metadata"], resourceVersion=str(change.version)))
        return "DELETED", gone
    return None
