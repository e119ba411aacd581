"""The trigger that makes a run's pod, waits for it and collects its result, without a worker."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from contextvars import copy_context
from datetime import UTC, datetime
from typing import Any, TypeVar

from airflow.providers.cncf.kubernetes.hooks.kubernetes import KubernetesHook
from airflow.sdk.execution_time.xcom import XCom
from airflow.triggers.base import TaskSuccessEvent, TriggerEvent

from trainbench.orchestration.kubernetes_operator import BenchPodOperator
from trainbench.orchestration.pod_listing import REFRESH_S, PodListing
from trainbench.orchestration.pod_trigger import MIN_DEFERRED_S, BenchPodTrigger
from trainbench.orchestration.run_operator import NOT_MADE
from trainbench.pods.manifests import CAMPAIGN, CONTAINER
from trainbench.pods.pod_stage import Stage

T = TypeVar("T")
HOOK_S = 600.0  # a thread keeps its connection to the API server for so long
# A node that does not answer holds a thread for minutes, so Airflow's own few threads are not used.
_pool = ThreadPoolExecutor(32, thread_name_prefix="trainbench")
_threads = threading.local()


class RunTrigger(BenchPodTrigger):
    """Completes successful runs and pushes their results. On any error it resumes a worker, which repeats the step and
    determines the cause.
    """

    def __init__(self, manifest: dict[str, Any], options: dict[str, Any], store: str, deadline: float) -> None:
        """`options`: of the pod operator. `deadline`: end of this try, in seconds of the epoch."""
        super().__init__(
            pod_name=manifest["metadata"]["name"],
            pod_namespace=manifest["metadata"]["namespace"],
            trigger_start_time=datetime.now(UTC),
            base_container_name=CONTAINER,
            kubernetes_conn_id=options["kubernetes_conn_id"],
            schedule_timeout=options["schedule_timeout_seconds"],
            startup_timeout=options["startup_timeout_seconds"],
            on_finish_action=options["on_finish_action"],
            termination_grace_period=options["termination_grace_period"],
            poll_interval=REFRESH_S,
            trigger_kwargs={"_execution_deadline": deadline},
        )
        self._arguments: dict[str, Any] = {
            "manifest": manifest,
            "options": options,
            "store": store,
            "deadline": deadline,
        }
        self._making: asyncio.Future[str] | None = None

    def serialize(self) -> tuple[str, dict[str, Any]]:
        return f"{type(self).__module__}.{type(self).__qualname__}", self._arguments

    async def run(self) -> AsyncIterator[TriggerEvent]:
        began = time.monotonic()
        try:
            self._making = _in_thread(self._make)
            self.pod_name = await asyncio.shield(self._making)
        except Exception as error:  # any client's error: the worker repeats the step and determines the cause
            self.log.warning("The pod could not be made, a worker tries it: %s", error)
            await asyncio.sleep(max(0.0, MIN_DEFERRED_S - (time.monotonic() - began)))
            yield TriggerEvent({"status": NOT_MADE})  # type: ignore[no-untyped-call]
            return
        if await self._has_succeeded() and await self._is_collected():
            self._fired_event = True
            yield TaskSuccessEvent()
            return
        async for event in super().run():
            yield event

    async def on_kill(self) -> None:
        """Delete the pod, also one that is just being made."""
        if self._making is not None:
            with suppress(Exception):
                self.pod_name = await self._making
        await super().on_kill()

    async def _has_succeeded(self) -> bool:
        """Wait while the pod is pending or running; return whether it succeeded."""
        made_at = time.monotonic()
        waits_until = {
            Stage.QUEUED: made_at + self.schedule_timeout,
            Stage.STARTING: None,
            Stage.RUNNING: time.monotonic() + self.trigger_kwargs["_execution_deadline"] - time.time(),
        }
        metadata = self._arguments["manifest"]["metadata"]
        selector = f"{CAMPAIGN}={metadata['labels'][CAMPAIGN]}"
        listing = PodListing.shared(self.kubernetes_conn_id, self.pod_namespace, selector)
        while True:
            try:
                at, stage = await listing.look(self.hook, self.pod_name)
            except Exception as error:  # any client's error: read the pod itself
                self.log.warning("The pods cannot be listed, so this one is read by itself: %s", error)
                return False
            now = time.monotonic()
            if stage is Stage.STARTING and waits_until[stage] is None:
                waits_until[stage] = now + self.startup_timeout
            if not (stage is None and at < made_at) and now > (waits_until.get(stage) or 0.0):  # type: ignore[arg-type]
                break
            await asyncio.sleep(self.poll_interval)
        # The next read of the pod needs no further wait.
        self.schedule_timeout = max(1, round(self.schedule_timeout - (now - made_at)))
        self.startup_timeout = 1 if stage is Stage.STARTING else self.startup_timeout
        return stage is Stage.SUCCEEDED

    async def _is_collected(self) -> bool:
        try:
            await _in_thread(self._collect)
        except Exception as error:  # any client's error: the pod is still there, and a worker collects the result
            self.log.warning("The result could not be read here, a worker tries it: %s", error)
            return False
        return True

    def _make(self) -> str:
        operator, ti = self._operator, self._ti
        context: Any = {"ti": ti, "run_id": ti.run_id, "dag": None}  # source of the pod's labels
        request = operator.build_pod_request_obj(context)
        return str(operator.get_or_create_pod(request, context).metadata.name)

    def _collect(self) -> None:
        """Store the result, hand over its address, then delete the pod: whichever step fails, the result is kept."""
        operator, ti = self._operator, self._ti
        pod, arrival = operator.collect(self.pod_name, self.pod_namespace)
        XCom.set(
            key="return_value",
            value=arrival.for_xcom,
            dag_id=ti.dag_id,
            task_id=ti.task_id,
            run_id=ti.run_id,
            map_index=ti.map_index,
        )
        operator.process_pod_deletion(pod, reraise=False)

    @property
    def _ti(self) -> Any:
        return self.task_instance

    @property
    def _operator(self) -> BenchPodOperator:
        """A pod operator for the calling thread."""
        arguments = self._arguments
        operator = BenchPodOperator(
            task_id=self._ti.task_id, pod_template_dict=arguments["manifest"], **arguments["options"]
        )
        operator.store, operator.result_wait_s = arguments["store"], 0.0
        operator.__dict__["hook"] = _hook(self.kubernetes_conn_id)
        return operator


def _in_thread(function: Callable[[], T]) -> asyncio.Future[T]:
    """Run a function in a thread with this trigger's log."""
    return asyncio.get_running_loop().run_in_executor(_pool, copy_context().run, function)


def _hook(connection: str | None) -> KubernetesHook:
    """The calling thread's hook, with its connections kept open."""
    kept: dict[str | None, tuple[float, KubernetesHook]] = _threads.__dict__.setdefault("hooks", {})
    if connection not in kept or time.monotonic() - kept[connection][0] > HOOK_S:
        kept[connection] = (time.monotonic(), KubernetesHook(conn_id=connection))
    return kept[connection][1]
