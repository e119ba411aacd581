"""The operators of pods' tasks. They import neither Airflow's pod operator nor a Kubernetes client, which would take
most of the time of each worker's process that reads the DAG: a task whose pod succeeds needs them in the triggerer.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from functools import cached_property
from typing import Any

from airflow.sdk import BaseOperator, Context, get_current_context
from airflow.sdk.exceptions import AirflowSkipException

from trainbench.orchestration.plan_tasks import owner
from trainbench.orchestration.planned_runs import PlannedRun, own_run
from trainbench.orchestration.run_trigger import RunTrigger
from trainbench.pods.machine_turns import MachineTurns
from trainbench.pods.manifests import manifest, pod_title
from trainbench.pods.time_limits import task_limit_s
from trainbench.settings.environment import Launcher, Settings, read_settings


class ManifestOperator(BaseOperator):
    """Runs the pod of `pod_template_dict`, a manifest, by the configured launcher."""

    ui_color = "#d7f0e3"

    def __init__(self, *, options: Mapping[str, Any], pod_template_dict: Any = None, **kwargs: Any) -> None:
        """`options` are the Kubernetes pod operator's, empty for the local launcher."""
        super().__init__(**kwargs)
        self.options, self.pod_template_dict = dict(options), pod_template_dict
        self._launched: Any = None

    @property
    def pod(self) -> dict[str, Any]:
        made: dict[str, Any] = self.pod_template_dict
        return made

    def pre_execute(self, context: Context) -> None:
        if self.options:
            queue_s, start_s = self.options["schedule_timeout_seconds"], self.options["startup_timeout_seconds"]
            limit_s = task_limit_s(queue_s, start_s, self.pod["spec"]["activeDeadlineSeconds"])
            self.execution_timeout = timedelta(seconds=limit_s)

    def execute(self, context: Context) -> Any:
        settings = read_settings()
        if settings.launcher is Launcher.LOCAL:
            from trainbench.orchestration.local_operator import LocalPodTask

            self._launched = LocalPodTask(self.pod, self.log, self.turns(settings))
            return self._launched.to_its_end(context)
        if settings.deferrable:
            trigger = RunTrigger(self.pod, self.options, settings.store)
            self.defer(trigger=trigger, method_name="trigger_reentry", timeout=self.execution_timeout)
        return self._on_cluster().to_its_end(context)

    def trigger_reentry(self, context: Context, event: Mapping[str, Any]) -> None:
        """Go on with a pod that did not end well in the trigger."""
        self._on_cluster().to_its_end(context, event)

    def on_kill(self) -> None:
        if self._launched is not None:
            self._launched.on_kill()

    def turns(self, settings: Settings) -> MachineTurns | None:
        """How the pod shares this machine with others; None: its task does not run beside other pods' tasks."""
        return None

    def _on_cluster(self) -> Any:
        from trainbench.orchestration.kubernetes_operator import BenchPodOperator

        self._launched = BenchPodOperator(task_id=self.task_id, pod_template_dict=self.pod, **self.options)
        return self._launched


class RunOperator(ManifestOperator):
    """Runs one planned run. Airflow's grid names each mapped task by its run's node, strategy and round."""

    def __init__(self, *, block: int, place: int, planned_by: str, **kwargs: Any) -> None:
        """`block` and `place` number the runs."""
        super().__init__(**kwargs)
        self.block, self.place, self.planned_by = block, place, planned_by

    @cached_property
    def planned(self) -> PlannedRun | None:
        return own_run(get_current_context()["ti"], self.planned_by)

    def turns(self, settings: Settings) -> MachineTurns | None:
        if self.planned is None or self.max_active_tis_per_dagrun == 1:
            return None
        return MachineTurns(settings.store, self.planned.spec.identity.campaign_id, self.planned.slot)

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
        super().pre_execute(context)
