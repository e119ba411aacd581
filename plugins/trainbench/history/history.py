"""The history: every run and every notice in SQL, so that a node can be compared with its own past.

SQLite in the store by default, PostgreSQL by URL. `trainbench reindex` rebuilds it from the artefacts.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import NamedTuple

from sqlalchemy import Engine, delete, func, insert, select

from bench_image.contract.result import Status
from trainbench.core.baselines import Baseline
from trainbench.core.states import NodeState
from trainbench.history.baselines import accept, read_baselines, revoke
from trainbench.history.database import CONNECT_TIMEOUT_S, connect, migrate, transaction
from trainbench.history.fleet_state import FleetState, nodes_now, read_fleet_state
from trainbench.history.marks import end_marks, update_marks
from trainbench.history.node_histories import read_node_records
from trainbench.history.notices import (
    Acknowledgement,
    Notice,
    acknowledge,
    is_old,
    notice_of,
    select_notices,
    update_notices,
)
from trainbench.history.summaries import record_summary, rows, summarise, with_known_gpus
from trainbench.history.tables import OURS, notices, runs, works
from trainbench.judging.past import NodeRecord
from trainbench.results.artefacts import Store
from trainbench.results.campaign import IMPORTED_SUITE, Campaign

ROWS_AT_ONCE = 1000
MAX_PAST_RUNS = 200  # of each work, the latest ones


class PastRun(NamedTuple):
    gpu_name: str | None  # None: on a CPU
    seconds: float  # from process start to result


def open_history(url: str | None = None, store: Store | None = None, timeout_s: int = CONNECT_TIMEOUT_S) -> History:
    """`url`, else the environment's TRAINBENCH_HISTORY_URL, else an SQLite file in the store. An empty database
    gets its schema first; any number of processes may open it at once. Raises HistoryError.
    """
    engine = connect(url, store, timeout_s)
    migrate(engine)
    return History(engine)


def existing_history(url: str | None = None, store: Store | None = None) -> History | None:
    """The history as it is, without its schema being made or checked; None: its file does not exist. Raises
    HistoryError.
    """
    engine = connect(url, store)
    is_file = engine.dialect.name == "sqlite"
    return None if is_file and not Path(str(engine.url.database)).is_file() else History(engine)


@dataclass(frozen=True)
class History:
    engine: Engine

    def record(self, campaign: Campaign) -> None:
        """Record a campaign's runs, verdicts and notices in one transaction, replacing an earlier record of it. Of an
        imported campaign only the runs: what others measured is neither our fleet's state nor its past.
        """
        if campaign.is_imported:
            unjudged = {"suite": IMPORTED_SUITE, "groups": (), "findings": ()}
            campaign = campaign.model_copy(update=unjudged)
        made = with_known_gpus(rows(campaign))
        works = summarise(campaign, made)
        with transaction(self.engine, write=True) as connection:
            connection.execute(delete(runs).where(runs.c.campaign_id == campaign.campaign_id))
            work_ids = record_summary(connection, campaign, made, works)
            for first in range(0, len(made), ROWS_AT_ONCE):
                some = made[first : first + ROWS_AT_ONCE]
                connection.execute(insert(runs), [{**row, "work_id": work_ids[row["run_id"]]} for row in some])
            update_notices(connection, campaign, works)
            if not is_old(connection, campaign):
                update_marks(connection, campaign)

    def node_records(self, fingerprints: Collection[str], campaign_id: str, before: datetime) -> tuple[NodeRecord, ...]:
        """The campaigns of each node before that one at these works, under any name, driver and image."""
        with transaction(self.engine) as connection:
            return read_node_records(connection, fingerprints, campaign_id, before)

    def baselines(self) -> tuple[Baseline, ...]:
        """All accepted baselines, revoked ones included, the oldest first."""
        with transaction(self.engine) as connection:
            return read_baselines(connection)

    def accept_baseline(
        self,
        node: str | None,
        who: str,
        why: str,
        at: datetime,
        since: datetime | None = None,
        fingerprint: str | None = None,
    ) -> Baseline:
        """See `history.baselines.accept`. Raises EntryError."""
        with transaction(self.engine, write=True) as connection:
            return accept(connection, node, who, why, at, since, fingerprint)

    def revoke_baseline(self, baseline_id: int, who: str, at: datetime) -> Baseline:
        """Revoke an accepted baseline. Raises EntryError."""
        with transaction(self.engine, write=True) as connection:
            return revoke(connection, baseline_id, who, at)

    def acknowledge(self, notice_id: int, who: str, reason: str, at: datetime) -> Acknowledgement:
        """See `history.notices.acknowledge`. Raises EntryError."""
        with transaction(self.engine, write=True) as connection:
            return acknowledge(connection, notice_id, who, reason, at)

    def last_measured(self, since: datetime) -> dict[str, datetime]:
        """Node -> start of its last valid run, for nodes with a run since that time; drills do not count."""
        query = (
            select(runs.c.node, func.max(runs.c.started_at))
            .where(OURS, (runs.c.started_at >= since) & (runs.c.status == Status.OK.value) & ~runs.c.is_drill)
            .group_by(runs.c.node)
        )
        with transaction(self.engine) as connection:
            return {node: started_at for node, started_at in connection.execute(query)}

    def has_later(self, campaign: Campaign) -> bool:
        """Whether a later campaign of its DAG is recorded."""
        with transaction(self.engine) as connection:
            return is_old(connection, campaign)

    def end_marks(self, nodes: Sequence[str], who: str, at: datetime) -> None:
        """End the marks of these nodes, after somebody freed them."""
        with transaction(self.engine, write=True) as connection:
            end_marks(connection, nodes, who, at)

    def past_runs(self, group_ids: Collection[str]) -> Mapping[str, tuple[PastRun, ...]]:
        """Group id, which ends in the fingerprint of work and measurement -> the latest runs of it that ended well. A
        node whose clock is wrong has runs of no duration, since times are moved into the campaign's; they do not count.
        """
        columns, past = (runs.c.gpu_name, runs.c.started_at, runs.c.finished_at), {}
        ended_well = (runs.c.status == Status.OK.value) & (runs.c.finished_at > runs.c.started_at)
        newest = runs.c.started_at.desc()
        with transaction(self.engine) as connection:
            for group_id in sorted(group_ids):
                valid = OURS & (runs.c.group_id == group_id) & ended_well & ~runs.c.is_drill
                latest = connection.execute(select(*columns).where(valid).order_by(newest).limit(MAX_PAST_RUNS))
                past[group_id] = tuple(PastRun(gpu, (ended - began).total_seconds()) for gpu, began, ended in latest)
        return past

    def open_notices(self) -> tuple[Notice, ...]:
        """All open notices, the oldest first."""
        query = select_notices().where(notices.c.closed_at.is_(None)).order_by(notices.c.opened_at, notices.c.node)
        with transaction(self.engine) as connection:
            return tuple(map(notice_of, connection.execute(query)))

    def fleet_state(self, now: datetime, fresh: timedelta) -> FleetState:
        """Each node as it stands now; a verdict that is older than `fresh` is stale."""
        with transaction(self.engine) as connection:
            return read_fleet_state(connection, now, fresh)

    def states_of(self, nodes: Collection[str], now: datetime, fresh: timedelta) -> tuple[NodeState, ...]:
        """The states of these nodes now, in natural order; a verdict that is older than `fresh` is stale."""
        lately = works.c.at >= now - fresh
        with transaction(self.engine) as connection:
            return tuple(node.state for node in nodes_now(connection, nodes, now, fresh, lately) if node.node in nodes)
