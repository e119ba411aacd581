"""Each node as it stands now: its state, latest figures, open notices, and what its runs cost."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, NamedTuple

from sqlalchemy import ColumnElement, Connection, Row, func, select, true

from bench_image.contract.gpu_specs import data_sheet
from bench_image.contract.result_sections import share_field
from trainbench.core.formats import day, one_line
from trainbench.core.grouping import grouped
from trainbench.core.natural_order import natural
from trainbench.core.states import NodeState
from trainbench.core.verdicts import State, Why
from trainbench.figure_catalogue.run_figures import RATE_FIGURES
from trainbench.history.marks import marked_nodes
from trainbench.history.notices import Notice, last_judged, notice_of, select_notices
from trainbench.history.summaries import absent_nodes
from trainbench.history.tables import OURS, campaigns, node_verdicts, notices, runs, works

FLEET_DAYS = 7  # a node that had no verdict in the week before the newest one is not of the fleet
SPEND_DAYS = 30
FIGURES = ("samples_per_second", "deviation_pct", "past_deviation_pct", "level_deviation_pct")
ALL = true()
NO_VERDICT = NodeState("", State.NOT_CHECKED, Why.STALE)


class WorkFigures(NamedTuple):
    """Of one node at one work, in the latest campaign that judged it; None: not measured, or not compared."""

    work: str  # group id
    gpu_name: str | None
    samples_per_second: float | None
    deviation_pct: float | None  # from the peers
    past_deviation_pct: float | None
    level_deviation_pct: float | None


class NodeNow(NamedTuple):
    """`judged_at`: end of the latest campaign that gave it a verdict. `works`: without those of a drill; empty where
    that campaign is older than the fleet's week: an open notice keeps the node.
    """

    state: NodeState
    judged_at: datetime | None  # None: its verdicts are gone
    num_open_notices: int  # acknowledged ones included
    works: tuple[WorkFigures, ...]
    probe_shares_pct: Mapping[str, float]  # probe, as "h2d" -> share of the data sheet in that campaign, the lowest
    is_marked: bool  # this installation keeps other work away from it, as far as its runs and commands know

    @property
    def node(self) -> str:
        return self.state.node


class NodeSpend(NamedTuple):
    """`usd`: None where no run has a known cost. `num_unpriced`: runs that `usd` lacks."""

    node: str
    usd: float | None
    num_unpriced: int


class FleetState(NamedTuple):
    judged_at: datetime | None  # the newest verdict on any node; None: there is none
    nodes: tuple[NodeNow, ...]
    spends: tuple[NodeSpend, ...]  # of all nodes that ran anything, judged or not, within SPEND_DAYS


def read_fleet_state(connection: Connection, now: datetime, fresh: timedelta) -> FleetState:
    is_judged = select(node_verdicts.c.node).where(node_verdicts.c.work_id == works.c.id).exists()
    newest = select(works.c.at).where(is_judged).order_by(works.c.at.desc()).limit(1)
    judged_at: datetime | None = connection.execute(newest).scalar()
    lately = works.c.at >= (judged_at or now) - timedelta(days=FLEET_DAYS)
    nodes = nodes_now(connection, None, now, fresh, lately)
    return FleetState(judged_at, nodes, _spends(connection, now - timedelta(days=SPEND_DAYS)))


def nodes_now(
    connection: Connection,
    names: Collection[str] | None,
    now: datetime,
    fresh: timedelta,
    lately: ColumnElement[bool],
    of_works: ColumnElement[bool] = ALL,
    of_notices: ColumnElement[bool] = ALL,
) -> tuple[NodeNow, ...]:
    """These nodes (None: all), absent ones and those with an open notice, in natural order. `lately`, on `works`: where
    their latest verdicts are; `of_works`: those that count, of any time; `of_notices`, on `notices`: those that count.
    """
    is_open = of_notices & notices.c.closed_at.is_(None) & (notices.c.node != "")
    query = select_notices().where(is_open).order_by(notices.c.opened_at, notices.c.id)
    open_notices = grouped((notice.node, notice) for notice in map(notice_of, connection.execute(query)))
    latest, absent = _latest(connection, lately, names), _absent(connection, lately)
    marked = marked_nodes(connection)

    def node_now(name: str) -> NodeNow:
        rows, of_node = latest.get(name, ()), open_notices.get(name, ())
        at = rows[0].at if rows else last_judged(connection, name, of_works)
        return NodeNow(
            _state(name, rows, at, of_node, absent.get(name), now, fresh),
            at,
            len(of_node),
            works=tuple(
                WorkFigures(row.group_id, row.gpu_name, *(row._mapping[name] for name in FIGURES))
                for row in rows
                if not row.is_drill
            ),
            probe_shares_pct=_probe_shares_pct(rows),
            is_marked=name in marked,
        )

    return tuple(map(node_now, sorted({*(latest if names is None else names), *open_notices, *absent}, key=natural)))


def _state(
    name: str,
    rows: Sequence[Row[Any]],
    judged_at: datetime | None,
    of_node: Sequence[Notice],
    absent_at: datetime | None,
    now: datetime,
    fresh: timedelta,
) -> NodeState:
    """The latest verdict, or an open red notice's where that is better news; since the notice opened."""
    latest = NO_VERDICT._replace(node=name)
    if rows:
        worst = next((row for row in rows if (row.state, row.why) == (row.node_state, row.node_why)), rows[0])
        latest = NodeState(name, State(worst.node_state), Why(worst.node_why), worst.reason or "", worst.at)
    if latest.state is State.LOOK and (looks := [notice for notice in of_node if notice.state is State.LOOK]):
        latest = latest._replace(since=looks[0].node_state.since)
    if absent_at is not None and (judged_at is None or judged_at < absent_at):
        told = next((notice.node_state for notice in of_node if notice.why is Why.ABSENT), None)
        latest = told or NodeState(name, State.LOOK, Why.ABSENT, since=absent_at)
        judged_at = absent_at
    red = [notice for notice in of_node if notice.state is State.RED]
    unseen = [notice for notice in red if notice.acknowledgement is None]
    if red:
        first = (unseen or red)[0].node_state
        told = latest if latest.state is State.RED else first
        latest = told._replace(reason=one_line(told.reason), since=first.since)
    if latest.state is State.RED:  # until its notice closes: no later look, noise or age hides it
        known = latest._replace(state=State.ACKNOWLEDGED, why=Why.ACKNOWLEDGED)
        return known if red and not unseen else latest
    if judged_at is None or now - judged_at > fresh:
        reason = f"last on {day(judged_at)}" if judged_at else "never"
        return latest._replace(state=State.NOT_CHECKED, why=Why.STALE, reason=reason, since=judged_at)
    return latest


def _absent(connection: Connection, lately: ColumnElement[bool]) -> Mapping[str, datetime]:
    """Node -> when the newest campaign of a DAG found it absent."""
    newest = select(works.c.suite, func.max(works.c.at).label("at")).where(lately).group_by(works.c.suite).subquery()
    is_newest = (campaigns.c.suite == newest.c.suite) & (campaigns.c.finished_at == newest.c.at)
    rows = connection.execute(select(campaigns.c.absent, campaigns.c.finished_at).join(newest, is_newest))
    return {name: row.finished_at for row in rows for name in absent_nodes(row.absent)}


def _latest(
    connection: Connection, lately: ColumnElement[bool], names: Collection[str] | None
) -> Mapping[str, Sequence[Row[Any]]]:
    """Node -> its verdicts of the latest campaign that judged it, one for each work. `names`: None for all. Campaigns
    are read newest first until each name was seen, as most are in the last one; of each only the names not yet seen.
    """
    columns = ("node", "state", "why", "reason", "node_state", "node_why", "is_drill", *FIGURES)
    query = (
        select(
            *(node_verdicts.c[name] for name in columns),
            *(works.c[name] for name in ("campaign_id", "group_id", "gpu_name", "at")),
            *(runs.c[each.name] for each in RATE_FIGURES),
        )
        .join(works, works.c.id == node_verdicts.c.work_id)
        .outerjoin(runs, (runs.c.campaign_id == works.c.campaign_id) & (runs.c.run_id == node_verdicts.c.run_id))
        .order_by(works.c.at, works.c.id)
    )
    newest_first = select(works.c.campaign_id, works.c.id).where(lately).order_by(works.c.at.desc(), works.c.id.desc())
    latest: dict[str, Sequence[Row[Any]]] = {}
    for work_ids in grouped((row[0], row[1]) for row in connection.execute(newest_first)).values():
        missing = None if names is None else set(names) - latest.keys()
        if missing is not None and not missing:
            break
        of_missing = true() if missing is None else node_verdicts.c.node.in_(missing)
        rows = connection.execute(query.where(node_verdicts.c.work_id.in_(work_ids), of_missing))
        for node, verdicts in grouped((row.node, row) for row in rows).items():
            latest.setdefault(node, verdicts)
    return latest


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
