"""The list of runs, and all of them as CSV."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

from sqlalchemy import Connection, Row, Select, case, func, select

from bench_image.contract.result import Status
from trainbench.core.csv_cells import Cell, lines
from trainbench.core.verdicts import State, Why
from trainbench.history.tables import OF_RUN, campaigns, node_verdicts, runs, works
from trainbench.pages.reads.filters import Scope, is_text
from trainbench.pages.reads.node_trends import joined, verdict_columns, verdict_point
from trainbench.pages.reads.notices import notices_of
from trainbench.pages.reads.rows import RunPage, RunRow, RunsPage

ROWS_AT_ONCE = 500
COLUMNS = ("campaign_id", "run_id", "dag_id", "dag_run_id", *OF_RUN)
_COLUMNS = (
    *(runs.c[name] for name in COLUMNS if name in runs.c),
    runs.c.suite.label("dag_id"), runs.c.group_id, runs.c.work_id, campaigns.c.dag_run_id,
)  # fmt: skip
RUNS_ON_PAGE = 100
MAX_PAGES = 100  # a database counts its way to a later one


def runs_csv(connection: Connection, scope: Scope) -> Iterator[str]:
    """The header, then all runs of the scope in the order of the list, in pieces."""
    yield lines([COLUMNS])
    rows = connection.execution_options(yield_per=ROWS_AT_ONCE).execute(_listed(scope))
    for some in rows.partitions():
        yield lines([_cell(getattr(row, name)) for name in COLUMNS] for row in map(run_row, some))


def _cell(value: object) -> Cell:
    if isinstance(value, tuple):
        return ",".join(value)
    return value.isoformat() if hasattr(value, "isoformat") else value  # type: ignore[return-value]


def runs_page(connection: Connection, scope: Scope, page: int = 1) -> RunsPage:
    """A page beyond the last one is the last one."""
    query = select(func.sum(works.c.num_runs), func.sum(works.c.num_failed)).where(scope.works)
    if scope.is_by_run:
        failed = func.sum(case((runs.c.status == Status.OK.value, 0), else_=1))
        of_runs = works.join(runs, runs.c.work_id == works.c.id)
        query = select(func.count(), failed).select_from(of_runs).where(scope.works, scope.runs)
    num_total, num_failed = (number or 0 for number in connection.execute(query).one())
    num_pages = min(max(1, math.ceil(num_total / RUNS_ON_PAGE)), MAX_PAGES)
    page = min(max(page, 1), num_pages)
    rows = connection.execute(_listed(scope).offset((page - 1) * RUNS_ON_PAGE).limit(RUNS_ON_PAGE))
    return RunsPage(
        rows=tuple(map(run_row, rows)), num_total=num_total, num_failed=num_failed, page=page, num_pages=num_pages
    )


def _listed(scope: Scope) -> Select[Any]:
    """The newest campaign first, of each its works one after the other: an index has the runs in this order."""
    of_works = works.join(runs, runs.c.work_id == works.c.id)
    return (
        select(*_COLUMNS)
        .select_from(of_works.join(campaigns, campaigns.c.campaign_id == works.c.campaign_id))
        .where(scope.works, scope.runs)
        .order_by(works.c.at.desc(), works.c.id.desc(), runs.c.node, runs.c.run_id)
    )


def run_page(connection: Connection, scope: Scope, campaign_id: str, run_id: str) -> RunPage | None:
    """The run's page, whatever the filters; None for a missing run, or one that the reader may not see."""
    if not is_text(campaign_id + run_id):
        return None
    here = (runs.c.campaign_id == campaign_id) & runs.c.suite.in_(scope.suites)
    query = select(*_COLUMNS).join(campaigns, campaigns.c.campaign_id == runs.c.campaign_id)
    row = connection.execute(query.where(here, runs.c.run_id == run_id)).first()
    if row is None:
        return None
    same = (runs.c.work_id == row.work_id) & (runs.c.node == row.node) & (runs.c.run_id != run_id)
    others = select(runs.c.run_id).where(same).order_by(runs.c.round, runs.c.run_id).limit(100)
    of_node = (works.c.campaign_id == campaign_id) & (works.c.group_id == row.group_id)
    verdict = connection.execute(
        select(*verdict_columns()).select_from(joined()).where(of_node, node_verdicts.c.node == row.node)
    ).first()
    return RunPage(
        run=run_row(row),
        label=connection.execute(select(works.c.label).where(works.c.id == row.work_id)).scalar_one_or_none(),
        verdict=verdict_point(verdict) if verdict else None,
        notice=next((each for each in notices_of(connection, scope, row.node) if each.closed_at is None), None),
        others=tuple(connection.execute(others).scalars()),
    )


def run_row(row: Row[Any]) -> RunRow:
    peers = tuple(row.peers.split(",")) if row.peers else ()
    verdict = {"state": State(row.state) if row.state else None, "why": Why(row.why) if row.why else None}
    return RunRow(**{**row._mapping, **verdict, "peers": peers})
