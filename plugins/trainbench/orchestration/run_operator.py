"""The operator of one planned run: makes its manifest and hands it to the trigger, or to the launcher's own operator.

It imports neither Airflow's pod operator nor a Kubernetes client: a task whose pod succeeds needs them only in the
triggerer, and the imports would dominate the time of a worker's process.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from datetime import timedelta
from functools import cached_property
from typing import Any

from airflow.sdk import BaseOperator, Context, get_current_context
from airflow.sdk.bases.operator import ExecutorSafeguard
from airflow.sdk.exceptions import AirflowSkipException
from airflow.triggers.base import BaseTrigger

from trainbench.orchestration.plan_tasks import owner
from trainbench.orchestration.planned_runs import PlannedRun, own_run
from trainbench.pods.manifests import manifest, pod_title
from trainbench.pods.time_limits import task_limit_s
from trainbench.settings.environment import Launcher, Settings, read_settings

TRIGGER = "trainbench.orchestration.run_trigger.RunTrigger"
NOT_MADE = "not made"  # status of the event of a trigger that could not make its pod
TIMEOUT_MARGIN_S = 60.0  # the trigger itself ends the try before Airflow does


class RunOperator(BaseOperator):
    """Runs one planned run. Airflow's grid names each mapped task by its run's node, strategy and round."""

    ui_color = "#d7f0e3"

    def __init__(self, *, block: int, place: int, planned_by: str, options: Mapping[str, Any], **kwargs: Any) -> None:
        """`block` and `place` number the runs; `options` are the pod operator's, empty for the local launcher."""
        super().__init__(**kwargs)
        self.block, self.place, self.planned_by, self.options = block, place, planned_by, dict(options)
        self._inner: Any = None

    @cached_property
    def planned(self) -> PlannedRun | None:
        return own_run(get_current_context()["ti"], self.planned_by)

    @property
    def title(self) -> str:
        return pod_title(self.planned.spec, what=self.planned.what) if self.planned else "no run"

    @cached_property
    def pod(self) -> dict[str, Any]:
        assert self.planned is not None, "pre_execute skips the task"
        return manifest(self.planned.spec, read_settings(), owner(), what=self.planned.what)

    def pre_execute(self, context: Context) -> None:
        if self.planned is None:
            raise AirflowSkipException("the plan has no run for this task: the last of several blocks is not full")
        if self.options:
            self.execution_timeout = timedelta(seconds=self._limit_s)

    @property
    def _limit_s(self) -> float:
        queue_s, start_s = self.options["schedule_timeout_seconds"], self.options["startup_timeout_seconds"]
        return task_limit_s(queue_s, start_s, self.pod["spec"]["activeDeadlineSeconds"])

    def execute(self, context: Context) -> Any:
        settings = read_settings()
        if settings.launcher is Launcher.LOCAL or not settings.deferrable:
            return self._delegate(settings).execute(context)
        arguments = {
            "manifest": self.pod,
            "options": self.options,
            "store": settings.store,
            "deadline": time.time() + self._limit_s,
        }
        timeout = timedelta(seconds=self._limit_s + TIMEOUT_MARGIN_S)
        self.defer(trigger=_Handed(arguments), method_name="trigger_reentry", timeout=timeout)

    def trigger_reentry(self, context: Context, event: dict[str, Any]) -> Any:
        """Hand a run that did not succeed to the pod operator, which determines the cause."""
        inner = self._delegate(read_settings())
        inner.unreadable = event.get("unreadable")
        return inner.execute(context) if event["status"] == NOT_MADE else inner.trigger_reentry(context, event)

    def on_kill(self) -> None:
        if self._inner is not None:
            self._inner.on_kill()

    def _delegate(self, settings: Settings) -> Any:
        if settings.launcher is Launcher.LOCAL:
            from trainbench.orchestration.local_operator import LocalPodOperator

            self._inner = LocalPodOperator(task_id=self.task_id, pod_template_dict=self.pod)
        else:
            from trainbench.orchestration.kubernetes_operator import BenchPodOperator

            self._inner = BenchPodOperator(
                task_id=self.task_id, pod_template_dict=self.pod, deferrable=settings.deferrable, **self.options
            )
        ExecutorSafeguard.tracker.set(self._inner)  # it runs as this task
        return self._inner


class _Handed(BaseTrigger):
    """The trigger's class path and arguments, which a worker passes to the triggerer without importing the trigger.

    `run` raises NotImplementedError on purpose: the triggerer makes and runs the real `RunTrigger`.
    """

    def __init__(self, arguments: dict[str, Any]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._arguments = arguments

    def serialize(self) -> tuple[str, dict[str, Any]]:
        return TRIGGER, self._arguments

    async def run(self) -> Any:
        raise NotImplementedError
        yield
