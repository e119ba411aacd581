"""One list of a campaign's pods, read every few seconds for all triggers that wait for them."""

from __future__ import annotations

import asyncio
import json
import time
from datetime import UTC, datetime
from typing import Any, ClassVar, NamedTuple
from weakref import WeakValueDictionary

from kubernetes_asyncio.client import CoreV1Api

from trainbench.pods.manifests import CONTAINER
from trainbench.pods.pod_stage import Stage, stage_of

REFRESH_S = 5.0
PAGE = 500  # pods in one answer


class Listed(NamedTuple):
    """`at`: time of the request on the monotonic clock; `stage` None: the list lacks the pod."""

    at: float
    stage: Stage | None


class PodListing:
    """A cached list of pods. It raises the client's errors; each trigger then reads its own pod."""

    _shared: ClassVar[WeakValueDictionary[tuple[str | None, str, str], PodListing]] = WeakValueDictionary()

    def __init__(self, namespace: str, selector: str) -> None:
        self._namespace, self._selector = namespace, selector
        self._lock = asyncio.Lock()
        self._at = -float("inf")
        self._stages: dict[str, Stage] = {}

    @classmethod
    def shared(cls, connection: str | None, namespace: str, selector: str) -> PodListing:
        key = (connection, namespace, selector)
        if (listing := cls._shared.get(key)) is None:
            listing = cls._shared[key] = cls(namespace, selector)
        return listing

    async def look(self, hook: Any, name: str) -> Listed:
        """The pod's stage, at most REFRESH_S old. `hook`: any trigger's AsyncKubernetesHook."""
        async with self._lock:
            if time.monotonic() - self._at > REFRESH_S:
                asked_at = time.monotonic()
                self._stages = await self._read(hook)
                self._at = asked_at
        return Listed(self._at, self._stages.get(name))

    async def _read(self, hook: Any) -> dict[str, Stage]:
        stages: dict[str, Stage] = {}
        async with hook.get_conn() as connection:
            api, more = CoreV1Api(connection), ""
            while True:
                answer: Any = await api.list_namespaced_pod(
                    self._namespace,
                    label_selector=self._selector,
                    limit=PAGE,
                    _continue=more,
                    _preload_content=False,  # the client would parse it into thousands of objects
                    _request_timeout=60,
                )
                page = json.loads(await answer.read())
                now = datetime.now(UTC)
                stages |= {pod["metadata"]["name"]: stage_of(pod, CONTAINER, now) for pod in page["items"]}
                if not (more := page["metadata"].get("continue") or ""):
                    return stages
