"""The pages over many runs: the fleet, a node, strategies, costs, the list of runs; and the glossary."""

from __future__ import annotations

from typing import Any

from airflow.api_fastapi.auth.managers.models.resource_details import DagAccessEntity
from airflow.api_fastapi.core_api.security import requires_access_dag
from fastapi import APIRouter, Depends, Request
from fastapi.responses import Response

from trainbench.core.states import STATE_WORDS
from trainbench.core.user_error import MAX_REASON
from trainbench.core.verdicts import State, Why
from trainbench.judging.noise import one_run_pct
from trainbench.pages.reads import comparisons
from trainbench.pages.reads import fleet as fleet_reads
from trainbench.pages.reads.filters import FAILED
from trainbench.pages.reads.node_trends import node_page
from trainbench.pages.reads.notices import closed_notices, open_notices
from trainbench.pages.reads.queries import Pages, choices
from trainbench.pages.reads.run_list import runs_csv, runs_page
from trainbench.pages.reads.thread_pool import OwnRoute
from trainbench.pages.render import charts, listings
from trainbench.pages.render import strategies as strategy_tables
from trainbench.pages.render.links import links
from trainbench.pages.render.page import respond
from trainbench.pages.web.asked import DAYS, Asked, csv_of, csv_pieces, stored_result
from trainbench.pages.web.notice_routes import may_change
from trainbench.reporting.glossary import tables as glossary_tables
from trainbench.settings.environment import read_settings

router = APIRouter(route_class=OwnRoute)
NO_NODE = "Nothing is known of this node in this time with these filters."
RUN_STATES = {FAILED: "failed run"} | {each.value: word for each, word in STATE_WORDS.items()}
del RUN_STATES[State.ACKNOWLEDGED]  # which a run does not know
MAX_WORKS_SHOWN = 40
MAX_CARDS = 12
MAX_CLOSED_SHOWN = 50


@router.get("/glossary")
def glossary(request: Request) -> Response:
    return respond(request, "glossary.html.j2", tables=glossary_tables())


@router.get("/")
def fleet(asked: Asked = Depends()) -> Response:
    return _fleet(asked, asked.pages, None)


@router.get("/dags/{dag_id}", dependencies=[Depends(requires_access_dag("GET", DagAccessEntity.RUN))])
def fleet_of_dag(dag_id: str, asked: Asked = Depends()) -> Response:
    """The same page of one DAG's campaigns: a tab of that DAG."""
    return _fleet(asked, Pages(asked.unchecked_pages.engine, asked.who.dag_ids & {dag_id}), dag_id)


def _fleet(asked: Asked, pages: Pages, dag_id: str | None) -> Response:
    settings, today = read_settings(), asked.now.date()
    with pages.reading(asked.filters) as here:
        overview = fleet_reads.overview(*here, today, asked.now, settings.fresh)
        notices = open_notices(*here).rows
        states = list(filter(asked.shows, overview.states))
        shown = {node.node for node in states} if asked.filters.state else None
        if asked.is_csv and asked.table in (None, "heat"):
            return csv_pieces("heat", fleet_reads.heat_csv(*here, today, asked.days, shown))
        if asked.is_csv:
            return csv_of(asked.table, [listings.states_table(states, notices, links(asked.request.scope))])
        closed = closed_notices(*here, MAX_CLOSED_SHOWN)
        heat = fleet_reads.heat_map(*here, today, asked.days, asked.page, shown)
        known = choices(*here)
    of_node = {notice.node: notice for notice in reversed(notices)}  # of two DAGs' notices the more urgent one
    became_slower = any(node.why is Why.CHANGED for node in overview.states)
    return asked.answer(
        "fleet.html.j2",
        known,
        overview=overview,
        changes=listings.changes(notices, closed.rows, asked.now) if overview.states else "",
        now_of={node.node: node for node in overview.states},
        cards=[
            (nodes, of_node.get(nodes[0].node) if len(nodes) == 1 else None)
            for nodes in overview.unwell
            if asked.shows(nodes[0])
        ],
        alarms=[notice for notice in notices if not (notice.node or asked.filters.state)],
        heat=heat,
        closed=closed,
        most=MAX_CARDS,
        dag_id=dag_id,
        states=STATE_WORDS,
        node_check=f"{settings.dag_prefix}node_consistency",
        may_accept_all=became_slower and may_change(pages, asked.who, None),
        max_reason=MAX_REASON,
    )


@router.get("/nodes/{node}")
def node(node: str, asked: Asked = Depends()) -> Response:
    page = asked.read(node_page, node, asked.now, read_settings().fresh)
    if page is None:
        back = (links(asked.request.scope).node(node, days=DAYS[-1]), f"The last {DAYS[-1]} days, without filters")
        texts: dict[str, Any] = {"title": "Nothing known", "texts": (NO_NODE,), "back": back}
        return respond(asked.request, "message.html.j2", status=404, **texts)
    works = page.series
    points = [
        listings.verdicts_table(of[::-1], asked.links, f"points-{number}", f"Figures of {of[-1].work_name}")
        for number, of in enumerate(works, start=1)
    ]
    newest, title = [of[-1] for of in works], "Latest figures beside what is expected"
    # A reason takes ten lines; it stands above, and with the figures of each work.
    about: dict[str, Any] = {"of_several_works": True, "has_reasons": asked.is_csv}
    latest = listings.verdicts_table(newest, asked.links, "latest", title, **about)
    events = listings.events_table(page.events)
    measured = [point for of in works for point in of if point.run_id]
    last = max(measured, key=lambda point: point.at, default=None)
    result = stored_result(last.campaign_id, last.run_id) if last and last.run_id else None
    gpus = listings.gpu_table(result) if result and result.telemetry.gpus else None
    if asked.is_csv:
        return csv_of(asked.table, [events, latest, *points, *([gpus] if gpus else [])])
    figures = [charts.node_chart(of, page.events) for of in works]
    return asked.answer(
        "node.html.j2",
        node_page=page,
        works=list(zip(works, points, figures, strict=True)),
        latest=latest,
        events=events,
        gpus=gpus,
        gpus_at=last.at if last else None,
        limits=charts.limits_of_last(works),
        may_accept=may_change(asked.pages, asked.who, node),
        may_revoke_all=may_change(asked.pages, asked.who, None),
        max_reason=MAX_REASON,
    )


@router.get("/strategies")
def strategies(asked: Asked = Depends()) -> Response:
    known = asked.read(comparisons.strategies)
    if asked.is_csv:
        return csv_pieces("strategies", [strategy_tables.strategies_csv(known.rows)])
    compared, alone = strategy_tables.works(known.rows)
    return asked.answer(
        "strategies.html.j2",
        compared=compared[:MAX_WORKS_SHOWN],
        alone=alone[:MAX_WORKS_SHOWN],
        left_out=sum(max(0, len(of) - MAX_WORKS_SHOWN) for of in (compared, alone)),
        is_cut=known.is_cut,
        one_run_pct=one_run_pct(),
        scaling_dag=f"{read_settings().dag_prefix}strategy_scaling",
    )


@router.get("/costs")
def costs(asked: Asked = Depends()) -> Response:
    totals = asked.read(comparisons.costs)
    tables = (
        listings.costs_table(totals.months, "months", "By month", "month"),
        listings.costs_table(totals.dags, "dags", "By DAG", "DAG"),
        listings.costs_table(totals.works, "works", "By work", "work"),
    )
    if asked.is_csv:
        return csv_of(asked.table, tables)
    this_month, last_month = asked.read(comparisons.two_months, asked.now.date())
    return asked.answer("costs.html.j2", costs=totals, tables=tables, this_month=this_month, last_month=last_month)


@router.get("/runs")
def runs(asked: Asked = Depends()) -> Response:
    if asked.is_csv:
        with asked.pages.reading(asked.filters) as here:
            return csv_pieces("runs", runs_csv(*here))
    run_list = asked.read(runs_page, asked.page)
    table = listings.runs_table(run_list.rows, asked.links)
    return asked.answer("runs.html.j2", run_list=run_list, content=table, states=RUN_STATES)
