"""The fleet page: its key figures and the map of nodes and days."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Sequence
from datetime import date, datetime, timedelta
from itertools import product
from operator import itemgetter
from typing import Any

from sqlalchemy import ColumnElement, Connection, exists, func, select

from trainbench.core import csv_cells
from trainbench.core.grouping import grouped
from trainbench.core.natural_order import natural
from trainbench.core.verdicts import Against, Metric, State, Why
from trainbench.history.fleet_state import nodes_now
from trainbench.history.tables import ON_THE_MAP, campaigns, node_verdicts, nodes, works
from trainbench.pages.reads.comparisons import spent
from trainbench.pages.reads.filters import Scope
from trainbench.pages.reads.rows import HeatCell, HeatMap, HeatRow, LastRun, Overview
from trainbench.results.campaign import IMPORTED_SUITE

MEASURED_DAYS = 7  # a node without a verdict for longer is not counted as part of the fleet
SPEND_DAYS = 30
MAX_DAYS = 92
NODES_ON_PAGE = 50
MAX_RED_ROWS = 20_000  # the newest rows decide the order; beyond this limit a node's count is too small
WORKS_AT_ONCE = 20
_STATES = tuple(product(State, Why))  # the worst first
_RANKS = {(state.value, why.value): -rank for rank, (state, why) in enumerate(_STATES)}


def overview(connection: Connection, scope: Scope, today: date, now: datetime, fresh: timedelta) -> Overview:
    """The key figures. `fresh`: largest age of a node's last verdict."""
    lately = scope.since(today - timedelta(days=MEASURED_DAYS - 1))
    judged = set(filter(scope.has, _nodes(connection, lately)))
    measured = _nodes(connection, lately, node_verdicts.c.samples_per_second.is_not(None))
    of_scope = exists().where(works.c.campaign_id == campaigns.c.campaign_id, scope.works)
    ours = campaigns.c.suite.in_(set(scope.suites) - {IMPORTED_SUITE})
    columns = (campaigns.c[name] for name in ("suite", "dag_run_id", "finished_at", "is_drill", "num_red"))
    query = select(*columns).where(ours, of_scope).order_by(campaigns.c.finished_at.desc()).limit(1)
    last_run = connection.execute(query).first()
    states = nodes_now(connection, judged, now, fresh, lately.works, scope.works_of_any_time, scope.notices)
    return Overview(
        num_nodes=len(judged),
        num_measured=len(measured & judged),
        states=tuple(each.state for each in states if scope.has(each.node)),
        last_run=LastRun(*last_run) if last_run else None,
        spent=spent(connection, scope.since(today - timedelta(days=SPEND_DAYS - 1))),
    )


def heat_map(
    connection: Connection,
    scope: Scope,
    today: date,
    days: int = 30,
    page: int = 1,
    only: Collection[str] | None = None,
) -> HeatMap:
    """One page of the map of the last `days` days, from the first with a verdict on, not before the filters' begin; a
    page beyond the last one is the last one. `only`: of these nodes; None: of all.
    """
    window, shown = _window(scope, today, days)
    judged = exists().where(node_verdicts.c.work_id == works.c.id)
    first = connection.execute(select(func.min(works.c.day)).where(window.works, judged)).scalar() or ""
    shown = tuple(day for day in shown if day >= first)
    names, num_red = _map_names(connection, window, only)
    num_pages = max(1, math.ceil(len(names) / NODES_ON_PAGE))
    page = min(max(page, 1), num_pages)
    some = names[(page - 1) * NODES_ON_PAGE : page * NODES_ON_PAGE]
    return HeatMap(
        days=shown,
        rows=_map_rows(connection, window, shown, some),
        num_nodes=len(names),
        num_red_nodes=num_red,
        page=page,
        num_pages=num_pages,
    )


def heat_csv(
    connection: Connection, scope: Scope, today: date, days: int, only: Collection[str] | None = None
) -> Iterator[str]:
    """All rows of the map as CSV in pieces: a line for each node and day that has a verdict."""
    window, shown = _window(scope, today, days)
    names, _ = _map_names(connection, window, only)
    yield csv_cells.lines([("node", "gpu_name", *HeatCell._fields)])
    for first in range(0, len(names), NODES_ON_PAGE):
        rows = _map_rows(connection, window, shown, names[first : first + NODES_ON_PAGE])
        yield csv_cells.lines((row.node, row.gpu_name, *cell) for row in rows for cell in row.cells if cell)


def _window(scope: Scope, today: date, days: int) -> tuple[Scope, tuple[str, ...]]:
    """The scope of these days, and the days."""
    window = scope.since(today - timedelta(days=min(max(days, 1), MAX_DAYS) - 1))
    since = window.filters.since or today
    return window, tuple((since + timedelta(days=i)).isoformat() for i in range((today - since).days + 1))


def _map_names(connection: Connection, window: Scope, only: Collection[str] | None) -> tuple[Sequence[str], int]:
    """The nodes in the order of the map, and how many of them were red. Of these the one that was so last comes first,
    then the one with more such days, then the one that was farther off.
    """
    of_verdicts = works.join(node_verdicts, node_verdicts.c.work_id == works.c.id)
    columns = (works.c.day, node_verdicts.c.node, node_verdicts.c.deviation)
    query = select(*columns).select_from(of_verdicts).where(window.works, node_verdicts.c.is_red.is_(True))
    red_days: dict[str, set[str]] = {}
    farthest: dict[str, float] = {}
    for day, node, deviation in connection.execute(query.order_by(works.c.at.desc()).limit(MAX_RED_ROWS)):
        red_days.setdefault(node, set()).add(day)
        farthest[node] = max(farthest.get(node, 0.0), abs(deviation or 0.0))
    names = (node for node in _nodes(connection, window) if window.has(node) and (only is None or node in only))
    order = sorted(names, key=natural)
    red = [node for node in order if node in red_days]
    red.sort(key=lambda node: (max(red_days[node]), len(red_days[node]), farthest[node]), reverse=True)
    return [*red, *(node for node in order if node not in red_days)], len(red)


def _nodes(connection: Connection, scope: Scope, *conditions: ColumnElement[bool]) -> set[str]:
    """The nodes with a verdict in the scope. Nearly all are in its newest works: older ones are read while known names
    are left.
    """
    known = set(connection.execute(select(nodes.c.node).where(scope.nodes)).scalars())
    work_ids = list(connection.execute(select(works.c.id).where(scope.works).order_by(works.c.at.desc())).scalars())
    seen: set[str] = set()
    for first in range(0, len(work_ids), WORKS_AT_ONCE):
        if known <= seen:
            break
        of_works = node_verdicts.c.work_id.in_(work_ids[first : first + WORKS_AT_ONCE])
        seen |= set(connection.execute(select(node_verdicts.c.node).where(of_works, *conditions).distinct()).scalars())
    return seen


def _map_rows(connection: Connection, window: Scope, days: Sequence[str], names: Sequence[str]) -> tuple[HeatRow, ...]:
    """The verdicts are read from their index alone: a node's are on as many pages of the disk as there are nights."""
    columns = (works.c[name] for name in ("id", "day", "gpu_name", "campaign_id", "suite"))
    of_runs = works.join(campaigns, campaigns.c.campaign_id == works.c.campaign_id)
    found = connection.execute(select(*columns, campaigns.c.dag_run_id).select_from(of_runs).where(window.works))
    of_scope = {row.id: row for row in found}
    of_verdict = (node_verdicts.c[name] for name in ("node", "work_id", *ON_THE_MAP))
    within = node_verdicts.c.work_id.between(min(of_scope, default=0), max(of_scope, default=0))
    verdicts = connection.execute(select(*of_verdict).where(node_verdicts.c.node.in_(names), within))
    cells = grouped(
        ((node, work.day), (_RANKS[state, why], work_id, decided, work))
        for node, work_id, state, why, *decided in verdicts
        if (work := of_scope.get(work_id))
    )
    gpus = {
        node: work.gpu_name
        for (node, _), of in sorted(cells.items(), key=itemgetter(0))
        for *_, work in of
        if work.gpu_name
    }
    return tuple(
        HeatRow(
            node=node,
            gpu_name=gpus.get(node),
            cells=tuple(_cell(of_day) if (of_day := cells.get((node, day))) else None for day in days),
        )
        for node in names
    )


def _cell(verdicts: Sequence[tuple[int, int, Sequence[Any], Any]]) -> HeatCell:
    """Of one node on one day: the worst state, and the figure that decided it."""
    rank, _, (metric, against, deviation), work = max(verdicts, key=itemgetter(0, 1))
    state, why = _STATES[-rank]
    return HeatCell(
        day=work.day,
        state=state,
        why=why,
        metric=metric and Metric(metric),
        against=against and Against(against),
        deviation=deviation,
        num_verdicts=len(verdicts),
        campaign_id=work.campaign_id,
        dag_id=work.suite,
        dag_run_id=work.dag_run_id,
    )
