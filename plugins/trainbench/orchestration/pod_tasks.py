"""The mapped pod tasks of a DAG: the configured launcher's operator, to be expanded over manifests."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from trainbench.pods.machine_turns import AT_ONCE
from trainbench.pods.manifests import TITLE
from trainbench.pods.time_limits import GRACE_S
from trainbench.settings.environment import Launcher, Settings

LABEL = "{{ task.title }}"
RANK_LABEL = "{{ task.pod_template_dict['metadata']['annotations']['" + TITLE + "'] }}"
RETRIES = 2  # for failures that a new pod may cure: a lost node, a preemption, an API server without answer
RETRY_DELAY = timedelta(seconds=15)
GANG_RETRY_DELAY = timedelta(seconds=5)


def pods(task_id: str, settings: Settings, planned_by: str, *, in_turn: bool = False) -> Any:
    """The mapped task of independent pods, to be expanded over blocks and places. A pod that the cluster took away is
    repeated. `in_turn`: one after another; deferred tasks count too. On one machine the launcher lets those start that
    may share it.
    """
    from trainbench.orchestration.run_operator import RunOperator

    is_local = settings.launcher is Launcher.LOCAL
    most = 1 if in_turn else AT_ONCE if is_local else None
    limit = {"max_active_tis_per_dagrun": most} if most else {}
    retries = {} if is_local else {"retries": RETRIES, "retry_delay": RETRY_DELAY}
    options = {} if is_local else _options(settings)
    return RunOperator.partial(
        task_id=task_id, map_index_template=LABEL, planned_by=planned_by, options=options, **limit, **retries
    )


def gang(task_id: str, settings: Settings) -> Any:
    """The mapped task of one gang's pods, all at once, to be expanded over their manifests. No pod is made anew alone;
    a task that Airflow lost reattaches to its pod.
    """
    from trainbench.orchestration.run_operator import ManifestOperator

    if settings.launcher is Launcher.LOCAL:
        return ManifestOperator.partial(task_id=task_id, map_index_template=RANK_LABEL, options={})
    return ManifestOperator.partial(
        task_id=task_id,
        map_index_template=RANK_LABEL,
        options=_options(settings),
        retries=RETRIES,
        retry_delay=GANG_RETRY_DELAY,
    )


def _options(settings: Settings) -> dict[str, Any]:
    """Arguments of the pod operator for every pod of this installation."""
    return {
        "kubernetes_conn_id": settings.kubernetes_connection,
        "do_xcom_push": False,  # the result is in the log
        "termination_grace_period": GRACE_S,
        "schedule_timeout_seconds": settings.queue_timeout_s,
        "startup_timeout_seconds": settings.start_timeout_s,
    }
