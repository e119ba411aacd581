"""Every read of the pages. Each is a transaction with a limit of rows; the reads of a page can
share one.

pages = Pages(open_engine(url, store), dag_ids)   dag_ids: the DAGs that this person may see
pages.overview(Filters(), today)                  raises HistoryError when the database is away
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, timedelta
from functools import lru_cache
from typing import Concatenate, ParamSpec, TypeVar

from sqlalchemy import Connection, Engine, select

from trainbench.core.baselines import Baseline
from trainbench.core.states import FRESH
from trainbench.history.baselines import read_baselines
from trainbench.history.database import HistoryError, transaction
from trainbench.history.history import open_history
from trainbench.history.notices import Notice
from trainbench.history.tables import campaigns, node_verdicts, nodes, works
from trainbench.pages.reads import comparisons, fleet, node_trends, notices, rows, run_list
from trainbench.pages.reads.filters import NAMES, Filters, Scope, is_text, scope_of
from trainbench.results.artefacts import Store

HEAT_MAP_DAYS = 30
MAX_CHOICES = 500
MAX_CAMPAIGNS = 60  # the newest, as suggestions
KEEP_FAILURE_S = 3.0
CONNECT_TIMEOUT_S = 5  # a person waits
P = ParamSpec("P")
T = TypeVar("T")
_opening = threading.Lock()
_failed: dict[tuple[str | None, Store | None], tuple[float, str]] = {}  # (time of the next try, reason)


def open_engine(url: str | None, store: Store | None) -> Engine:
    """The engine of `open_history`; each process checks the schema once. Raises HistoryError, without another try
    within KEEP_FAILURE_S after a failure, so that requests do not wait one after the other.
    """
    with _opening:
        until, reason = _failed.get((url, store), (0.0, ""))
        if time.monotonic() < until:
            raise HistoryError(reason)
        try:
            return _opened(url, store)
        except HistoryError as error:
            _failed[url, store] = time.monotonic() + KEEP_FAILURE_S, str(error)
            raise


@lru_cache(maxsize=4)
def _opened(url: str | None, store: Store | None) -> Engine:
    return open_history(url, store, CONNECT_TIMEOUT_S).engine


@dataclass(frozen=True)
class Pages:
    """The reads of one person. Rows of DAGs outside `dag_ids` appear in no list, number or choice."""

    engine: Engine
    dag_ids: Collection[str]
    connection: Connection | None = None  # shared by all reads; None: each opens its own

    @contextmanager
    def at_once(self) -> Iterator[Pages]:
        """The same pages with one transaction for all reads, which saves connections to a database server."""
        with self._connected() as connection:
            yield replace(self, connection=connection)

    def choices(self) -> rows.Choices:
        """The choices of the filters: all benchmarked values."""

        def values_of(connection: Connection, scope: Scope, name: str) -> tuple[str, ...]:
            known = select(works.c[name]).where(scope.works, works.c[name].is_not(None)).distinct()
            return tuple(connection.execute(known.order_by(works.c[name]).limit(MAX_CHOICES)).scalars())

        with self._reading(Filters()) as (connection, scope):
            named = select(nodes.c.node).where(scope.nodes).distinct().order_by(nodes.c.node).limit(MAX_CHOICES)
            ended = select(campaigns.c.campaign_id).where(campaigns.c.suite.in_(scope.suites))
            ended = ended.order_by(campaigns.c.finished_at.desc()).limit(MAX_CAMPAIGNS)
            names, ids = (tuple(connection.execute(query).scalars()) for query in (named, ended))
            gpu_names, models, recipes, strategies = (values_of(connection, scope, name) for name in NAMES)
            return rows.Choices(gpu_names, models, recipes, strategies, names, ids, scope.suites)

    def overview(
        self, filters: Filters, today: date, now: datetime | None = None, fresh: timedelta = FRESH
    ) -> rows.Overview:
        """The key figures. `today` in UTC. `now`: by default the end of that day."""
        now = now or datetime.combine(today + timedelta(days=1), datetime.min.time(), UTC)
        return self._read(filters, fleet.overview, today, now, fresh)

    def heat_map(
        self,
        filters: Filters,
        today: date,
        days: int = HEAT_MAP_DAYS,
        page: int = 1,
        only: Collection[str] | None = None,
    ) -> rows.HeatMap:
        """`only`: of these nodes."""
        return self._read(filters, fleet.heat_map, today, days, page, only)

    def heat_csv(self, filters: Filters, today: date, days: int, only: Collection[str] | None = None) -> Iterator[str]:
        """All rows of the map, piece by piece."""
        with self._reading(filters) as (connection, scope):
            yield from fleet.heat_csv(connection, scope, today, days, only)

    def open_notices(self, filters: Filters) -> rows.Notices:
        return self._read(filters, notices.open_notices)

    def closed_notices(self, filters: Filters, most: int | None = None) -> rows.Notices:
        return self._read(filters, notices.closed_notices, most)

    def notice(self, notice_id: int) -> Notice | None:
        if not 0 < notice_id <= notices.MAX_ID:
            return None
        return self._read(Filters(), notices.notice_by_id, notice_id)

    def node(
        self, name: str, filters: Filters, now: datetime | None = None, fresh: timedelta = FRESH
    ) -> rows.NodePage | None:
        """The node's page; None: this person may see no verdict on it."""
        if not is_text(name):
            return None
        return self._read(filters, node_trends.node_page, name, now or datetime.now(UTC), fresh)

    def baselines(self) -> tuple[Baseline, ...]:
        """All accepted baselines, the oldest first."""
        with self._connected() as connection:
            return read_baselines(connection)

    def sees(self, node: str | None) -> bool:
        """Whether this person may see a verdict on the node; None: on any."""
        if node is not None and not is_text(node):
            return False
        with self._reading(Filters()) as (connection, scope):
            seen = select(node_verdicts.c.node).join(works, works.c.id == node_verdicts.c.work_id).where(scope.works)
            seen = seen if node is None else seen.where(node_verdicts.c.node == node)
            return connection.execute(seen.limit(1)).first() is not None

    def suites_of(self, node: str | None, since: datetime) -> tuple[str, ...]:
        """All DAGs that judged the node since that time, also unreadable ones; None: any node."""
        judged = select(works.c.suite).join(node_verdicts, works.c.id == node_verdicts.c.work_id)
        judged = judged.where(works.c.at >= since)
        judged = judged if node is None else judged.where(node_verdicts.c.node == node)
        with self._connected() as connection:
            return tuple(connection.execute(judged.distinct().order_by(works.c.suite)).scalars())

    def strategies(self, filters: Filters) -> rows.Strategies:
        return self._read(filters, comparisons.strategies)

    def costs(self, filters: Filters) -> rows.Costs:
        return self._read(filters, comparisons.costs)

    def runs(self, filters: Filters, page: int = 1) -> rows.RunsPage:
        return self._read(filters, run_list.runs_page, page)

    def run(self, campaign_id: str, run_id: str) -> rows.RunPage | None:
        """The run's page; None: missing, or not readable for this person."""
        if not is_text(campaign_id) or not is_text(run_id):
            return None
        return self._read(Filters(), run_list.run_page, campaign_id, run_id)

    def runs_csv(self, filters: Filters) -> Iterator[str]:
        """All runs of the scope, piece by piece."""
        with self._reading(filters) as (connection, scope):
            yield from run_list.runs_csv(connection, scope)

    def _read(
        self, filters: Filters, read: Callable[Concatenate[Connection, Scope, P], T], *args: P.args, **more: P.kwargs
    ) -> T:
        with self._reading(filters) as (connection, scope):
            return read(connection, scope, *args, **more)

    @contextmanager
    def _reading(self, filters: Filters) -> Iterator[tuple[Connection, Scope]]:
        with self._connected() as connection:
            yield connection, scope_of(connection, self.dag_ids, filters)

    @contextmanager
    def _connected(self) -> Iterator[Connection]:
        if self.connection is not None:
            yield self.connection
            return
        with transaction(self.engine) as connection:
            yield connection
