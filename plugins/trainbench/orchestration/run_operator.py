"""The operator of one planned run: makes its manifest and hands it to the trigger, or to the launcher's own operator.

A task whose pod succeeds needs Airflow's pod operator only in the triggerer.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from datetime import timedelta
from functools import cached_property
from typing import Any, NamedTuple

from airflow.sdk import Context, get_current_context
from airflow.sdk.exceptions import AirflowSkipException

from trainbench.orchestration.delegating_operator import DelegatingOperator
from trainbench.orchestration.plan_tasks import owner
from trainbench.orchestration.planned_runs import PlannedRun, own_run
from trainbench.pods.machine_turns import MachineTurns
from trainbench.pods.manifests import manifest, pod_title
from trainbench.settings.environment import Launcher, Settings, read_settings

TRIGGER = "trainbench.orchestration.run_trigger.RunTrigger"
NOT_MADE = "not made"  # status of the event of a trigger that could not make its pod
TIMEOUT_MARGIN_S = 60.0  # the trigger itself ends the try before Airflow does


class RunOperator(DelegatingOperator):
    """Runs one planned run. Airflow's grid names each mapped task by its run's node, strategy and round."""

    def __init__(self, *, block: int, place: int, planned_by: str, options: Mapping[str, Any], **kwargs: Any) -> None:
        """`block` and `place` number the runs."""
        super().__init__(options=options, **kwargs)
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

    def execute(self, context: Context) -> Any:
        settings = read_settings()
        if settings.launcher is Launcher.LOCAL or not settings.deferrable:
            return super().execute(context)
        arguments = {
            "manifest": self.pod,
            "options": self.options,
            "store": settings.store,
            "deadline": time.time() + self.limit_s,
        }
        timeout = timedelta(seconds=self.limit_s + TIMEOUT_MARGIN_S)
        handed: Any = _Handed(arguments)
        self.defer(trigger=handed, method_name="trigger_reentry", timeout=timeout)

    def trigger_reentry(self, context: Context, event: dict[str, Any]) -> Any:
        """Hand a run that did not succeed to the pod operator, which determines the cause."""
        inner = self.delegate(read_settings())
        return inner.execute(context) if event["status"] == NOT_MADE else inner.trigger_reentry(context, event)


class _Handed(NamedTuple):
    """What a task runner reads of a trigger: class path and arguments. `RunTrigger` itself would be imported into
    each worker's process, with the Kubernetes client.
    """

    arguments: dict[str, Any]

    def serialize(self) -> tuple[str, dict[str, Any]]:
        return TRIGGER, self.arguments
