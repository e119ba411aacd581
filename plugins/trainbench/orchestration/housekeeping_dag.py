"""Builds the DAG `housekeeping`: leaked pods and expired artefacts, listed daily, deleted only on request."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from functools import cache
from typing import TYPE_CHECKING, Any

from airflow.sdk import DAG, Param, get_current_context, task
from airflow.sdk.exceptions import AirflowException, AirflowFailException

from trainbench.orchestration.dag_ids import our_dag
from trainbench.settings.environment import MAX_RETENTION_DAYS, Housekeeping, Launcher, SettingsError, read_settings

if TYPE_CHECKING:
    from trainbench.cluster.housekeeping import Liveness, Swept
    from trainbench.pods.manifests import Owner

SCHEDULE = "30 6 * * *"  # after the nightly check
POD_RETRIES, POD_RETRY_DELAY = 6, timedelta(minutes=5)
LIVE_STATES = ["queued", "running"]
LOG_WIDTH = 160
DOC = """\
**Which pods and artefacts did benchmarks leave behind?** It touches only what carries this installation's labels, or
lies in the folder of a campaign or a cost report.

| task | finds |
|---|---|
| `leaked_pods` | pods whose DAG run is over, and ended pods past the days that they are kept |
| `expired_artefacts` | campaigns and cost reports that were last changed longer ago than artefacts are kept |

Started by hand, it deletes if `delete` is ticked. By schedule, it deletes what `TRAINBENCH_HOUSEKEEPING` says:
`release`, the default, pods that still hold or await GPUs though their DAG run is over, because the run's own task
`release` failed; `delete` ended pods and expired artefacts too; `report` nothing.
`TRAINBENCH_RETENTION_DAYS` is the number of days that artefacts are kept. Pods of runs that this Airflow does not know,
and pods that name no run, are reported and left alone. Rows of the history are never deleted.
"""


def build_housekeeping(name: str) -> DAG:
    """The DAG. Its two tasks are independent: without a cluster, artefacts still expire."""
    settings = read_settings()
    with our_dag(
        name,
        settings,
        "Housekeeping",
        DOC,
        SCHEDULE,
        dagrun_timeout=timedelta(hours=2),
        tags=["trainbench", "upkeep"],
        params=_form(settings.retention_days),
    ) as dag:
        leaked_pods()
        expired_artefacts()
    return dag


def _form(retention_days: int) -> dict[str, Param]:
    tick = "Off: only list what would be deleted. Try that first."
    return {
        "delete": Param(False, type="boolean", title="Delete", description_md=tick),
        "retention_days": Param(
            retention_days,
            type="integer",
            minimum=0,
            maximum=MAX_RETENTION_DAYS,
            title="Days that artefacts are kept",
            description_md="Since a campaign or a cost report was last changed. 0: for ever.",
        ),
    }


@task(task_id="leaked_pods", retries=POD_RETRIES, retry_delay=POD_RETRY_DELAY)
def leaked_pods() -> dict[str, Any]:
    """Delete or list leaked pods; return their names. Retried when the API server does not answer, because a leaked pod
    holds GPUs until the next day.
    """
    from trainbench.cluster.housekeeping import sweep_pods
    from trainbench.cluster.kubernetes_api import ClusterError, Unreachable, open_cluster
    from trainbench.pods.manifests import installation_labels
    from trainbench.results.artefacts import open_store
    from trainbench.results.store_files import StoreError

    context, settings = get_current_context(), read_settings()
    if settings.launcher is Launcher.LOCAL:
        print("the local launcher leaves no pods")  # noqa: T201 - goes to the task's log
        return {}
    try:
        cluster, store = open_cluster(settings), open_store(settings.store)
        labels, liveness = installation_labels(settings), _liveness(context["ti"])
        swept = sweep_pods(cluster, labels, liveness, _mode(context), store, datetime.now(UTC))
    except Unreachable as error:
        raise AirflowException(str(error)) from None
    except (ClusterError, StoreError) as error:
        raise AirflowFailException(str(error)) from None
    return _logged(swept, "pod")


@task(task_id="expired_artefacts")
def expired_artefacts() -> dict[str, Any]:
    """Delete or list expired artefacts; return their names."""
    from trainbench.cluster.housekeeping import sweep_artefacts
    from trainbench.results.artefacts import open_store
    from trainbench.results.store_files import StoreError

    context = get_current_context()
    store = open_store(read_settings().store)
    try:
        deletes = _mode(context) is Housekeeping.DELETE
        swept = sweep_artefacts(store, context["params"]["retention_days"], deletes, datetime.now(UTC))
    except StoreError as error:
        raise AirflowFailException(str(error)) from None
    return _logged(swept, "folder")


def _mode(context: Any) -> Housekeeping:
    """Whether to delete: by the form in a run started by hand, else by the installation's setting."""
    if context["dag_run"].run_type != "scheduled":
        return Housekeeping.DELETE if context["params"]["delete"] else Housekeeping.REPORT
    try:
        return read_settings().housekeeping
    except SettingsError as error:
        raise AirflowFailException(str(error)) from None


def _liveness(ti: Any) -> Callable[[Owner], Liveness]:
    """A reader of DAG runs' states from Airflow, one request for each run. Without an answer nothing is deleted."""
    from trainbench.cluster.housekeeping import Liveness

    @cache
    def liveness(owner: Owner) -> Liveness:
        run = {"dag_id": owner.dag_id, "run_ids": [owner.dag_run_id]}
        try:
            if ti.get_dr_count(**run, states=LIVE_STATES):
                return Liveness.LIVE
            return Liveness.ENDED if ti.get_dr_count(**run) else Liveness.NOT_FOUND
        except Exception as error:
            print(f"the state of {owner.dag_run_id} of {owner.dag_id} is not known: {error}")  # noqa: T201 - task log
            return Liveness.NOT_KNOWN

    return liveness


def _logged(swept: Sequence[Swept], noun: str) -> dict[str, Any]:
    """Log the table and its summary. Raises when a pod or file that should be gone is left."""
    from rich.console import Console

    from trainbench.cluster.housekeeping import faults, names_by_outcome, summary, table
    from trainbench.reporting.terminal import Fitting

    console = Console(width=LOG_WIDTH, color_system=None)
    if (content := table(swept)).rows:
        console.print(Fitting(content))
    console.print(summary(swept, noun), markup=False, highlight=False)
    if left := faults(swept):
        raise AirflowFailException(left)
    return names_by_outcome(swept)
