"""The list of runs, and all of them as CSV."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from itertools import accumulate
from typing import Any, NamedTuple

from sqlalchemy import ColumnElement, Connection, Row, Select, case, func, select

from bench_image.contract.result import Status
from trainbench.core.csv_cells import Cell, lines
from trainbench.core.verdicts import State, Why
from trainbench.figure_catalogue.run_figures import STORED
from trainbench.history.tables import campaigns, node_verdicts, runs, works
from trainbench.pages.reads.acknowledge import notices_of
from trainbench.pages.reads.filters import Scope
from trainbench.pages.reads.node_trends import joined, verdict_columns, verdict_point
from trainbench.pages.reads.rows import RunPage, RunRow, RunSort, RunsPage

ROWS_AT_ONCE = 500
COLUMNS = (
    "campaign_id", "run_id", "dag_id", "dag_run_id", "node", "peers", "round", "gpu_name", "model", "recipe",
    "strategy", "preset", "world_size", "micro_batch_size", "seq_length", "status", "state", "why", "is_drill",
    "started_at", "finished_at", "driver", "image", "torch", *(each.name for each in STORED),
)  # fmt: skip

Connect = Callable[[], AbstractContextManager[Connection]]


def runs_csv(connect: Connect, scope: Scope) -> Iterator[str]:
    """Yield the header, then the newest campaign first. Each piece is a transaction, so that a slow download holds none
    open. Campaigns recorded meanwhile are missing; re-recorded ones appear in their new state.
    """
    yield lines([COLUMNS])
    with connect() as connection:
        counted = runs_by_campaign(connection, scope)
    for campaign_id, number, _ in counted:
        for offset in range(0, number, ROWS_AT_ONCE):
            with connect() as connection:
                rows = _sorted(connection, scope, [campaign_id], RunSort.NEWEST, offset, ROWS_AT_ONCE)
            yield lines([_cell(getattr(row, name)) for name in COLUMNS] for row in map(run_row, rows))


def _cell(value: object) -> Cell:
    if isinstance(value, tuple):
        return ",".join(value)
    return value.isoformat() if hasattr(value, "isoformat") else value  # type: ignore[return-value]


RUNS_ON_PAGE = 100
RANKED_RUNS = 10_000
_COLUMNS = (
    *(runs.c[name] for name in COLUMNS if name in runs.c),
    runs.c.suite.label("dag_id"), runs.c.group_id, runs.c.work_id, campaigns.c.dag_run_id,
)  # fmt: skip
_SORTED_BY = (runs.c.started_at, runs.c.samples_per_second, runs.c.run_usd)
_RANKS = (RunSort.SLOWEST, RunSort.FASTEST, RunSort.DEAREST)


def runs_page(connection: Connection, scope: Scope, page: int, sort: RunSort) -> RunsPage:
    counted = runs_by_campaign(connection, scope, oldest_first=sort is RunSort.OLDEST)
    total = ranked = sum(each.num_runs for each in counted)
    num_failed = sum(each.num_failed for each in counted)
    if sort in _RANKS:
        up_to = zip(counted, accumulate(each.num_runs for each in counted), strict=True)
        counted = [each for each, together in up_to if together <= RANKED_RUNS] or counted[:1]
        ranked = sum(each.num_runs for each in counted)
    num_pages = max(1, math.ceil(ranked / RUNS_ON_PAGE))
    page = min(max(page, 1), num_pages)
    offset = (page - 1) * RUNS_ON_PAGE
    rows = (
        _sorted(connection, scope, [each.campaign_id for each in counted], sort, offset, RUNS_ON_PAGE)
        if sort in _RANKS
        else _by_time(connection, scope, counted, sort, offset)
    )
    about = {"num_total": total, "num_failed": num_failed, "num_ranked": ranked, "page": page, "num_pages": num_pages}
    return RunsPage(rows=tuple(map(run_row, rows)), **about)


def run_page(connection: Connection, scope: Scope, campaign_id: str, run_id: str) -> RunPage | None:
    """The run's page, whatever the filters; None for a missing run, or one that the reader may not see."""
    here = (runs.c.campaign_id == campaign_id) & runs.c.suite.in_(scope.suites)
    row = connection.execute(_selected().where(here, runs.c.run_id == run_id)).first()
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


class _Counted(NamedTuple):
    """The runs of a campaign that are in the scope."""

    campaign_id: str
    num_runs: int
    num_failed: int


def runs_by_campaign(connection: Connection, scope: Scope, oldest_first: bool = False) -> list[_Counted]:
    """The newest campaign first."""
    query = select(works.c.campaign_id, func.sum(works.c.num_runs), func.sum(works.c.num_failed))
    query = query.where(scope.works, works.c.num_runs > 0)
    if scope.is_by_run:
        failed = func.sum(case((runs.c.status == Status.OK.value, 0), else_=1))
        query = select(works.c.campaign_id, func.count(), failed).where(scope.works, scope.runs)
        query = query.select_from(works.join(runs, runs.c.work_id == works.c.id))
    at = func.max(works.c.at)
    order = (at, works.c.campaign_id) if oldest_first else (at.desc(), works.c.campaign_id.desc())
    return [_Counted(*row) for row in connection.execute(query.group_by(works.c.campaign_id).order_by(*order))]


def run_row(row: Row[Any]) -> RunRow:
    peers = tuple(row.peers.split(",")) if row.peers else ()
    verdict = {"state": State(row.state) if row.state else None, "why": Why(row.why) if row.why else None}
    return RunRow(**{**row._mapping, **verdict, "peers": peers})


def _by_time(
    connection: Connection, scope: Scope, counted: Sequence[_Counted], sort: RunSort, offset: int
) -> list[Row[Any]]:
    rows: list[Row[Any]] = []
    for campaign_id, number, _ in counted:
        if offset >= number:
            offset -= number
            continue
        rows += _sorted(connection, scope, [campaign_id], sort, offset, RUNS_ON_PAGE - len(rows))
        offset = 0
        if len(rows) >= RUNS_ON_PAGE:
            break
    return rows


def _sorted(
    connection: Connection, scope: Scope, campaign_ids: Sequence[str], sort: RunSort, offset: int, limit: int
) -> list[Row[Any]]:
    """The rows of a page. Sorts keys only, then reads the page's rows, because a run has many columns."""
    of_scope = select(works.c.id).where(scope.works, works.c.campaign_id.in_(campaign_ids))
    query = select(runs.c.campaign_id, runs.c.run_id, *_SORTED_BY).where(runs.c.work_id.in_(of_scope), scope.runs)
    # Otherwise PostgreSQL may scan all runs by time for the first hundred of these.
    some = query.cte("some").prefix_with("MATERIALIZED", dialect="postgresql")
    sorted_keys = select(some.c.campaign_id, some.c.run_id).order_by(*_order(some.c, sort))
    keys = [(row[0], row[1]) for row in connection.execute(sorted_keys.offset(offset).limit(limit))]
    rows_by_key: dict[tuple[str, str], Row[Any]] = {}
    for campaign_id in dict.fromkeys(campaign_id for campaign_id, _ in keys):  # SQLite has no index for pairs of values
        run_ids = [run_id for of, run_id in keys if of == campaign_id]
        query = _selected().where(runs.c.campaign_id == campaign_id, runs.c.run_id.in_(run_ids))
        rows_by_key |= {(campaign_id, row.run_id): row for row in connection.execute(query)}
    return [rows_by_key[key] for key in keys]


def _order(of: Any, sort: RunSort) -> tuple[ColumnElement[Any], ...]:
    """The order of rows: unknown values last, ties by id."""
    latest = (of.started_at.desc(), of.campaign_id.desc(), of.run_id.desc())
    return {
        RunSort.NEWEST: latest,
        RunSort.OLDEST: (of.started_at, of.campaign_id, of.run_id),
        RunSort.SLOWEST: (of.samples_per_second.is_(None), of.samples_per_second, *latest),
        RunSort.FASTEST: (of.samples_per_second.is_(None), of.samples_per_second.desc(), *latest),
        RunSort.DEAREST: (of.run_usd.is_(None), of.run_usd.desc(), *latest),
    }[sort]


def _selected() -> Select[Any]:
    return select(*_COLUMNS).join(campaigns, campaigns.c.campaign_id == runs.c.campaign_id)
