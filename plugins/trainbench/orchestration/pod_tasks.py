"""The tasks of pods, mapped over runs or manifests, and their operators.

This module imports neither Airflow's pod operator nor a Kubernetes client, which would take most of the time of each
worker's process that reads the DAG: a task whose pod succeeds needs them in the triggerer.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from functools import cached_property, partial
from typing import Any

from airflow.sdk import BaseOperator, Context, get_current_context
from airflow.sdk.exceptions import AirflowFailException, AirflowSkipException

from trainbench.orchestration.plan_tasks import PlannedRun, owner, run_at
from trainbench.orchestration.run_trigger import RunTrigger
from trainbench.pods.local_pods import LocalPod
from trainbench.pods.machine_turns import AT_ONCE, MachineTurns
from trainbench.pods.manifests import manifest, pod_title
from trainbench.pods.pod_end import END
from trainbench.pods.pod_log import MAX_LINE
from trainbench.settings.environment import Launcher, Settings, read_settings


def _run_local(pod: LocalPod, manifest: Mapping[str, Any], log: Any, context: Context) -> Any:
    """Run the pod, store its result, and return the address as XCom, which a failed run's task pushes too."""
    from trainbench.results.arrivals import keep_log, store_arrival
    from trainbench.results.artefacts import open_store

    outcome = pod.run(lambda line: log.info(line[:MAX_LINE]))
    store = open_store(read_settings().store)
    keep_log(store, manifest, outcome.log, log.warning)
    if outcome.result_text is None:
        assert outcome.end
        context["ti"].xcom_push(key=END, value=outcome.end.model_dump(mode="json"))
        raise AirflowFailException(outcome.end.message)
    arrival = store_arrival(store, manifest, outcome.result_text, datetime.now(UTC))
    assert arrival is not None, "the manifest is ours"
    if arrival.failure or outcome.exit_code != 0:
        context["ti"].xcom_push(key="return_value", value=arrival.for_xcom)
        raise AirflowFailException(arrival.failure or f"exit code {outcome.exit_code}: see the log")
    return arrival.for_xcom


RETRIES = 2  # for failures that a new pod may cure: a lost node, a preemption, an API server without answer
RETRY_DELAY = timedelta(seconds=15)
AFTER_PODS = timedelta(minutes=15)  # of a DAG run's time, for release, judgement and report


def pods(task_id: str, settings: Settings, planned_by: str, *, in_turn: bool = False) -> Any:
    """The mapped task of independent pods, to be expanded over blocks and places. A pod that the cluster took away is
    repeated. `in_turn`: one after another; deferred tasks count too. On one machine the launcher lets those start that
    may share it.
    """
    most = 1 if in_turn else AT_ONCE if settings.launcher is Launcher.LOCAL else None
    return gangs(task_id, settings, planned_by, max_active_tis_per_dagrun=most)


def gangs(task_id: str, settings: Settings, planned_by: str, **more: Any) -> Any:
    """The mapped task of the pods of gangs, all at once, to be expanded over the runs and their ranks. No pod is made
    anew alone; a task that Airflow lost reattaches to its pod.
    """
    more |= pod_options(settings)
    return RunOperator.partial(task_id=task_id, planned_by=planned_by, map_index_template="{{ task.title }}", **more)


def pod_options(settings: Settings) -> dict[str, Any]:
    """Arguments of a task of pods: the Kubernetes pod operator's, none for the local launcher, and its retries."""
    if settings.launcher is Launcher.LOCAL:
        return {"options": {}}
    options = {
        "kubernetes_conn_id": settings.kubernetes_connection,
        "do_xcom_push": False,  # the result is in the log
        "schedule_timeout_seconds": settings.queue_timeout_s,
        "startup_timeout_seconds": settings.start_timeout_s,
    }
    return {"options": options, "retries": RETRIES, "retry_delay": RETRY_DELAY}


class ManifestOperator(BaseOperator):
    """Runs the pod of a manifest, by the configured launcher."""

    ui_color = "#d7f0e3"

    def __init__(self, *, options: Mapping[str, Any], **kwargs: Any) -> None:
        """`options` are the Kubernetes pod operator's, empty for the local launcher."""
        super().__init__(**kwargs)
        self.options = dict(options)
        self._end: Callable[[], None] = lambda: None  # what ends the pod of this process

    @property
    @abstractmethod
    def pod(self) -> dict[str, Any]:
        """The manifest."""

    def pre_execute(self, context: Context) -> None:
        """End this try before its DAG run ends: it ends by itself, see `time_limits`, unless a library hangs."""
        whole = context["dag"].dagrun_timeout
        if self.options and whole:
            began = context["dag_run"].start_date or context["dag_run"].run_after
            self.execution_timeout = max(began + whole - datetime.now(UTC) - AFTER_PODS, timedelta(minutes=1))

    def execute(self, context: Context) -> Any:
        settings = read_settings()
        if settings.launcher is Launcher.LOCAL:
            local = LocalPod(self.pod, settings.local_image, self.turns(settings))
            self._end = partial(local.stop, "the task was stopped")
            return _run_local(local, self.pod, self.log, context)
        if settings.deferrable:
            trigger = RunTrigger({**self.options, "pod_template_dict": self.pod, "store": settings.store})
            self.defer(trigger=trigger, method_name="trigger_reentry", timeout=self.execution_timeout)
        return self.trigger_reentry(context)

    def trigger_reentry(self, context: Context, event: Mapping[str, Any] | None = None) -> None:
        """Run the pod in this worker. `event`: of the trigger in which it did not end well."""
        from trainbench.orchestration.kubernetes_operator import BenchPodOperator

        operator = BenchPodOperator(task_id=self.task_id, pod_template_dict=self.pod, **self.options)
        self._end = operator.on_kill
        operator.to_its_end(context, event)

    def on_kill(self) -> None:
        self._end()

    def turns(self, settings: Settings) -> MachineTurns | None:
        """How the pod shares this machine with others; None: its task does not run beside other pods' tasks."""
        return None


class RunOperator(ManifestOperator):
    """Runs one pod of a planned run. Airflow's grid names each mapped task by its run's node, strategy and round."""

    def __init__(
        self, *, planned_by: str, block: int = 0, place: int = 0, run: int | None = None, rank: int = 0, **kwargs: Any
    ) -> None:
        """`block` and `place` number independent runs; of gangs `run` is the gang's number, `rank` that of the pod."""
        super().__init__(**kwargs)
        self.planned_by, self.block, self.place, self.run_number, self.rank = planned_by, block, place, run, rank

    @cached_property
    def planned(self) -> PlannedRun | None:
        ti: Any = get_current_context()["ti"]
        return run_at(ti, self.planned_by, ti.map_index if self.run_number is None else self.run_number)

    def turns(self, settings: Settings) -> MachineTurns | None:
        if self.planned is None or self.run_number is not None or self.max_active_tis_per_dagrun == 1:
            return None
        return MachineTurns(settings.store, self.planned.spec.identity.campaign_id, self.planned.slot)

    @property
    def title(self) -> str:
        return pod_title(self.planned.spec, self.rank, self.planned.what) if self.planned else "no run"

    @cached_property
    def pod(self) -> dict[str, Any]:
        assert self.planned is not None, "pre_execute skips the task"
        return manifest(self.planned.spec, read_settings(), owner(), self.rank, self.planned.what)

    def pre_execute(self, context: Context) -> None:
        if self.planned is None:
            raise AirflowSkipException("the plan has no run for this task: the last of several blocks is not full")
        super().pre_execute(context)
