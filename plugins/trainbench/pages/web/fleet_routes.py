"""The pages over many runs: the fleet, a node, strategies, costs, the list of runs."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any, Literal

from airflow.api_fastapi.auth.managers.models.resource_details import DagAccessEntity
from airflow.api_fastapi.core_api.security import requires_access_dag
from fastapi import APIRouter, Depends, Query, Request
from fastapi.responses import Response

from trainbench.core.csv_cells import lines
from trainbench.core.tables import Table
from trainbench.core.verdicts import Why
from trainbench.history.baselines import MAX_WHY
from trainbench.pages.reads.access import Reader, reader
from trainbench.pages.reads.queries import Pages
from trainbench.pages.reads.rows import NodePage, RunSort, StrategyRow
from trainbench.pages.reads.thread_pool import OwnRoute
from trainbench.pages.render import charts, listings
from trainbench.pages.render.form import DAYS, FilterForm, filter_form
from trainbench.pages.render.links import links
from trainbench.pages.render.listings import glossary_tables, gpu_table
from trainbench.pages.render.page import respond
from trainbench.pages.web.notice_routes import may_change
from trainbench.pages.web.responses import (
    MAX_PAGE,
    Format,
    csv_of,
    csv_pieces,
    filtered_page,
    pages_of,
    stored_result,
    visible,
)
from trainbench.settings.environment import read_settings

router = APIRouter(route_class=OwnRoute)


@router.get("/glossary")
def glossary(request: Request, output: Format = Query("html", alias="format"), table: str = "states") -> Response:
    if output == "csv":
        return csv_of(table, glossary_tables())
    return respond(request, "glossary.html.j2", tables=glossary_tables())


FleetTable = Literal["heat", "nodes", "open", "closed"]
NO_NODE = "Nothing is known of this node in this time with these filters."
MAX_WORKS_SHOWN = 40
MAX_CARDS = 12
MAX_CLOSED_SHOWN = 50


@router.get("/")
def fleet(
    request: Request,
    page: int = Query(1, ge=1, le=MAX_PAGE),
    output: Format = Query("html", alias="format"),
    table: FleetTable = "heat",
    form: FilterForm = Depends(filter_form),
    pages: Pages = Depends(visible),
    who: Reader = Depends(reader),
) -> Response:
    if output == "csv":
        return _fleet_csv(request, pages, form, table)
    return _fleet(request, pages, form, page, None, who)


@router.get("/dags/{dag_id}", dependencies=[Depends(requires_access_dag("GET", DagAccessEntity.RUN))])
def fleet_of_dag(
    request: Request,
    dag_id: str,
    page: int = Query(1, ge=1, le=MAX_PAGE),
    output: Format = Query("html", alias="format"),
    table: FleetTable = "heat",
    form: FilterForm = Depends(filter_form),
    who: Reader = Depends(reader),
) -> Response:
    """The same page of one DAG's campaigns: a tab of that DAG."""
    pages = Pages(pages_of(who).engine, who.dag_ids & {dag_id})
    if output == "csv":
        return _fleet_csv(request, pages, form, table)
    return _fleet(request, pages, form, page, dag_id, who)


@router.get("/nodes/{node}")
def node(
    request: Request,
    node: str,
    output: Format = Query("html", alias="format"),
    table: str = "events",
    form: FilterForm = Depends(filter_form),
    pages: Pages = Depends(visible),
    who: Reader = Depends(reader),
) -> Response:
    node_page = pages.node(node, form.filters, datetime.now(UTC), read_settings().fresh)
    to = links(request.scope, form.query)
    if node_page is None:
        back = (links(request.scope).node(node, days=DAYS[-1]), f"The last {DAYS[-1]} days, without filters")
        return respond(request, "message.html.j2", status=404, title="Nothing known", texts=(NO_NODE,), back=back)
    events = listings.events_table(node_page.events)
    latest = listings.latest_table(node_page.series)
    gpus, gpus_at = _latest_gpus(node_page)
    cut = output == "html"
    points = [listings.points_table(series, n, to, cut=cut) for n, series in enumerate(node_page.series, start=1)]
    if output == "csv":
        return csv_of(table, [events, latest, *points, *([gpus] if gpus else [])])
    works = [
        {"series": series, "table": points[n], "figure": charts.node_chart(series, node_page.events)}
        for n, series in enumerate(node_page.series)
    ]
    return filtered_page(
        request,
        "node.html.j2",
        form,
        pages,
        node_page=node_page,
        works=works,
        latest=latest,
        events=events,
        gpus=gpus,
        gpus_at=gpus_at,
        limits=charts.limits_of_last(node_page.series),
        may_accept=may_change(pages, who, node),
        may_revoke_all=may_change(pages, who, None),
        max_reason=MAX_WHY,
    )


def _latest_gpus(node_page: NodePage) -> tuple[Table | None, datetime | None]:
    """The figures of each GPU in the node's latest run, and its time; None without a GPU or where its file expired."""
    latest = max(
        (p for series in node_page.series for p in series.points if p.run_id), key=lambda p: p.at, default=None
    )
    result = stored_result(latest.campaign_id, latest.run_id) if latest and latest.run_id else None
    has_gpus = result is not None and bool(result.telemetry.gpus)
    return (gpu_table(result) if result and has_gpus else None), (latest.at if latest else None)


@router.get("/strategies")
def strategies(
    request: Request,
    output: Format = Query("html", alias="format"),
    form: FilterForm = Depends(filter_form),
    pages: Pages = Depends(visible),
) -> Response:
    compared_rows = pages.strategies(form.filters)
    if output == "csv":
        return csv_pieces("strategies", [listings.strategies_csv(compared_rows.rows)])
    works: dict[tuple[Any, ...], list[StrategyRow]] = {}
    for row in compared_rows.rows:
        work = (row.model, row.recipe, row.gpu_name, row.preset, row.micro_batch_size, row.seq_length, row.work_key)
        works.setdefault(work, []).append(row)
    compared = sorted(works.values(), key=lambda rows: len(rows) < 2)  # a strategy alone compares nothing
    shown = [(rows[0], listings.answer(rows), listings.strategies_table(rows)) for rows in compared[:MAX_WORKS_SHOWN]]
    return filtered_page(
        request,
        "strategies.html.j2",
        form,
        pages,
        works=shown,
        left_out=len(compared) - len(shown),
        is_cut=compared_rows.is_cut,
    )


@router.get("/costs")
def costs(
    request: Request,
    output: Format = Query("html", alias="format"),
    table: Literal["months", "dags", "works"] = "months",
    form: FilterForm = Depends(filter_form),
    pages: Pages = Depends(visible),
) -> Response:
    totals = pages.costs(form.filters)
    tables = (
        listings.costs_table(totals.months, "months", "By month", "month"),
        listings.costs_table(totals.dags, "dags", "By DAG", "DAG"),
        listings.costs_table(totals.works, "works", "By work", "work"),
    )
    if output == "csv":
        return csv_of(table, tables)
    return filtered_page(
        request,
        "costs.html.j2",
        form,
        pages,
        total=totals.total,
        imported=totals.imported,
        tables=tables,
    )


@router.get("/runs")
def runs(
    request: Request,
    page: int = Query(1, ge=1, le=MAX_PAGE),
    sort: RunSort = RunSort.NEWEST,
    output: Format = Query("html", alias="format"),
    form: FilterForm = Depends(filter_form),
    pages: Pages = Depends(visible),
) -> Response:
    if output == "csv":
        return csv_pieces("runs", pages.runs_csv(form.filters))
    run_list = pages.runs(form.filters, page, sort)
    table = listings.runs_table(run_list.rows, sort, links(request.scope, form.query))
    return filtered_page(request, "runs.html.j2", form, pages, run_list=run_list, sort=sort, content=table)


def _fleet(request: Request, pages: Pages, form: FilterForm, page: int, dag_id: str | None, who: Reader) -> Response:
    settings = read_settings()
    with pages.at_once() as seen:
        overview = seen.overview(form.filters, form.today, datetime.now(UTC), settings.fresh)
        became_slower = any(node.why is Why.CHANGED for node in overview.states)
        notices = seen.open_notices(form.filters).rows
        of_node = {notice.node: notice for notice in reversed(notices)}  # of two DAGs' notices the more urgent one
        return filtered_page(
            request,
            "fleet.html.j2",
            form,
            seen,
            overview=overview,
            now_of={node.node: node for node in overview.states},
            cards=[(nodes, of_node.get(nodes[0].node) if len(nodes) == 1 else None) for nodes in overview.unwell],
            alarms=[notice for notice in notices if not notice.node],
            heat=seen.heat_map(form.filters, form.today, form.days, page),
            closed=seen.closed_notices(form.filters, MAX_CLOSED_SHOWN),
            most=MAX_CARDS,
            dag_id=dag_id,
            node_check=f"{settings.dag_prefix}node_consistency",
            may_accept_all=became_slower and may_change(seen, who, None),
            max_reason=MAX_WHY,
        )


def _fleet_csv(request: Request, pages: Pages, form: FilterForm, table: FleetTable) -> Response:
    if table == "heat":
        return csv_pieces("heat", _heat(pages, form))
    to = links(request.scope)
    notices = pages.closed_notices(form.filters) if table == "closed" else pages.open_notices(form.filters)
    if table == "nodes":
        states = pages.overview(form.filters, form.today, datetime.now(UTC), read_settings().fresh).states
        return csv_of(table, [listings.states_table(states, notices.rows, to)])
    return csv_of(table, [listings.notices_table(notices.rows, to, table, table)])


def _heat(pages: Pages, form: FilterForm) -> Iterator[str]:
    yield lines([listings.HEAT_COLUMNS])
    yield from pages.heat_csv(form.filters, form.today, form.days)
