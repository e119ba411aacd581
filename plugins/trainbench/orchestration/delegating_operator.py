"""The operator of one pod: hands its manifest to the pod operator of the launcher.

It imports neither Airflow's pod operator nor a Kubernetes client, which would take most of the time of each worker's
process that reads the DAG: only a task that makes or collects a pod imports them.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import Any

from airflow.sdk import BaseOperator, Context
from airflow.sdk.bases.operator import ExecutorSafeguard

from trainbench.pods.machine_turns import MachineTurns
from trainbench.pods.time_limits import task_limit_s
from trainbench.settings.environment import Launcher, Settings, read_settings


class DelegatingOperator(BaseOperator):
    """Runs the pod of `pod_template_dict`, a manifest."""

    ui_color = "#d7f0e3"

    def __init__(self, *, options: Mapping[str, Any], pod_template_dict: Any = None, **kwargs: Any) -> None:
        """`options` are the Kubernetes pod operator's, empty for the local launcher."""
        super().__init__(**kwargs)
        self.options, self.pod_template_dict = dict(options), pod_template_dict
        self._inner: Any = None

    @property
    def pod(self) -> dict[str, Any]:
        manifest: dict[str, Any] = self.pod_template_dict
        return manifest

    def pre_execute(self, context: Context) -> None:
        if self.options:
            self.execution_timeout = timedelta(seconds=self.limit_s)

    @property
    def limit_s(self) -> float:
        """The longest that one try takes."""
        queue_s, start_s = self.options["schedule_timeout_seconds"], self.options["startup_timeout_seconds"]
        return task_limit_s(queue_s, start_s, self.pod["spec"]["activeDeadlineSeconds"])

    def execute(self, context: Context) -> Any:
        return self.delegate(read_settings()).execute(context)

    def trigger_reentry(self, context: Context, event: dict[str, Any]) -> Any:
        return self.delegate(read_settings()).trigger_reentry(context, event)

    def on_kill(self) -> None:
        if self._inner is not None:
            self._inner.on_kill()

    def turns(self, settings: Settings) -> MachineTurns | None:
        """How the pod shares this machine with others; None: its task does not run beside other pods' tasks."""
        return None

    def delegate(self, settings: Settings) -> Any:
        """The launcher's operator for the pod."""
        if settings.launcher is Launcher.LOCAL:
            from trainbench.orchestration.local_operator import LocalPodOperator

            self._inner = LocalPodOperator(task_id=self.task_id, pod_template_dict=self.pod, turns=self.turns(settings))
        else:
            from trainbench.orchestration.kubernetes_operator import BenchPodOperator

            self._inner = BenchPodOperator(
                task_id=self.task_id, pod_template_dict=self.pod, deferrable=settings.deferrable, **self.options
            )
        ExecutorSafeguard.tracker.set(self._inner)  # it runs as this task
        return self._inner
