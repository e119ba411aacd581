"""Maps a pod's task in Airflow to its result, and a run to its task."""

from __future__ import annotations

import re
from typing import Any

from airflow.models.taskinstance import TaskInstance
from airflow.models.xcom import XComModel
from airflow.utils.session import create_session
from sqlalchemy import select

from bench_image.contract.frozen import ContractError
from bench_image.contract.result import RunResult
from bench_image.contract.spec import RunSpec
from trainbench.pods.manifests import pod_title
from trainbench.results.arrivals import ADDRESS
from trainbench.results.artefacts import open_store
from trainbench.results.collect import parse_payload
from trainbench.results.store_files import StoreError


def task_result(dag_id: str, dag_run_id: str, task_id: str, map_index: int) -> RunResult | None:
    """The result whose address the task returned, of 0.1.0 the result itself; None where it returned neither."""
    of_task = (
        XComModel.dag_id == dag_id,
        XComModel.run_id == dag_run_id,
        XComModel.task_id == task_id,
        XComModel.map_index == map_index,
        XComModel.key == "return_value",
    )
    with create_session() as session:
        payload = session.scalar(select(XComModel.value).where(*of_task).limit(1))
    try:
        return parse_payload(_stored(payload[ADDRESS]) if isinstance(payload, dict) and ADDRESS in payload else payload)
    except (ContractError, StoreError):
        return None


def _stored(address: object) -> bytes:
    """The file of this store with that campaign, run and name, whatever place the address names. Raises StoreError."""
    match = re.search(r"/campaigns/([^/]+)/runs/([^/]+)/([^/]+)$", str(address))
    if match is None:
        raise StoreError(f"{address!r:.200} is no address of a result")
    return open_store().read_run_file(*match.groups())


def task_of(dag_id: str, dag_run_id: str, spec: RunSpec, label: str | None) -> tuple[str, int] | None:
    """(task id, map index) of the run's pod, by its name in the grid; None where that is ambiguous. `label`: the work's
    name in the plan.
    """
    rendered: Any = TaskInstance.rendered_map_index
    query = select(TaskInstance.task_id, TaskInstance.map_index).where(
        TaskInstance.dag_id == dag_id,
        TaskInstance.run_id == dag_run_id,
        rendered == pod_title(spec, what=label),
    )
    with create_session() as session:
        rows = session.execute(query.limit(2)).all()
    return (rows[0].task_id, rows[0].map_index) if len(rows) == 1 else None
