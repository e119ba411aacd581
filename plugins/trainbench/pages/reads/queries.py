"""How the pages read the history: each read is a function of a connection and a scope, with a limit of rows.

pages = Pages(open_engine(url, store), dag_ids)      dag_ids: the DAGs that this person may see
pages.read(fleet.heat_map, Filters(), today)         raises HistoryError when the database is away
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import datetime
from functools import lru_cache
from typing import Concatenate, ParamSpec, TypeVar

from sqlalchemy import Connection, Engine, select

from trainbench.history.database import transaction
from trainbench.history.history import open_history
from trainbench.history.tables import campaigns, node_verdicts, nodes, works
from trainbench.pages.reads.filters import NAMES, Filters, Scope, is_text, scope_of
from trainbench.pages.reads.rows import Choices
from trainbench.results.artefacts import Store

MAX_CHOICES = 500
MAX_CAMPAIGNS = 60  # the newest, as suggestions
CONNECT_TIMEOUT_S = 5  # a person waits
EVERYTHING = Filters()
P = ParamSpec("P")
T = TypeVar("T")


@lru_cache(maxsize=4)
def open_engine(url: str | None, store: Store | None) -> Engine:
    """The engine of `open_history`; each process checks the schema once. Raises HistoryError."""
    return open_history(url, store, CONNECT_TIMEOUT_S).engine


@dataclass(frozen=True)
class Pages:
    """The reads of one person. Rows of DAGs outside `dag_ids` appear in no list, number or choice."""

    engine: Engine
    dag_ids: Collection[str]

    @contextmanager
    def reading(self, filters: Filters) -> Iterator[tuple[Connection, Scope]]:
        """One transaction for several reads, which saves connections to a database server."""
        with transaction(self.engine) as connection:
            yield connection, scope_of(connection, self.dag_ids, filters)

    def read(
        self, read: Callable[Concatenate[Connection, Scope, P], T], filters: Filters, *args: P.args, **more: P.kwargs
    ) -> T:
        with self.reading(filters) as (connection, scope):
            return read(connection, scope, *args, **more)


def choices(connection: Connection, scope: Scope) -> Choices:
    """The choices of the filters: all benchmarked values."""
    of_all = replace(scope, filters=EVERYTHING)

    def values_of(name: str) -> tuple[str, ...]:
        known = select(works.c[name]).where(of_all.works, works.c[name].is_not(None)).distinct()
        return tuple(connection.execute(known.order_by(works.c[name]).limit(MAX_CHOICES)).scalars())

    named = select(nodes.c.node).where(of_all.nodes).distinct().order_by(nodes.c.node).limit(MAX_CHOICES)
    ended = select(campaigns.c.campaign_id).where(campaigns.c.suite.in_(scope.suites))
    ended = ended.order_by(campaigns.c.finished_at.desc()).limit(MAX_CAMPAIGNS)
    names, ids = (tuple(connection.execute(query).scalars()) for query in (named, ended))
    gpu_names, models, recipes, strategies = map(values_of, NAMES)
    return Choices(gpu_names, models, recipes, strategies, names, ids, scope.suites)


def sees(connection: Connection, scope: Scope, node: str | None) -> bool:
    """Whether this person may see a verdict on the node; None: on any."""
    if node is not None and not is_text(node):
        return False
    seen = select(node_verdicts.c.node).join(works, works.c.id == node_verdicts.c.work_id).where(scope.works)
    seen = seen if node is None else seen.where(node_verdicts.c.node == node)
    return connection.execute(seen.limit(1)).first() is not None


def suites_of(connection: Connection, _: Scope, node: str | None, since: datetime) -> tuple[str, ...]:
    """All DAGs that judged the node since that time, also unreadable ones; None: any node."""
    judged = select(works.c.suite).join(node_verdicts, works.c.id == node_verdicts.c.work_id)
    judged = judged.where(works.c.at >= since)
    judged = judged if node is None else judged.where(node_verdicts.c.node == node)
    return tuple(connection.execute(judged.distinct().order_by(works.c.suite)).scalars())
