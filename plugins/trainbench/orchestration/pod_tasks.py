"""The mapped pod tasks of a DAG: the configured launcher's operator, to be expanded over manifests."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from trainbench.pods.manifests import TITLE
from trainbench.pods.time_limits import GRACE_S
from trainbench.settings.environment import Launcher, Settings

LABEL = "{{ task.pod_template_dict['metadata']['annotations']['" + TITLE + "'] }}"
RETRIES = 2  # for what a new pod may cure: a lost node, a preemption, an API server that did not answer
RETRY_DELAY = timedelta(seconds=15)
GANG_RETRY_DELAY = timedelta(seconds=5)


def pods(task_id: str, settings: Settings, *, in_turn: bool = False) -> Any:
    """Independent pods, each repeated when the cluster took it away. `in_turn`: one after another in their order, as
    always on one machine; Airflow counts the deferred ones too.
    """
    if settings.launcher is Launcher.LOCAL:
        return _local(task_id, max_active_tis_per_dagrun=1)
    limit = {"max_active_tis_per_dagrun": 1} if in_turn else {}
    return _on_cluster(task_id, settings, retries=RETRIES, retry_delay=RETRY_DELAY, **limit)


def gang(task_id: str, settings: Settings) -> Any:
    """The pods of one gang, all at once. None is made anew alone; a task that Airflow lost finds its pod again."""
    if settings.launcher is Launcher.LOCAL:
        return _local(task_id)
    return _on_cluster(task_id, settings, retries=RETRIES, retry_delay=GANG_RETRY_DELAY)


def _local(task_id: str, **more: Any) -> Any:
    from trainbench.orchestration.local_operator import LocalPodOperator

    return LocalPodOperator.partial(task_id=task_id, map_index_template=LABEL, **more)


def _on_cluster(task_id: str, settings: Settings, **more: Any) -> Any:
    from trainbench.orchestration.kubernetes_operator import BenchPodOperator

    return BenchPodOperator.partial(
        task_id=task_id,
        map_index_template=LABEL,
        kubernetes_conn_id=settings.kubernetes_connection,
        deferrable=settings.deferrable,
        do_xcom_push=True,
        get_logs=True,
        on_finish_action="delete_pod",  # the task's log has the pod's, its events and its containers' ends
        termination_grace_period=GRACE_S,
        schedule_timeout_seconds=settings.queue_timeout_s,
        startup_timeout_seconds=settings.start_timeout_s,
        log_events_on_failure=True,
        log_pod_spec_on_failure=False,  # hundreds of lines, with every environment variable
        **more,
    )
