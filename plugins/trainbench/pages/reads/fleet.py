"""The fleet page: its key figures and the map of nodes and days."""

from __future__ import annotations

import math
from collections.abc import Sequence, Set
from datetime import date, datetime, timedelta
from itertools import groupby, pairwise
from operator import itemgetter
from typing import Any, NamedTuple

from sqlalchemy import (
    BigInteger,
    ColumnElement,
    Connection,
    Row,
    Select,
    case,
    cast,
    exists,
    func,
    literal,
    select,
)

from trainbench.core import csv_cells
from trainbench.core.natural_order import natural
from trainbench.history.summary_tables import campaigns, node_verdicts, nodes, works
from trainbench.judging.node_condition import Condition
from trainbench.pages.reads.comparisons import spent
from trainbench.pages.reads.filters import Scope
from trainbench.pages.reads.fleet_conditions import fleet_conditions
from trainbench.pages.reads.rows import CampaignRow, HeatCell, HeatMap, HeatRow, Overview

MEASURED_DAYS = 7  # a node without a verdict for longer is not counted as part of the fleet
SPEND_DAYS = 30
MAX_DAYS = 92
NODES_ON_PAGE = 50
MAX_RED_ROWS = 20_000  # the newest rows decide the order; beyond this limit a node's count is too small
MAX_NODES = 20_000
NEWEST_WORKS = (10, 40)  # a night or two; a week
NAMES_AT_ONCE = 500
BADNESS = tuple(reversed(Condition))  # of a cell; the last is the worst
_SCALE = 10**12  # more than there will ever be works


def overview(connection: Connection, scope: Scope, today: date, now: datetime, fresh: timedelta) -> Overview:
    """The key figures. `fresh`: largest age of a node's last verdict."""
    until = min(today, scope.filters.until or today)
    measured_since, spend_since = (until - timedelta(days=days - 1) for days in (MEASURED_DAYS, SPEND_DAYS))
    lately = scope.of(scope.filters.between(measured_since, until))
    judged = _nodes(connection, lately)
    measured = _nodes(connection, lately, node_verdicts.c.samples_per_second.is_not(None), among=judged)
    return Overview(
        num_nodes=len(judged),
        num_measured=len(measured),
        conditions=fleet_conditions(connection, lately, judged, now, fresh),
        last_campaign=_last_campaign(connection, scope),
        measured_since=measured_since,
        spend_since=spend_since,
        spent=spent(connection, scope.of(scope.filters.between(spend_since, until))),
    )


class MapOrder(NamedTuple):
    """The rows and columns of the map, without its cells. `names`: the nodes, the worst first; `red`: node -> number of
    red days.
    """

    scope: Scope  # of the days
    days: tuple[str, ...]
    names: Sequence[str]
    red: dict[str, int]


def map_order(connection: Connection, scope: Scope, today: date, days: int) -> MapOrder:
    """The order of the map over the last `days` days up to today or the filters' end, not before the filters' begin."""
    until = min(today, scope.filters.until or today)
    first = until - timedelta(days=min(max(days, 1), MAX_DAYS) - 1)
    since = max(first, scope.filters.since or first)
    shown = tuple((since + timedelta(days=i)).isoformat() for i in range((until - since).days + 1))
    window = scope.of(scope.filters.between(since, until))
    red = _red_first(connection, window)
    healthy = sorted(_nodes(connection, window) - set(red), key=natural)
    return MapOrder(window, shown, [*red, *healthy], red)


def heat_map(connection: Connection, scope: Scope, today: date, days: int, page: int) -> HeatMap:
    """One page of the map; a page beyond the last one is the last one."""
    order = map_order(connection, scope, today, days)
    num_pages = max(1, math.ceil(len(order.names) / NODES_ON_PAGE))
    page = min(max(page, 1), num_pages)
    return HeatMap(
        days=order.days,
        rows=map_rows(connection, order, (page - 1) * NODES_ON_PAGE, NODES_ON_PAGE),
        num_nodes=len(order.names),
        num_red_nodes=len(order.red),
        page=page,
        num_pages=num_pages,
    )


def campaign_row(row: Row[Any]) -> CampaignRow:
    """A row of `campaigns` as the pages show it."""
    values = {name: getattr(row, name) for name in CampaignRow.__slots__ if name != "dag_id"}
    return CampaignRow(dag_id=row.suite, **values)


def _last_campaign(connection: Connection, scope: Scope) -> CampaignRow | None:
    of_scope = exists().where(works.c.campaign_id == campaigns.c.campaign_id, scope.works)
    query = select(campaigns).where(campaigns.c.suite.in_(scope.suites), of_scope)
    row = connection.execute(query.order_by(campaigns.c.finished_at.desc()).limit(1)).first()
    return campaign_row(row) if row else None


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


def _red_first(connection: Connection, scope: Scope) -> dict[str, int]:
    """Node -> number of red days, in the order of the map."""
    query = _joined(works.c.day, node_verdicts.c.node, node_verdicts.c.deviation_pct).where(
        scope.works, node_verdicts.c.is_red.is_(True)
    )
    days: dict[str, set[str]] = {}
    farthest: dict[str, float] = {}
    for day, node, deviation in connection.execute(query.order_by(works.c.at.desc()).limit(MAX_RED_ROWS)):
        days.setdefault(node, set()).add(day)
        farthest[node] = max(farthest.get(node, 0.0), abs(deviation or 0.0))
    by_name = sorted(days, key=natural)
    order = sorted(by_name, key=lambda node: (max(days[node]), len(days[node]), farthest[node]), reverse=True)
    return {node: len(days[node]) for node in order}


def map_rows(connection: Connection, order: MapOrder, first: int, number: int) -> tuple[HeatRow, ...]:
    """`number` rows of the map from the one with index `first`."""
    names, cells, made_by = _read_cells(connection, order, first, number)
    by_day = {
        node: {cell[1]: _cell(cell, made_by=made_by[cell[3] % _SCALE]) for cell in of_node}
        for node, of_node in cells.items()
    }
    return tuple(
        HeatRow(
            node=node,
            gpu_name=_last_gpu(cells.get(node, ())),
            num_red_days=order.red.get(node, 0),
            cells=tuple(by_day.get(node, {}).get(day) for day in order.days),
        )
        for node in names
    )


def map_csv(connection: Connection, order: MapOrder, first: int, number: int) -> str:
    """The same rows as CSV, a line for each node and day that has a verdict. No object is made of a line, for there
    may be a million: names are made safe once for each node and each work.
    """
    names, cells, made_by = _read_cells(connection, order, first, number)
    runs = {work_id: tuple(map(csv_cells.cell, run)) for work_id, run in made_by.items()}
    conditions = [condition.value for condition in BADNESS]
    return csv_cells.written(
        (name, gpu_name, day, conditions[worst // _SCALE], _farthest(lowest, highest), num_verdicts,
         *runs[worst % _SCALE])
        for node in names
        if (of_node := cells.get(node))
        for name, gpu_name in [(csv_cells.cell(node), csv_cells.cell(_last_gpu(of_node)))]
        for _, day, _, worst, lowest, highest, num_verdicts in of_node
    )  # fmt: skip


def _read_cells(
    connection: Connection, order: MapOrder, first: int, number: int
) -> tuple[Sequence[str], dict[str, list[Any]], dict[int, Sequence[Any]]]:
    """The names of the rows; node -> its rows of `_cells` by day; work -> campaign, DAG and DAG run."""
    scope, names = order.scope, order.names[first : first + number]
    oldest = connection.execute(select(func.min(works.c.id)).where(scope.works)).scalar()
    result = connection.execute(_cells(scope, names, oldest)) if names and oldest else None
    rows: Sequence[Any] = result.cursor.fetchall() if result and result.cursor else []  # a Row of each takes a second
    run = select(works.c.id, works.c.campaign_id, campaigns.c.suite, campaigns.c.dag_run_id)
    worst = {row[3] % _SCALE for row in rows}
    joined = run.join(campaigns, campaigns.c.campaign_id == works.c.campaign_id).where(works.c.id.in_(worst))
    made_by: dict[int, Sequence[Any]] = {work_id: run for work_id, *run in connection.execute(joined)}
    cells: dict[str, list[Any]] = {node: list(of_node) for node, of_node in groupby(rows, itemgetter(0))}
    return names, cells, made_by


def _last_gpu(of_node: Sequence[Any]) -> str | None:
    """The GPU on the last day that has one."""
    return next((cell[2] for cell in reversed(of_node) if cell[2]), None)


def _cells(scope: Scope, names: Sequence[str], first: int) -> Select[Any]:
    """The query of the cells. `worst` encodes two numbers, so that one maximum gives the worst verdict and its work.
    `first`: the lowest id of a work in the scope; the index has a node's verdicts in the order of these ids.
    """
    badness = case({each.value: rank for rank, each in enumerate(BADNESS)}, value=node_verdicts.c.condition, else_=0)
    return (
        _joined(
            node_verdicts.c.node,
            works.c.day,
            func.max(works.c.gpu_name).label("gpu_name"),
            func.max(cast(badness, BigInteger) * literal(_SCALE, BigInteger) + works.c.id).label("worst"),
            func.min(node_verdicts.c.deviation_pct).label("lowest"),
            func.max(node_verdicts.c.deviation_pct).label("highest"),
            func.count().label("num_verdicts"),
        )
        .where(scope.works, node_verdicts.c.node.in_(names), node_verdicts.c.work_id >= first)
        .group_by(node_verdicts.c.node, works.c.day)
        .order_by(node_verdicts.c.node, works.c.day)
    )


def _joined(*columns: Any) -> Select[Any]:
    return select(*columns).select_from(works.join(node_verdicts, node_verdicts.c.work_id == works.c.id))


def _cell(row: Sequence[Any], *, made_by: Sequence[Any]) -> HeatCell:
    """The cell of a row of `_cells`. `made_by`: campaign, DAG and DAG run of its worst verdict."""
    _, day, _, worst, lowest, highest, num_verdicts = row
    return HeatCell(day, BADNESS[worst // _SCALE], _farthest(lowest, highest), num_verdicts, *made_by)


def _farthest(lowest: float | None, highest: float | None) -> float | None:
    return highest if lowest is None or (highest is not None and highest > -lowest) else lowest
