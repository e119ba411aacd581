"""The pages of one run: the report of a DAG run, a pod's figures, its raw result."""

from __future__ import annotations

import threading
from contextlib import suppress
from functools import lru_cache
from typing import Annotated, Any

from airflow.api_fastapi.auth.managers.models.resource_details import DagAccessEntity
from airflow.api_fastapi.core_api.security import requires_access_dag
from airflow.models.taskinstance import TaskInstance
from airflow.models.xcom import XComModel
from airflow.utils.session import create_session
from fastapi import APIRouter, Depends, HTTPException, Query, Request
from fastapi.responses import HTMLResponse, Response
from pydantic import BeforeValidator
from sqlalchemy import select

from bench_image.contract.frozen import ContractError
from bench_image.contract.parse import parse_result
from bench_image.contract.result import RunResult
from bench_image.contract.spec import RunSpec
from trainbench.pages.reads.queries import EVERYTHING
from trainbench.pages.reads.rows import RunPage
from trainbench.pages.reads.run_list import run_page
from trainbench.pages.reads.thread_pool import OwnRoute
from trainbench.pages.render.links import links
from trainbench.pages.render.listings import run_figures, stored_figures
from trainbench.pages.render.page import HEADERS, POLICY, policy_text, respond
from trainbench.pages.web.asked import Asked, stored_result, the_store
from trainbench.planning.plan import campaign_id
from trainbench.pods.manifests import pod_title
from trainbench.reporting import plots
from trainbench.reporting.report import InAirflow, report_html
from trainbench.results.arrivals import result_of
from trainbench.results.artefacts import Store
from trainbench.results.store_files import StoreError

Place = tuple[str | int, ...]  # of a task in Airflow's addresses, after "tasks"


def task_result(dag_id: str, dag_run_id: str, task_id: str, map_index: int) -> RunResult | None:
    """The result that the task returned, see `arrivals.result_of`; None where it returned none that can be read."""
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
        return result_of(the_store(), payload)
    except (ContractError, StoreError):
        return None


def task_of(dag_id: str, dag_run_id: str, spec: RunSpec, label: str | None) -> Place | None:
    """The task of the run's pod, by its name in the grid; None where that is ambiguous. `label`: the work's name in the
    plan.
    """
    rendered: Any = TaskInstance.rendered_map_index
    query = select(TaskInstance.task_id, TaskInstance.map_index).where(
        TaskInstance.dag_id == dag_id, TaskInstance.run_id == dag_run_id, rendered == pod_title(spec, what=label)
    )
    with create_session() as session:
        rows = session.execute(query.limit(2)).all()
    return _place(*rows[0]) if len(rows) == 1 else None


def _place(task_id: str, map_index: int) -> Place:
    return (task_id, "mapped", map_index) if map_index >= 0 else (task_id,)


# As for other pages, but with inline style.
REPORT_POLICY = {**POLICY, "style-src": "'unsafe-inline'", "form-action": "'none'"}
MAX_SHOWN_BYTES = 64_000_000  # 8,000 runs on one GPU each, which take a gigabyte of memory to render
_one_at_a_time = threading.Lock()  # so that several readers of a large report do not each hold it in memory


def stored_report(store: Store, campaign_id: str, suite: str, page: InAirflow) -> str | None:
    """HTML of the report; None: the campaign is another DAG's, as the ids of two DAGs' runs can make one folder's name.
    Raises StoreError.
    """
    stamp = store.campaign_stamp(campaign_id)
    if stamp[1] > MAX_SHOWN_BYTES:
        place = store.summary_address(campaign_id, "report.html")
        raise StoreError(f"The report of {campaign_id} is too large to be shown here; its file is {place}")
    with _one_at_a_time:
        return _rendered(store, campaign_id, suite, page, stamp)


@lru_cache(maxsize=8)
def _rendered(store: Store, campaign_id: str, suite: str, page: InAirflow, _stamp: tuple[float, int]) -> str | None:
    campaign = store.read_campaign(campaign_id)
    return report_html(campaign, plots.draw(campaign), page=page) if campaign.suite == suite else None


router = APIRouter(route_class=OwnRoute)
MAX_MAP_INDEX = 1_000_000
NOT_MAPPED = -1
# For a task that is not mapped, Airflow's page leaves the placeholder of the index in our tab's address.
MapIndex = Annotated[
    int,
    Query(ge=NOT_MAPPED, le=MAX_MAP_INDEX),
    BeforeValidator(lambda text: NOT_MAPPED if text == "{MAP_INDEX}" else text),
]
NO_REPORT = (
    "This run has not published its report. It appears here when the task publish has ended; until then, the tasks' "
    "logs show the progress.",
    "A DAG that runs no benchmark never has a report.",
)
NO_RESULT = (
    "This task has no result. A task that runs a benchmark pod has one when it has ended; if such a task failed, its "
    "log says why.",
    "The report of the DAG run states how each pod ended.",
)


@router.get("/dags/{dag_id}/runs/{run_id}", dependencies=[Depends(requires_access_dag("GET", DagAccessEntity.RUN))])
def report(request: Request, dag_id: str, run_id: str) -> Response:
    name, store = campaign_id(dag_id, run_id), the_store()
    to = links(request.scope)
    files = f"{to.up}results/{name}/{{run_id}}"
    address = InAirflow(to.static("pages.js"), f"{files}/result.json", f"{files}/logs/{{name}}")
    if not store.has_verdict(name) or (text := stored_report(store, name, dag_id, address)) is None:
        return respond(request, "message.html.j2", status=404, title="No report yet", texts=NO_REPORT)
    return HTMLResponse(text, headers={**HEADERS, "Content-Security-Policy": policy_text(REPORT_POLICY)})


@router.get(
    "/dags/{dag_id}/runs/{run_id}/tasks/{task_id}",
    dependencies=[
        Depends(requires_access_dag("GET", DagAccessEntity.RUN)),
        Depends(requires_access_dag("GET", DagAccessEntity.XCOM)),
    ],
)
def task(
    dag_id: str, run_id: str, task_id: str, map_index: MapIndex = NOT_MAPPED, asked: Asked = Depends()
) -> Response:
    """The result that a pod's task returned; it exists before the report."""
    result = task_result(dag_id, run_id, task_id, map_index)
    if result is None:
        about: dict[str, Any] = {
            "texts": NO_RESULT,
            "back": (links(asked.request.scope).report(dag_id, run_id), "The report"),
        }
        return respond(asked.request, "message.html.j2", status=404, title="No result here", **about)
    of = result.spec.identity
    known = asked.unchecked_pages.read(run_page, EVERYTHING, of.campaign_id, of.run_id)
    return _run(asked.request, result, dag_id, run_id, known, _place(task_id, map_index))


@router.get("/runs/{campaign}/{run_id}")
def run(campaign: str, run_id: str, asked: Asked = Depends()) -> Response:
    stored = _known(asked, campaign, run_id)
    result, dag_id, dag_run_id = stored_result(campaign, run_id), stored.run.dag_id, stored.run.dag_run_id
    place = task_of(dag_id, dag_run_id, result.spec, stored.label) if result and dag_run_id else None
    return _run(asked.request, result, dag_id, dag_run_id, stored, place)


@router.get("/results/{campaign}/{run_id}")
@router.get("/results/{campaign}/{run_id}/result.json")
def raw_result(campaign: str, run_id: str, asked: Asked = Depends()) -> Response:
    """The stored result.json of a run that the history has and this person may see; nothing that is no result."""
    _known(asked, campaign, run_id)
    try:
        stored = the_store().read_result_file(campaign, run_id)
        parse_result(stored)
    except (StoreError, ContractError):
        raise HTTPException(
            404, "The run's file has expired or is broken; the list of runs still has its figures."
        ) from None
    return Response(stored, media_type="application/json", headers=HEADERS)


@router.get("/results/{campaign}/{run_id}/logs/{name}")
def kept_log(campaign: str, run_id: str, name: str, asked: Asked = Depends()) -> Response:
    """The kept end of a pod's log, of a run that the history has and this person may see."""
    _known(asked, campaign, run_id)
    try:
        stored = the_store().read_log(campaign, run_id, name)
    except StoreError:
        raise HTTPException(404, "No log of this pod was kept, or its file has expired.") from None
    return Response(stored, media_type="text/plain; charset=utf-8", headers=HEADERS)


def _known(asked: Asked, campaign: str, run_id: str) -> RunPage:
    stored = asked.pages.read(run_page, EVERYTHING, campaign, run_id)
    if stored is None:
        raise HTTPException(404, "There is no such run.")
    return stored


def _run(
    request: Request,
    result: RunResult | None,
    dag_id: str,
    dag_run_id: str | None,
    known: RunPage | None,
    place: Place | None,
) -> Response:
    """The page of a run. `result`: None where its file has expired; `known`: from the history, None before it is
    recorded; `place`: of the pod's task; None: unknown.
    """
    logs: tuple[str, ...] = ()
    if known:
        with suppress(StoreError):  # they have expired or cannot be read
            logs = the_store().log_names(known.run.campaign_id, known.run.run_id)
    return respond(
        request,
        "run.html.j2",
        result=result,
        tables=run_figures(result) if result else (stored_figures(known.run),) if known else (),
        known=known,
        dag_id=dag_id,
        dag_run_id=dag_run_id,
        logs=logs,
        task=links(request.scope).airflow("dags", dag_id, "runs", dag_run_id, "tasks", *place) if place else None,
    )
