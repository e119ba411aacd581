"""The fleet page: its key figures and the map of nodes and days."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping, Sequence, Set
from datetime import date, datetime, timedelta
from itertools import groupby, pairwise
from operator import itemgetter
from typing import Any, NamedTuple

from sqlalchemy import ColumnElement, Connection, exists, select

from trainbench.core import csv_cells
from trainbench.core.natural_order import natural
from trainbench.core.verdicts import State, Why
from trainbench.history.fleet_state import nodes_now
from trainbench.history.tables import campaigns, node_verdicts, nodes, works
from trainbench.pages.reads.comparisons import spent
from trainbench.pages.reads.filters import Scope
from trainbench.pages.reads.rows import HeatCell, HeatMap, HeatRow, LastRun, Overview
from trainbench.results.campaign import IMPORTED_SUITE

MEASURED_DAYS = 7  # a node without a verdict for longer is not counted as part of the fleet
SPEND_DAYS = 30
MAX_DAYS = 92
NODES_ON_PAGE = 50
MAX_RED_ROWS = 20_000  # the newest rows decide the order; beyond this limit a node's count is too small
MAX_NODES = 20_000
NEWEST_WORKS = (10, 40)  # a night or two; a week
NAMES_AT_ONCE = 500
WORST_LAST = tuple((state, why) for state in reversed(State) for why in reversed(Why))  # of a cell
_SCALE = 10**12  # more than any history has works
_RANKS = {(state.value, why.value): rank for rank, (state, why) in enumerate(WORST_LAST)}


def overview(connection: Connection, scope: Scope, today: date, now: datetime, fresh: timedelta) -> Overview:
    """The key figures. `fresh`: largest age of a node's last verdict."""
    lately = scope.since(today - timedelta(days=MEASURED_DAYS - 1))
    judged = set(filter(scope.has, _nodes(connection, lately)))
    measured = _nodes(connection, lately, node_verdicts.c.samples_per_second.is_not(None), among=judged)
    of_scope = exists().where(works.c.campaign_id == campaigns.c.campaign_id, scope.works)
    ours = campaigns.c.suite.in_(set(scope.suites) - {IMPORTED_SUITE})
    columns = (campaigns.c[name] for name in ("suite", "dag_run_id", "finished_at", "is_drill", "num_red"))
    query = select(*columns).where(ours, of_scope).order_by(campaigns.c.finished_at.desc()).limit(1)
    last_run = connection.execute(query).first()
    return Overview(
        num_nodes=len(judged),
        num_measured=len(measured & judged),
        states=tuple(
            state
            for state in nodes_now(
                connection,
                judged,
                now,
                fresh,
                of_works=scope.works_of_any_time,
                lately=lately.works,
                of_notices=scope.notices,
            )
            if scope.has(state.node)
        ),
        last_run=LastRun(*last_run) if last_run else None,
        spent=spent(connection, scope.since(today - timedelta(days=SPEND_DAYS - 1))),
    )


class _Work(NamedTuple):
    """A work of the scope. `run`: campaign, DAG and DAG run."""

    day: str
    gpu_name: str | None
    run: tuple[str, str, str | None]


class MapOrder(NamedTuple):
    """The rows and columns of the map, without its cells. `names`: the nodes, the worst first; `works`: id -> work."""

    days: tuple[str, ...]
    names: Sequence[str]
    num_red: int  # nodes that were red on any of the days
    works: Mapping[int, _Work]


# A node's day: rank and work of its worst verdict in one number, farthest deviation, number of verdicts, GPU. A plain
# tuple, since a million of them are made for a download.
_Cell = tuple[int, float | None, int, str | None]


def map_order(
    connection: Connection, scope: Scope, today: date, days: int, only: Collection[str] | None = None
) -> MapOrder:
    """The order of the map over the last `days` days, not before the filters' begin. Of the nodes that were red, the
    one that was so last comes first, then the one with more such days, then the one that was farther off. `only`: of
    these nodes; None: of all.
    """

    def is_shown(node: str) -> bool:
        return scope.has(node) and (only is None or node in only)

    window = scope.since(today - timedelta(days=min(max(days, 1), MAX_DAYS) - 1))
    since = window.filters.since or today
    shown = tuple((since + timedelta(days=i)).isoformat() for i in range((today - since).days + 1))
    of_verdicts = works.join(node_verdicts, node_verdicts.c.work_id == works.c.id)
    columns = (works.c.day, node_verdicts.c.node, node_verdicts.c.deviation_pct)
    query = select(*columns).select_from(of_verdicts).where(window.works, node_verdicts.c.is_red.is_(True))
    red_days: dict[str, set[str]] = {}
    farthest: dict[str, float] = {}
    for day, node, deviation in connection.execute(query.order_by(works.c.at.desc()).limit(MAX_RED_ROWS)):
        red_days.setdefault(node, set()).add(day)
        farthest[node] = max(farthest.get(node, 0.0), abs(deviation or 0.0))
    red = sorted(filter(is_shown, red_days), key=natural)
    red.sort(key=lambda node: (max(red_days[node]), len(red_days[node]), farthest[node]), reverse=True)
    healthy = sorted(filter(is_shown, _nodes(connection, window) - set(red)), key=natural)
    of_work = (works.c.id, works.c.day, works.c.gpu_name, works.c.campaign_id, works.c.suite, campaigns.c.dag_run_id)
    of_runs = works.outerjoin(campaigns, campaigns.c.campaign_id == works.c.campaign_id)
    rows = connection.execute(select(*of_work).select_from(of_runs).where(window.works))
    of_scope = {row[0]: _Work(row[1], row[2], (row[3], row[4], row[5])) for row in rows}
    return MapOrder(shown, [*red, *healthy], len(red), of_scope)


def heat_map(
    connection: Connection, scope: Scope, today: date, days: int, page: int, only: Collection[str] | None = None
) -> HeatMap:
    """One page of the map; a page beyond the last one is the last one."""
    order = map_order(connection, scope, today, days, only)
    num_pages = max(1, math.ceil(len(order.names) / NODES_ON_PAGE))
    page = min(max(page, 1), num_pages)
    return HeatMap(
        days=order.days,
        rows=map_rows(connection, order, (page - 1) * NODES_ON_PAGE, NODES_ON_PAGE),
        num_nodes=len(order.names),
        num_red_nodes=order.num_red,
        page=page,
        num_pages=num_pages,
    )


def _nodes(
    connection: Connection, scope: Scope, *conditions: ColumnElement[bool], among: Set[str] | None = None
) -> set[str]:
    """The nodes with a verdict in the scope. Nearly all are in the newest works' verdicts, which are stored together: a
    few works are read first, and more if names are left. The other known names, or those in `among`, are searched one
    by one.
    """
    work_ids = list(connection.execute(select(works.c.id).where(scope.works).order_by(works.c.at.desc())).scalars())
    if not work_ids:
        return set()
    known = among
    if known is None:
        known = set(connection.execute(select(nodes.c.node).where(scope.nodes).distinct().limit(MAX_NODES)).scalars())
    seen: set[str] = set()
    for first, last in pairwise((0, *NEWEST_WORKS)):
        if known - seen:
            newest = node_verdicts.c.work_id.in_(work_ids[first:last])
            query = select(node_verdicts.c.node).where(newest, *conditions).distinct()
            seen |= set(connection.execute(query).scalars())
    rest = sorted(known - seen)
    for start in range(0, len(rest), NAMES_AT_ONCE):
        query = (
            select(node_verdicts.c.node)
            .join(works, works.c.id == node_verdicts.c.work_id)
            .where(node_verdicts.c.node.in_(rest[start : start + NAMES_AT_ONCE]), scope.works, *conditions)
            .where(node_verdicts.c.work_id >= min(work_ids))  # of each name the index holds the old works first
        )
        seen |= set(connection.execute(query.distinct()).scalars())
    return seen


def map_rows(connection: Connection, order: MapOrder, first: int, number: int) -> tuple[HeatRow, ...]:
    """`number` rows of the map from the one with index `first`."""
    names = order.names[first : first + number]
    cells = dict(_read_cells(connection, order.works, names))
    return tuple(
        HeatRow(
            node=node,
            gpu_name=_last_gpu(of_node),
            cells=tuple(_heat_cell(day, of_node[day], order.works) if day in of_node else None for day in order.days),
        )
        for node in names
        for of_node in [cells.get(node, {})]
    )


def map_csv(connection: Connection, order: MapOrder, first: int, number: int) -> str:
    """The same rows as CSV, a line for each node and day that has a verdict. There may be a million lines: names are
    made safe once for each node and each work, and no more than one node's cells are in memory.
    """
    names = order.names[first : first + number]
    runs = {work_id: tuple(map(csv_cells.cell, work.run)) for work_id, work in order.works.items()}
    texts = {}
    for node, cells in _read_cells(connection, order.works, names):
        name, gpu_name = csv_cells.cell(node), csv_cells.cell(_last_gpu(cells))
        texts[node] = csv_cells.written(
            (name, gpu_name, day, *WORST_LAST[worst // _SCALE], deviation_pct, num_verdicts, *runs[worst % _SCALE])
            for day, (worst, deviation_pct, num_verdicts, _) in cells.items()
        )
    return "".join(texts.get(node, "") for node in names)


def _read_cells(
    connection: Connection, of_scope: Mapping[int, _Work], names: Sequence[str]
) -> Iterator[tuple[str, dict[str, _Cell]]]:
    """Each node with its cells: day -> cell, in order. The verdicts are read from the index alone and grouped here,
    because the database takes longer to sort them by day.
    """
    if not names or not of_scope:
        return
    columns = (node_verdicts.c[name] for name in ("node", "work_id", "node_state", "node_why", "deviation_pct"))
    within = node_verdicts.c.work_id.between(min(of_scope), max(of_scope))
    query = select(*columns).where(node_verdicts.c.node.in_(names), within)
    result = connection.execute(query.order_by(node_verdicts.c.node, node_verdicts.c.work_id))
    rows: Any = result.cursor or ()  # to make a Row of each takes a second
    for node, verdicts in groupby(rows, itemgetter(0)):
        # Day -> cell, in order. `verdicts`: node, work, state, why and deviation of one node's verdicts.
        cells: dict[str, _Cell] = {}
        for _, work_id, state, why, deviation_pct in verdicts:
            if work := of_scope.get(work_id):
                day, gpu_name, _ = work
                cell = (_RANKS[state, why] * _SCALE + work_id, deviation_pct, 1, gpu_name)
                cells[day] = _both(cells[day], cell) if day in cells else cell
        yield node, dict(sorted(cells.items()))


def _both(one: _Cell, other: _Cell) -> _Cell:
    """The cell of a day with both."""
    known = [cell[1] for cell in (one, other) if cell[1] is not None]
    return (
        max(one[0], other[0]),
        max(known, key=lambda deviation_pct: (abs(deviation_pct), -deviation_pct), default=None),
        one[2] + other[2],
        max(one[3] or "", other[3] or "") or None,
    )


def _last_gpu(cells: Mapping[str, _Cell]) -> str | None:
    """The GPU on the last day that has one."""
    return next((cell[3] for cell in reversed(list(cells.values())) if cell[3]), None)


def _heat_cell(day: str, cell: _Cell, of_scope: Mapping[int, _Work]) -> HeatCell:
    worst, deviation_pct, num_verdicts, _ = cell
    state, why = WORST_LAST[worst // _SCALE]
    return HeatCell(day, state, why, deviation_pct, num_verdicts, *of_scope[worst % _SCALE].run)
