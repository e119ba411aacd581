"""What happened before: every run and every breach in SQL, so that a node can be compared with its own past.

SQLite beside the store by default, PostgreSQL by URL. It can be rebuilt from the artefacts (`History.reindex`).
"""

from __future__ import annotations

import hashlib
import json
import statistics
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from pydantic import AwareDatetime
from sqlalchemy import Connection, Engine, Integer, Row, Select, bindparam, delete, func, insert, or_, select, update
from sqlalchemy.exc import SQLAlchemyError

from bench_control.artefacts import Store, StoreError
from bench_control.campaign import Campaign
from bench_control.cost import RunCost
from bench_control.energy import measured_joules
from bench_control.history_database import HistoryError, connect, migrate
from bench_control.history_tables import breaches, runs
from bench_control.verdicts import RED, Metric, NodeVerdict, State
from bench_image.contract import Frozen, RunResult, Status, fingerprint

BASELINE_CAMPAIGNS = 30
WELL = frozenset({State.OK, State.NOTICE})
NOT_A_BASELINE = RED | {State.BUSY}


class Breach(Frozen):
    """A node that was found red and is not yet well again; `closed_at` is None while it is open."""

    node: str
    group_id: str
    campaign_id: str  # that opened it
    state: State
    metric: Metric | None  # None: the node failed or was missing
    deviation: float | None  # percent of the reference; degrees C for temperature
    reason: str
    is_drill: bool
    opened_at: AwareDatetime
    closed_at: AwareDatetime | None


@dataclass(frozen=True)
class Reindexed:
    num_campaigns: int
    unreadable: tuple[str, ...]  # one sentence each


def history_key(result: RunResult) -> str | None:
    """12 hex digits that are equal when a node may be compared with its own past: same work, image, driver, GPU, torch.

    torch's version stands beside the image because a tag can move. None for a run that has no context.
    """
    if result.context is None:
        return None
    same = {
        "fingerprint": fingerprint(result.work),
        "image": result.context.image,
        "driver": result.context.driver,
        "gpus": sorted(gpu.name for gpu in result.context.gpus),
        "torch": result.context.libraries.get("torch"),
    }
    return hashlib.sha256(json.dumps(same, sort_keys=True).encode()).hexdigest()[:12]


def open_history(url: str | None = None, store: Store | None = None) -> History:
    """`url`, else the environment's TRAINBENCH_HISTORY_URL, else an SQLite file beside the store. The schema is brought
    up to date first; any number of processes may do so at once. Raises HistoryError.
    """
    engine = connect(url, store)
    migrate(engine)
    return History(engine)


@dataclass(frozen=True)
class History:
    engine: Engine

    def record(self, campaign: Campaign) -> None:
        """All runs and breaches of a campaign, in one transaction; recording it again replaces what it said before."""
        rows = _rows(campaign)
        with self._transaction(write=True) as connection:
            connection.execute(delete(runs).where(runs.c.campaign_id == campaign.campaign_id))
            if rows:
                connection.execute(insert(runs), rows)
            _update_breaches(connection, campaign)

    def past(self, result: RunResult, limit: int = BASELINE_CAMPAIGNS) -> list[float]:
        """What the same node reached before with the same `history_key`: the median samples/s of each of the last
        `limit` earlier campaigns, oldest first. Only healthy runs count: status ok, not judged red or busy, not slower
        than their own past, no drill.
        """
        asked = {
            "node": result.spec.node,
            "history_key": history_key(result),
            "before": result.started_at,
            "campaign_id": result.spec.campaign_id,
            "limit": limit,
        }
        by_campaign: dict[str, list[float]] = {}
        with self._transaction() as connection:
            for campaign_id, samples_per_second in connection.execute(PAST, asked):
                by_campaign.setdefault(campaign_id, []).append(samples_per_second)
        return [statistics.median(values) for values in by_campaign.values()]

    def last_measured(self, since: datetime) -> dict[str, datetime]:
        """Node -> when its last valid run began, for the nodes that had one since then; drills do not count."""
        query = (
            select(runs.c.node, func.max(runs.c.started_at))
            .where((runs.c.started_at >= since) & (runs.c.status == Status.OK.value) & ~runs.c.is_drill)
            .group_by(runs.c.node)
        )
        with self._transaction() as connection:
            return {node: started_at for node, started_at in connection.execute(query)}

    def open_breaches(self) -> tuple[Breach, ...]:
        """Oldest first."""
        columns = [breaches.c[name] for name in Breach.model_fields]
        query = select(*columns).where(breaches.c.closed_at.is_(None)).order_by(breaches.c.opened_at, breaches.c.node)
        with self._transaction() as connection:
            return tuple(Breach.model_validate(row._asdict()) for row in connection.execute(query))

    def reindex(self, store: Store) -> Reindexed:
        """Record every campaign of the store again, oldest first. Rows whose artefacts are gone stay as they are."""
        campaigns, unreadable = [], []
        for campaign_id in store.campaign_ids():
            try:
                campaigns.append(store.read_campaign(campaign_id))
            except StoreError as error:
                unreadable.append(str(error))
        for campaign in sorted(campaigns, key=lambda campaign: campaign.finished_at):
            self.record(campaign)
        return Reindexed(len(campaigns), tuple(unreadable))

    @contextmanager
    def _transaction(self, write: bool = False) -> Iterator[Connection]:
        try:
            with self.engine.execution_options(is_write=write).begin() as connection:
                yield connection
        except SQLAlchemyError as error:
            raise HistoryError.of(self.engine.url, error) from None


def _past() -> Select[str, float]:
    healthy = (runs.c.node == bindparam("node")) & (runs.c.history_key == bindparam("history_key")) & runs.c.is_baseline
    earlier = (runs.c.started_at < bindparam("before")) & (runs.c.campaign_id != bindparam("campaign_id"))
    began_at = func.min(runs.c.started_at).label("began_at")
    recent = (
        select(runs.c.campaign_id, began_at)
        .where(healthy & earlier)
        .group_by(runs.c.campaign_id)
        .order_by(began_at.desc())
        .limit(bindparam("limit", type_=Integer))
        .subquery()
    )
    return (
        select(runs.c.campaign_id, runs.c.samples_per_second)
        .join(recent, recent.c.campaign_id == runs.c.campaign_id)
        .where(healthy)
        .order_by(recent.c.began_at, runs.c.campaign_id)
    )


PAST = _past()  # built once: a large campaign asks it thousands of times


def _rows(campaign: Campaign) -> list[dict[str, Any]]:
    states = {(group.group_id, node.node): node.state for group in campaign.groups for node in group.nodes}
    pasts = {(verdict.group_id, verdict.node): verdict.state for verdict in campaign.history}
    rows = []
    for result, cost in zip(campaign.results, campaign.costs, strict=True):
        subject = (result.spec.group_id, result.spec.node)
        row = _row(result, cost, states.get(subject), pasts.get(subject))
        rows.append({"campaign_id": campaign.campaign_id, "suite": campaign.suite, **row})
    return rows


def _row(result: RunResult, cost: RunCost, state: State | None, past: State | None) -> dict[str, Any]:
    spec, context = result.spec, result.context
    key = history_key(result)
    temperatures = [gpu.temperature_mean_c for gpu in result.telemetry.gpus if gpu.temperature_mean_c is not None]
    return {
        "run_id": spec.run_id,
        "group_id": spec.group_id,
        "node": spec.node,
        "round": spec.round,
        "model": spec.model,
        "recipe": spec.recipe.value,
        "strategy": spec.strategy.value,
        "preset": spec.preset.value,
        "fingerprint": fingerprint(result.work),
        "history_key": key,
        "gpu_name": context.gpus[0].name if context and context.gpus else None,
        "driver": context.driver if context else None,
        "image": context.image if context else None,
        "torch": context.libraries.get("torch") if context else None,
        "status": result.status.value,
        "state": state.value if state else None,
        "history_state": past.value if past else None,
        "is_drill": spec.drill is not None,
        "is_baseline": key is not None and _is_healthy(result, state, past),
        "started_at": result.started_at,
        "finished_at": result.finished_at,
        "samples_per_second": result.performance.samples_per_second,
        "tokens_per_second": result.performance.tokens_per_second,
        "memory_gb": result.memory.peak_during_training,
        "temperature_c": max(temperatures, default=None),
        "mfu_pct": result.performance.mfu_pct,
        "gpu_hours": cost.gpu_hours,
        "run_usd": cost.run_usd,
        "usd_per_1000_samples": cost.usd_per_1000_samples,
        **_paid_for(result, cost),
    }


def _paid_for(result: RunResult, cost: RunCost) -> dict[str, Any]:
    size = result.work.micro_batch_size
    return {
        "peers": ",".join(result.spec.peers),
        "world_size": result.spec.world_size,
        "micro_batch_size": size if isinstance(size, int) else None,
        "seq_length": result.spec.seq_length,
        "usd_per_gpu_hour": cost.usd_per_gpu_hour,
        "price_source": cost.price_source,
        "energy_j": measured_joules(result),
        "energy_per_sample_j": result.telemetry.energy_per_sample_j,
    }


def _is_healthy(result: RunResult, state: State | None, past: State | None) -> bool:
    is_judged_well = state not in NOT_A_BASELINE and past is not State.BREACH
    return result.status is Status.OK and result.spec.drill is None and is_judged_well


def _update_breaches(connection: Connection, campaign: Campaign) -> None:
    """A red node opens a breach unless one covers this moment; a node that is well closes the ones that do."""
    at = campaign.finished_at
    not_over = select(breaches).where(or_(breaches.c.closed_at.is_(None), breaches.c.closed_at > at))
    rows = connection.execute(not_over.order_by(breaches.c.opened_at.desc())).all()
    earliest = {(row.node, row.group_id, row.is_drill): row for row in rows}
    for group in campaign.groups:
        for verdict in group.nodes:
            keys = [(verdict.node, group.group_id, is_drill) for is_drill in (False, True)]
            if verdict.state in WELL:
                _close(connection, [earliest[key] for key in keys if key in earliest], campaign)
            elif verdict.state in RED:
                _open(connection, earliest.get(keys[verdict.is_drill]), verdict, group.group_id, campaign)


def _close(connection: Connection, rows: Sequence[Row[Any]], campaign: Campaign) -> None:
    end = {"closed_at": campaign.finished_at, "closed_by_campaign_id": campaign.campaign_id}
    for row in rows:
        if row.opened_at <= campaign.finished_at:
            connection.execute(update(breaches).where(breaches.c.id == row.id).values(end))


def _open(
    connection: Connection, row: Row[Any] | None, verdict: NodeVerdict, group_id: str, campaign: Campaign
) -> None:
    red = next((metric for metric in verdict.metrics if metric.state is State.BREACH), None)
    values = {
        "node": verdict.node,
        "group_id": group_id,
        "campaign_id": campaign.campaign_id,
        "state": verdict.state.value,
        "metric": red.metric.value if red else None,
        "deviation": red.deviation if red else None,
        "reason": verdict.reason,
        "is_drill": verdict.is_drill,
        "opened_at": campaign.finished_at,
    }
    if row is None:
        connection.execute(insert(breaches).values(values))
    elif row.campaign_id == campaign.campaign_id or row.opened_at > campaign.finished_at:
        # The same campaign again, or an older one recorded late: the breach began here.
        connection.execute(update(breaches).where(breaches.c.id == row.id).values(values))
