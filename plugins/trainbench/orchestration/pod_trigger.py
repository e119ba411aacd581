"""The trigger that waits for a pod while its task is deferred."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from functools import cached_property
from typing import Any

from airflow.providers.cncf.kubernetes.triggers.pod import KubernetesPodTrigger
from airflow.triggers.base import TriggerEvent
from kubernetes.client import V1Pod  # type: ignore[import-untyped]

from trainbench.orchestration.bounded_pod_manager import BoundedAsyncPodManager, refuse_late

# The scheduler takes a task for killed if it is resumed before the report of its deferral was read. Reports are read
# about once a second; on a loaded machine that was too late for pods that ended at once, never for pods of 20 s.
MIN_DEFERRED_S = 10.0


class BenchPodTrigger(KubernetesPodTrigger):
    """The provider's trigger with two changes: it stops waiting for a pod beyond its time limit, since the API shows
    pods of a dead node as running for ever, and it resumes no task before the scheduler knows of its deferral.
    """

    async def run(self) -> AsyncIterator[TriggerEvent]:
        began = time.monotonic()
        async for event in super().run():
            await asyncio.sleep(max(0.0, MIN_DEFERRED_S - (time.monotonic() - began)))
            yield event

    @classmethod
    def like(cls, trigger: KubernetesPodTrigger) -> BenchPodTrigger:
        _, arguments = trigger.serialize()
        return cls(**arguments)

    def serialize(self) -> tuple[str, dict[str, Any]]:
        _, arguments = super().serialize()
        return f"{type(self).__module__}.{type(self).__qualname__}", arguments

    async def _get_pod(self) -> V1Pod:  # type: ignore[override]  # it is decorated there
        pod = await super()._get_pod()
        refuse_late(pod)
        return pod

    @cached_property
    def pod_manager(self) -> BoundedAsyncPodManager:
        return BoundedAsyncPodManager(async_hook=self.hook)
