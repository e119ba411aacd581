"""The pages of one run: the report of a DAG run, a pod's figures, its raw result."""

from __future__ import annotations

from typing import Annotated

from airflow.api_fastapi.auth.managers.models.resource_details import DagAccessEntity
from airflow.api_fastapi.core_api.security import requires_access_dag
from fastapi import APIRouter, Depends, HTTPException, Query, Request
from fastapi.responses import HTMLResponse, Response
from pydantic import BeforeValidator

from bench_image.contract.frozen import ContractError
from bench_image.contract.result import RunResult
from trainbench.pages.reads.access import Reader, reader
from trainbench.pages.reads.queries import Pages
from trainbench.pages.reads.rows import RunPage
from trainbench.pages.reads.thread_pool import OwnRoute
from trainbench.pages.render.links import links
from trainbench.pages.render.page import HEADERS, asset_name, policy_text, respond
from trainbench.pages.render.run_figures import run_figures
from trainbench.pages.web.responses import kept_logs, pages_of, stored_result, the_store, visible
from trainbench.pages.web.stored_report import REPORT_POLICY, stored_report
from trainbench.pages.web.task_lookup import task_of, task_result
from trainbench.planning.plan import campaign_id
from trainbench.reporting.html import InAirflow
from trainbench.results.collect import parse_payload
from trainbench.results.store_files import StoreError

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
    address = InAirflow(to.static(asset_name("pages.js")), f"{files}/result.json", f"{files}/logs/{{name}}")
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
    request: Request,
    dag_id: str,
    run_id: str,
    task_id: str,
    map_index: MapIndex = NOT_MAPPED,
    who: Reader = Depends(reader),
) -> Response:
    """The result that a pod's task returned; it exists before the report."""
    result = task_result(dag_id, run_id, task_id, map_index)
    if result is None:
        back = links(request.scope).report(dag_id, run_id)
        return respond(
            request, "message.html.j2", status=404, title="No result here", texts=NO_RESULT, back=(back, "The report")
        )
    known = pages_of(who).run(result.spec.identity.campaign_id, result.spec.identity.run_id)
    return _run(request, result, dag_id, run_id, known, (task_id, map_index))


@router.get("/runs/{campaign}/{run_id}")
def run(request: Request, campaign: str, run_id: str, pages: Pages = Depends(visible)) -> Response:
    stored = pages.run(campaign, run_id)
    if stored is None:
        raise HTTPException(404, "There is no such run.")
    result, dag_id, dag_run_id = stored_result(campaign, run_id), stored.run.dag_id, stored.run.dag_run_id
    place = task_of(dag_id, dag_run_id, result.spec, stored.label) if result and dag_run_id else None
    return _run(request, result, dag_id, dag_run_id, stored, place)


@router.get("/results/{campaign}/{run_id}")
@router.get("/results/{campaign}/{run_id}/result.json")
def raw_result(campaign: str, run_id: str, pages: Pages = Depends(visible)) -> Response:
    """The stored result.json of a run that the history has and this person may see; nothing that is no result."""
    if pages.run(campaign, run_id) is None:
        raise HTTPException(404, "There is no such run.")
    try:
        stored = the_store().read_result_file(campaign, run_id)
        parse_payload(stored)
    except (StoreError, ContractError):
        raise HTTPException(
            404, "The run's file has expired or is broken; the list of runs still has its figures."
        ) from None
    return Response(stored, media_type="application/json", headers=HEADERS)


@router.get("/results/{campaign}/{run_id}/logs/{name}")
def kept_log(campaign: str, run_id: str, name: str, pages: Pages = Depends(visible)) -> Response:
    """The kept end of a pod's log, of a run that the history has and this person may see."""
    if pages.run(campaign, run_id) is None:
        raise HTTPException(404, "There is no such run.")
    try:
        stored = the_store().read_log(campaign, run_id, name)
    except StoreError:
        raise HTTPException(404, "No log of this pod was kept, or its file has expired.") from None
    return Response(stored, media_type="text/plain; charset=utf-8", headers=HEADERS)


def _run(
    request: Request,
    result: RunResult | None,
    dag_id: str,
    dag_run_id: str | None,
    known: RunPage | None,
    place: tuple[str, int] | None,
) -> Response:
    """The page of a run. `result`: None where its file has expired; `known`: from the history, None before it is
    recorded; `place`: the pod's task and map index; None: unknown.
    """
    return respond(
        request,
        "run.html.j2",
        result=result,
        tables=run_figures(result) if result else (),
        known=known,
        dag_id=dag_id,
        dag_run_id=dag_run_id,
        logs=kept_logs(known.run.campaign_id, known.run.run_id) if known else (),
        task=links(request.scope).airflow_task(dag_id, dag_run_id, *place) if place and dag_run_id else None,
    )
