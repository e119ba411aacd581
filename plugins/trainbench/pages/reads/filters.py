"""The filters of a page and the rights of its reader, as conditions of every query."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from datetime import UTC, date, datetime, time
from typing import Annotated, Any

from pydantic import AfterValidator, BeforeValidator, StringConstraints
from sqlalchemy import ColumnElement, Connection, Table, and_, select

from bench_image.contract.frozen import Frozen
from trainbench.history.tables import campaigns, nodes, notices, works

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


class Filters(Frozen):
    """The filters; None: no restriction. `since`: the first day, in UTC."""

    gpu_name: Name = None
    model: Name = None
    recipe: Name = None
    strategy: Name = None
    since: date | None = None


@dataclass(frozen=True)
class Scope:
    """Filters and rights. `suites`: recorded DAGs that the reader may see."""

    suites: tuple[str, ...]
    filters: Filters

    @property
    def works(self) -> ColumnElement[bool]:
        """The conditions on `works`."""
        return and_(self.works_of_any_time, *self.within(works.c.at))

    @property
    def works_of_any_time(self) -> ColumnElement[bool]:
        return and_(works.c.suite.in_(self.suites), *self._named(works))

    @property
    def notices(self) -> ColumnElement[bool]:
        """The conditions on `notices`, without the time."""
        return and_(notices.c.dag_id.in_(self.suites), *self._named(notices))

    @property
    def nodes(self) -> ColumnElement[bool]:
        """The conditions on `nodes`, which only have their GPU: they select more than the scope, never less."""
        gpu_name = self.filters.gpu_name
        return and_(nodes.c.suite.in_(self.suites), *([nodes.c.gpu_name == gpu_name] if gpu_name else []))

    def since(self, day: date) -> Scope:
        """The same, but not before this day."""
        first = max(day, self.filters.since or day)
        return Scope(self.suites, self.filters.model_copy(update={"since": first}))

    def within(self, at: ColumnElement[datetime]) -> list[ColumnElement[bool]]:
        since = self.filters.since
        return [at >= datetime.combine(since, time(), UTC)] if since else []

    def _named(self, table: Table) -> list[ColumnElement[bool]]:
        chosen = self.filters.model_dump(include=set(NAMES), exclude_none=True)
        return [table.c[name] == value for name, value in chosen.items()]


def scope_of(connection: Connection, dag_ids: Collection[str], filters: Filters) -> Scope:
    recorded = connection.execute(select(campaigns.c.suite).distinct()).scalars()
    return Scope(tuple(sorted(set(recorded) & set(dag_ids))), filters)
