"""Event objects, repeated ones counted as the real event recorder does."""

from __future__ import annotations

import uuid
from typing import Any

from tests.standin.store import Store, timestamp

_COMPONENTS = {
    "FailedScheduling": "default-scheduler",
    "Scheduled": "default-scheduler",
    "Preempted": "default-scheduler",
}


class Recorder:
    def __init__(self, store: Store) -> None:
        self._store = store

    def record(self, subject: dict[str, Any], kind: str, reason: str, message: str) -> None:
        """`kind` is Normal or Warning."""
        metadata, now = subject["metadata"], timestamp()
        space = metadata.get("namespace", "default")
        for event in self._store.all("events", space):
            same = (event["involvedObject"]["uid"], event["reason"], event["message"])
            if same == (metadata["uid"], reason, message):
                event["count"] += 1
                event["lastTimestamp"] = now
                self._store.touch("events", event)
                return
        component = _COMPONENTS.get(reason, "kubelet")
        self._store.create(
            "events",
            {
                "metadata": {"name": f"{metadata['name']}.{uuid.uuid4().hex[:16]}", "namespace": space},
                "involvedObject": {
                    "apiVersion": subject["apiVersion"],
                    "kind": subject["kind"],
                    "name": metadata["name"],
                    "namespace": metadata.get("namespace", ""),
                    "uid": metadata["uid"],
                    "resourceVersion": metadata["resourceVersion"],
                },
                "reason": reason,
                "message": message,
                "type": kind,
                "count": 1,
                "firstTimestamp": now,
                "lastTimestamp": now,
                "source": {"component": component, "host": subject.get("spec", {}).get("nodeName", "")},
                "reportingComponent": component,
                "reportingInstance": "",
            },
        )
