"""The trigger that runs a pod's steps without a worker: a task whose pod succeeds ends in it.

Workers import this module to defer: the operator and the Kubernetes client are imported by the triggerer alone.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from airflow.triggers.base import BaseTrigger, TaskSuccessEvent, TriggerEvent

from trainbench.pods.manifests import CAMPAIGN

if TYPE_CHECKING:
    from trainbench.orchestration.kubernetes_operator import BenchPodOperator

T = TypeVar("T")
# The scheduler takes a task for killed if it is resumed before the report of its deferral was read. Reports are read
# about once a second; on a loaded machine that was too late for pods that ended at once, never for pods of 20 s.
MIN_DEFERRED_S = 10.0
# A node that does not answer holds a thread for minutes, so Airflow's own few threads are not used.
_pool = ThreadPoolExecutor(32, thread_name_prefix="trainbench")


class RunTrigger(BaseTrigger):
    """Ends the tasks of pods that end well. In all other cases it resumes a worker, which goes on with the same steps
    and says how the task ended.
    """

    def __init__(self, options: dict[str, Any]) -> None:
        """`options`: of the pod operator, its manifest among them."""
        super().__init__()  # type: ignore[no-untyped-call]
        self._options = options
        self._operator: BenchPodOperator | None = None
        self._step: asyncio.Future[Any] | None = None

    def serialize(self) -> tuple[str, dict[str, Any]]:
        return f"{type(self).__module__}.{type(self).__qualname__}", {"options": self._options}

    async def run(self) -> AsyncIterator[TriggerEvent]:
        began, result = time.monotonic(), None
        try:
            self._operator = operator = await self._in_thread(self._new_operator)
            ti: Any = self.task_instance
            context: Any = {"ti": ti, "run_id": ti.run_id, "dag": None}  # source of the pod's labels
            steps = operator.steps(context)
            while (pause_s := await self._in_thread(partial(next, steps, None))) is not None:
                await asyncio.sleep(pause_s)
            if result := operator.good_result:
                await self._in_thread(operator.remove)
        except Exception as error:  # any client's error: the pod is as it was, and a worker goes on
            self.log.warning("A worker goes on with this run: %s", error)
        if result:
            yield TaskSuccessEvent(xcoms={"return_value": result})
            return
        await asyncio.sleep(max(0.0, MIN_DEFERRED_S - (time.monotonic() - began)))
        event = self._operator.progress.model_dump(mode="json") if self._operator else {}
        yield TriggerEvent(event)  # type: ignore[no-untyped-call]

    async def on_kill(self) -> None:
        """Delete the pod, also one that is just being made."""
        if self._step is not None:
            await asyncio.wait([self._step])
        if self._operator is not None:
            await self._in_thread(self._operator.on_kill)

    def _new_operator(self) -> BenchPodOperator:
        from trainbench.orchestration.kubernetes_operator import BenchPodOperator

        operator = BenchPodOperator(task_id=self.task_instance.task_id, **self._options)  # type: ignore[union-attr]
        operator.listed_by = (CAMPAIGN,)  # one list for all tasks of the campaign
        return operator

    async def _in_thread(self, function: Callable[[], T]) -> T:
        """Run a function in a thread with this trigger's log."""
        self._step = asyncio.get_running_loop().run_in_executor(_pool, copy_context().run, function)
        result: T = await asyncio.shield(self._step)
        return result
