"""The filters of a page and the rights of its reader, as conditions of every query."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, time
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, StringConstraints
from sqlalchemy import ColumnElement, Connection, Table, and_, or_, select, true

from bench_image.contract.frozen import Frozen
from bench_image.contract.result import Status
from trainbench.core.verdicts import State
from trainbench.history.tables import campaigns, nodes, notices, runs, works

NAMES = ("gpu_name", "model", "recipe", "strategy")


def is_text(value: str) -> bool:
    """Whether a database accepts the text: no NUL, no lone surrogate."""
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return "\x00" not in value


def _text(value: str) -> str:
    if not is_text(value):
        raise ValueError("has characters that are no text: choose one of the offered values")
    return value


def _none(value: Any) -> Any:
    """None for "", which forms send for an empty choice."""
    return None if value == "" else value


Name = Annotated[
    Annotated[str, StringConstraints(max_length=300), AfterValidator(_text)] | None, BeforeValidator(_none)
]
FAILED = "failed"
StateOrFailed = Annotated[State | Literal["failed"] | None, BeforeValidator(_none)]


class Filters(Frozen):
    """The filters; None: no restriction. `node`: a name, or where no node has it a part of names; `campaign`: a part of
    ids; `state`: of a run's node at its work, or FAILED of the run; `since`: the first day, in UTC.
    """

    gpu_name: Name = None
    model: Name = None
    recipe: Name = None
    strategy: Name = None
    node: Name = None
    campaign: Name = None
    state: StateOrFailed = None
    since: date | None = None


@dataclass(frozen=True)
class Scope:
    """Filters and rights. `suites`: recorded DAGs that the reader may see; `has_node`: whether the filter's node is the
    whole name of one.
    """

    suites: tuple[str, ...]
    filters: Filters
    has_node: bool = False

    @property
    def works(self) -> ColumnElement[bool]:
        """The conditions on `works`."""
        return and_(self.works_of_any_time, *self.within(works.c.at))

    @property
    def works_of_any_time(self) -> ColumnElement[bool]:
        return and_(works.c.suite.in_(self.suites), *self._named(works))

    @property
    def runs(self) -> ColumnElement[bool]:
        """The conditions on `runs` beside those on their works."""
        wanted: list[ColumnElement[bool]] = []
        if node := self.filters.node:
            of_gang = ("," + runs.c.peers + ",").icontains(f",{node}," if self.has_node else node, autoescape=True)
            wanted.append(or_(self._of_node(runs), of_gang))
        if state := self.filters.state:
            is_it = runs.c.state == state.value if isinstance(state, State) else runs.c.status != Status.OK.value
            wanted.append(is_it)
        return and_(true(), *wanted)

    @property
    def is_by_run(self) -> bool:
        """Whether some runs of a work may be left out."""
        return bool(self.filters.node or self.filters.state)

    def has(self, node: str) -> bool:
        """Whether the filter of names takes the node."""
        wanted = self.filters.node
        return wanted is None or (node == wanted if self.has_node else wanted.casefold() in node.casefold())

    @property
    def notices(self) -> ColumnElement[bool]:
        """The conditions on `notices`, without the time."""
        return and_(notices.c.dag_id.in_(self.suites), self._of_node(notices), *self._named(notices))

    @property
    def nodes(self) -> ColumnElement[bool]:
        """The conditions on `nodes`, which only have their GPU: they select more than the scope, never less."""
        gpu_name = self.filters.gpu_name
        return and_(nodes.c.suite.in_(self.suites), *([nodes.c.gpu_name == gpu_name] if gpu_name else []))

    def since(self, day: date) -> Scope:
        """The same, but not before this day."""
        first = max(day, self.filters.since or day)
        return replace(self, filters=self.filters.model_copy(update={"since": first}))

    def within(self, at: ColumnElement[datetime]) -> list[ColumnElement[bool]]:
        since = self.filters.since
        return [at >= datetime.combine(since, time(), UTC)] if since else []

    def _of_node(self, table: Table) -> ColumnElement[bool]:
        node = self.filters.node
        if node is None:
            return true()
        return table.c.node == node if self.has_node else table.c.node.icontains(node, autoescape=True)

    def _named(self, table: Table) -> list[ColumnElement[bool]]:
        chosen = self.filters.model_dump(include=set(NAMES), exclude_none=True)
        part = self.filters.campaign
        in_campaign = [table.c.campaign_id.icontains(part, autoescape=True)] if part else []
        return [*(table.c[name] == value for name, value in chosen.items()), *in_campaign]


def scope_of(connection: Connection, dag_ids: Collection[str], filters: Filters) -> Scope:
    recorded = connection.execute(select(campaigns.c.suite).distinct()).scalars()
    suites = tuple(sorted(set(recorded) & set(dag_ids)))
    known = select(nodes.c.node).where(nodes.c.node == filters.node, nodes.c.suite.in_(suites))
    return Scope(suites, filters, bool(filters.node and connection.execute(known.limit(1)).first()))
