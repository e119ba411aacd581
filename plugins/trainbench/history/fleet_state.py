"""Each node as it stands now: condition, latest figures, open breaches, and what its runs cost."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping
from datetime import datetime, timedelta
from typing import Any, NamedTuple

from sqlalchemy import Connection, Row, func, select, true

from bench_image.contract.gpu_specs import data_sheet
from bench_image.contract.result_sections import share_field
from trainbench.core.natural_order import natural
from trainbench.figure_catalogue.run_figures import RATE_FIGURES
from trainbench.history.breach import open_breaches_by_node
from trainbench.history.node_conditions import DECIDED_DAYS, node_conditions
from trainbench.history.notice_tables import warnings
from trainbench.history.run_tables import OURS, runs
from trainbench.history.summary_tables import node_verdicts, works
from trainbench.judging.node_condition import NodeCondition
from trainbench.judging.warning_findings import WarningKind

FLEET_DAYS = 7  # a node that had no verdict in the week before the newest one is not of the fleet
SPEND_DAYS = 30
ROWS_AT_ONCE = 5000  # of a week's verdicts only the latest of each node are kept


class WorkFigures(NamedTuple):
    """Of one node at one work, in the latest campaign that judged it; None: not measured, or not compared."""

    work: str  # group id
    gpu_name: str | None
    samples_per_second: float | None
    deviation_pct: float | None  # from the peers


class NodeState(NamedTuple):
    """`judged_at`: end of the latest campaign that gave it a verdict. `works`: without those of a drill; empty where
    that campaign is older than the fleet's week: an open breach keeps the node.
    """

    condition: NodeCondition
    judged_at: datetime | None  # None: its verdicts are gone
    num_open_breaches: int  # acknowledged ones included
    works: tuple[WorkFigures, ...]
    probe_shares_pct: Mapping[str, float]  # probe, as "h2d" -> share of the data sheet in that campaign, the lowest
    is_marked: bool  # this installation keeps other work away from it, as far as its runs and commands know

    @property
    def node(self) -> str:
        return self.condition.node


class NodeSpend(NamedTuple):
    """`usd`: None where no run has a known cost. `num_unpriced`: runs that `usd` lacks."""

    node: str
    usd: float | None
    num_unpriced: int


class FleetState(NamedTuple):
    judged_at: datetime | None  # the newest verdict on any node; None: there is none
    nodes: tuple[NodeState, ...]
    spends: tuple[NodeSpend, ...]  # of all nodes that ran anything, judged or not, within SPEND_DAYS


def read_fleet_state(connection: Connection, now: datetime, fresh: timedelta) -> FleetState:
    judged_at = _newest_verdict(connection)
    since = (judged_at or now) - timedelta(days=FLEET_DAYS)
    latest = _latest_verdicts(connection, since)
    conditions = node_conditions(
        connection,
        latest.keys(),
        now,
        fresh,
        lately=works.c.at >= since,
        quarter=works.c.at >= now - timedelta(days=DECIDED_DAYS),
        of_breaches=true(),
    )
    is_open, marked = open_breaches_by_node(connection, true()), _marked(connection)
    judged = {node: rows[0].at for node, rows in latest.items()}
    judged |= _last_judged(connection, is_open.keys() - latest.keys())
    nodes = (
        NodeState(
            condition=each,
            judged_at=judged.get(each.node),
            num_open_breaches=len(is_open.get(each.node, ())),
            works=_figures(latest.get(each.node, ())),
            probe_shares_pct=_probe_shares_pct(latest.get(each.node, ())),
            is_marked=each.node in marked,
        )
        for each in conditions
    )
    return FleetState(judged_at, tuple(nodes), _spends(connection, now - timedelta(days=SPEND_DAYS)))


def _newest_verdict(connection: Connection) -> datetime | None:
    is_judged = select(node_verdicts.c.node).where(node_verdicts.c.work_id == works.c.id).exists()
    newest: datetime | None = connection.execute(
        select(works.c.at).where(is_judged).order_by(works.c.at.desc()).limit(1)
    ).scalar()
    return newest


def _latest_verdicts(connection: Connection, since: datetime) -> Mapping[str, list[Row[Any]]]:
    """Node -> its verdicts of the latest campaign that judged it, one for each work."""
    query = (
        select(
            *(node_verdicts.c[name] for name in ("node", "samples_per_second", "deviation_pct", "is_drill")),
            *(works.c[name] for name in ("campaign_id", "group_id", "gpu_name", "at")),
            *(runs.c[each.name] for each in RATE_FIGURES),
        )
        .join(works, works.c.id == node_verdicts.c.work_id)
        .outerjoin(runs, (runs.c.campaign_id == works.c.campaign_id) & (runs.c.run_id == node_verdicts.c.run_id))
        .where(works.c.at >= since)
        .order_by(works.c.at, works.c.id)
    )
    latest: dict[str, list[Row[Any]]] = {}
    for row in connection.execution_options(yield_per=ROWS_AT_ONCE).execute(query):
        of_node = latest.setdefault(row.node, [])
        if of_node and of_node[0].campaign_id != row.campaign_id:
            of_node.clear()
        of_node.append(row)
    return latest


def _marked(connection: Connection) -> frozenset[str]:
    is_mark = (warnings.c.kind == WarningKind.MARKED.value) & warnings.c.closed_at.is_(None)
    return frozenset(connection.execute(select(warnings.c.node).where(is_mark)).scalars())


def _last_judged(connection: Connection, names: Collection[str]) -> dict[str, datetime]:
    query = (
        select(node_verdicts.c.node, func.max(works.c.at).label("at"))
        .join(works, works.c.id == node_verdicts.c.work_id)
        .where(node_verdicts.c.node.in_(sorted(names)))
        .group_by(node_verdicts.c.node)
    )
    return {row.node: row.at for row in connection.execute(query)}


def _figures(verdicts: Iterable[Row[Any]]) -> tuple[WorkFigures, ...]:
    return tuple(
        WorkFigures(row.group_id, row.gpu_name, row.samples_per_second, row.deviation_pct)
        for row in verdicts
        if not row.is_drill
    )


def _probe_shares_pct(verdicts: Iterable[Row[Any]]) -> dict[str, float]:
    """Of each probe whose data sheet is known the lowest share; drills are real runs of a real GPU here."""
    shares: dict[str, float] = {}
    for row in verdicts:
        for rate, promised in data_sheet(row.gpu_name or "").items():
            if (value := getattr(row, rate)) is not None:
                name = share_field(rate).removesuffix("_share_pct")
                shares[name] = min(100 * value / promised, shares.get(name, math.inf))
    return shares


def _spends(connection: Connection, since: datetime) -> tuple[NodeSpend, ...]:
    """Drills, re-runs and failed runs were paid for, too. A gang's cost is shared evenly by its nodes."""
    usd: dict[str, float] = {}
    num_unpriced: dict[str, int] = {}
    columns = runs.c.node, runs.c.peers, func.sum(runs.c.run_usd), func.count(), func.count(runs.c.run_usd)
    query = select(*columns).where(OURS, runs.c.started_at >= since).group_by(runs.c.node, runs.c.peers)
    for node, peers, paid, num_runs, num_priced in connection.execute(query):
        gang = (node, *filter(None, peers.split(",")))
        for member in gang:
            if paid is not None:
                usd[member] = usd.get(member, 0.0) + paid / len(gang)
            num_unpriced[member] = num_unpriced.get(member, 0) + num_runs - num_priced
    return tuple(NodeSpend(node, usd.get(node), num_unpriced[node]) for node in sorted(num_unpriced, key=natural))
