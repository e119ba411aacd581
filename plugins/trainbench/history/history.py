"""The history: every run and every breach in SQL, so that a node can be compared with its own past.

SQLite in the store by default, PostgreSQL by URL. `trainbench reindex` rebuilds it from the artefacts.
"""

from __future__ import annotations

import statistics
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path

from sqlalchemy import (
    ColumnElement,
    Connection,
    Engine,
    Integer,
    Select,
    bindparam,
    delete,
    func,
    insert,
    select,
    update,
)
from sqlalchemy.exc import SQLAlchemyError

from bench_image.contract.result import RunResult, Status
from trainbench.core.baselines import Baseline, in_force
from trainbench.core.grouping import grouped
from trainbench.core.verdicts import State
from trainbench.history.baselines import accept, read_baselines, revoke
from trainbench.history.breach import Breach, breach_of, select_breaches
from trainbench.history.breaches import close_removed, update_breaches
from trainbench.history.database import CONNECT_TIMEOUT_S, HistoryError, connect, migrate
from trainbench.history.fleet_state import FleetState, read_fleet_state
from trainbench.history.node_histories import read_node_records
from trainbench.history.notice_tables import warnings
from trainbench.history.past_durations import PastRun, read_past_runs
from trainbench.history.run_rows import NOT_A_BASELINE, history_key, rows
from trainbench.history.run_tables import OURS, breaches, runs
from trainbench.history.slowdowns import read_slowdowns
from trainbench.history.streaks import read_streaks
from trainbench.history.summaries import record_summary, summarise, with_known_gpus
from trainbench.history.warnings import is_old, update_warnings
from trainbench.judging.over_time.lasting_slowdowns import Slowdown
from trainbench.judging.over_time.node_history import NodeRecord
from trainbench.judging.over_time.undecided_streaks import Streak
from trainbench.judging.warning_findings import WarningKind
from trainbench.results.artefacts import Store
from trainbench.results.campaign import IMPORTED_SUITE, Campaign

BASELINE_CAMPAIGNS = 30
ROWS_AT_ONCE = 1000


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
        """Record a campaign's runs, verdicts and breaches in one transaction, replacing an earlier record of it. Of an
        imported campaign only the runs: what others measured is neither our fleet's state nor its past.
        """
        if campaign.is_imported:
            unjudged = {"suite": IMPORTED_SUITE, "groups": (), "history": (), "findings": ()}
            campaign = campaign.model_copy(update=unjudged)
        made = with_known_gpus(rows(campaign))
        works = summarise(campaign, made)
        with self._transaction(write=True) as connection:
            connection.execute(delete(runs).where(runs.c.campaign_id == campaign.campaign_id))
            work_ids = record_summary(connection, campaign, made, works)
            for first in range(0, len(made), ROWS_AT_ONCE):
                some = made[first : first + ROWS_AT_ONCE]
                connection.execute(insert(runs), [{**row, "work_id": work_ids[row["run_id"]]} for row in some])
            update_breaches(connection, campaign, works)
            close_removed(connection, campaign)
            update_warnings(connection, campaign)

    def baseline_rates(self, results: Sequence[RunResult], limit: int = BASELINE_CAMPAIGNS) -> list[list[float]]:
        """For each result its node's earlier rates with the same `history_key`: the median samples/s of each of the
        last `limit` earlier campaigns, oldest first.

        Only healthy runs count: status ok, not judged red or busy, not slower than their own past, no drill. With an
        accepted baseline, runs before it do not count, and runs that were slow until its acceptance do. One connection
        serves all queries, because opening one takes longer than a query.
        """
        with self._transaction() as connection:
            accepted = read_baselines(connection)
            return [_past_of(connection, result, limit, accepted) for result in results]

    def node_records(self, fingerprints: Collection[str], campaign_id: str, before: datetime) -> tuple[NodeRecord, ...]:
        """Each node's last campaigns before that one at these works, with any driver and image.

        `history_key` starts a new baseline with each update, which hides a slowdown by the update; these records show
        it.
        """
        with self._transaction() as connection:
            records, accepted = (
                read_node_records(connection, fingerprints, campaign_id, before),
                read_baselines(connection),
            )
        return tuple(record for record in records if not _is_put_aside(record, accepted, before))

    def baselines(self) -> tuple[Baseline, ...]:
        """All accepted baselines, revoked ones included, the oldest first."""
        with self._transaction() as connection:
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
        """See `history_baselines.accept`. Raises BaselineError."""
        with self._transaction(write=True) as connection:
            return accept(connection, node, who, why, at, since, fingerprint)

    def revoke_baseline(self, baseline_id: int, who: str, at: datetime) -> Baseline:
        """Revoke an accepted baseline. Raises BaselineError."""
        with self._transaction(write=True) as connection:
            return revoke(connection, baseline_id, who, at)

    def last_measured(self, since: datetime) -> dict[str, datetime]:
        """Node -> start of its last valid run, for nodes with a run since that time; drills do not count."""
        query = (
            select(runs.c.node, func.max(runs.c.started_at))
            .where(OURS, (runs.c.started_at >= since) & (runs.c.status == Status.OK.value) & ~runs.c.is_drill)
            .group_by(runs.c.node)
        )
        with self._transaction() as connection:
            return {node: started_at for node, started_at in connection.execute(query)}

    def undecided_before(self, suite: str, campaign_id: str, before: datetime) -> dict[str, Streak]:
        """Node -> its streak without a verdict, for nodes not judged by the DAG's last campaign before that time."""
        with self._transaction() as connection:
            return read_streaks(connection, suite, campaign_id, before)

    def slower_before(self, suite: str, campaign_id: str, before: datetime) -> tuple[Slowdown, ...]:
        """The DAG's slowdowns with an open warning at that time, by node and work."""
        with self._transaction() as connection:
            return read_slowdowns(connection, suite, campaign_id, before)

    def has_later(self, campaign: Campaign) -> bool:
        """Whether a later campaign of its DAG is recorded."""
        with self._transaction() as connection:
            return is_old(connection, campaign)

    def end_marks(self, nodes: Sequence[str], who: str, at: datetime) -> None:
        """Close the warnings that these nodes are marked, after somebody freed them."""
        is_mark = (
            (warnings.c.kind == WarningKind.MARKED.value) & warnings.c.node.in_(nodes) & warnings.c.closed_at.is_(None)
        )
        with self._transaction(write=True) as connection:
            connection.execute(update(warnings).where(is_mark).values(closed_at=at, ended=f"freed by {who}"))

    def past_runs(self, group_ids: Collection[str]) -> Mapping[str, tuple[PastRun, ...]]:
        """Group id -> the latest runs of this work that ended well, with their seconds."""
        with self._transaction() as connection:
            return read_past_runs(connection, group_ids)

    def open_breaches(self) -> tuple[Breach, ...]:
        """All open breaches, the oldest first."""
        is_open = breaches.c.closed_at.is_(None)
        query = select_breaches().where(is_open).order_by(breaches.c.opened_at, breaches.c.node)
        with self._transaction() as connection:
            return tuple(map(breach_of, connection.execute(query)))

    def fleet_state(self, now: datetime, fresh: timedelta) -> FleetState:
        """Each node as it stands now; a verdict that is older than `fresh` is stale."""
        with self._transaction() as connection:
            return read_fleet_state(connection, now, fresh)

    @contextmanager
    def _transaction(self, write: bool = False) -> Iterator[Connection]:
        try:
            with self.engine.execution_options(is_write=write).begin() as connection:
                yield connection
        except SQLAlchemyError as error:
            raise HistoryError.of(self.engine.url, error) from None


def _is_put_aside(record: NodeRecord, accepted: Sequence[Baseline], at: datetime) -> bool:
    baseline = in_force(accepted, record.node, record.fingerprint, at)
    return baseline is not None and record.at < baseline.since


def _past_of(connection: Connection, result: RunResult, limit: int, accepted: Sequence[Baseline] = ()) -> list[float]:
    baseline = (
        in_force(accepted, result.spec.identity.node, result.effective_spec.fingerprint, result.started_at)
        if accepted
        else None
    )
    parameters = {
        "node": result.spec.identity.node,
        "history_key": history_key(result),
        "before": result.started_at,
        "campaign_id": result.spec.identity.campaign_id,
        "limit": limit,
    }
    if baseline:
        parameters |= {"since": baseline.since, "accepted_at": baseline.accepted_at}
    by_campaign = grouped(connection.execute(PAST_SINCE if baseline else PAST, parameters))
    return [statistics.median(values) for values in by_campaign.values()]


def _past(counts: ColumnElement[bool]) -> Select[str, float]:
    """The query of a node's past rates. `counts`: the condition of the runs that count."""
    healthy = (runs.c.node == bindparam("node")) & (runs.c.history_key == bindparam("history_key")) & counts
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
        select(runs.c.campaign_id, runs.c.judged_samples_per_second)
        .join(recent, recent.c.campaign_id == runs.c.campaign_id)
        .where(healthy)
        .order_by(recent.c.began_at, runs.c.campaign_id)
    )


def _counts_since() -> ColumnElement[bool]:
    """The runs that count since an accepted level: healthy ones, and those too slow until it was accepted."""
    was_slow = (runs.c.history_state == State.BREACH.value) & (runs.c.started_at <= bindparam("accepted_at"))
    is_valid = (runs.c.status == Status.OK.value) & ~runs.c.is_drill
    not_red = runs.c.state.is_(None) | runs.c.state.not_in([state.value for state in NOT_A_BASELINE])
    return (runs.c.started_at >= bindparam("since")) & (runs.c.is_baseline | (was_slow & is_valid & not_red))


# built once, because a large campaign runs them thousands of times
PAST = _past(runs.c.is_baseline.is_(True))
PAST_SINCE = _past(_counts_since())
