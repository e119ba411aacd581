"""A stored breach: a finding on one node with its begin and end."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Any

from pydantic import AwareDatetime
from sqlalchemy import ColumnElement, Connection, Row, Select, and_, select

from bench_image.contract.frozen import Frozen
from trainbench.core.formats import signed
from trainbench.core.verdicts import Finding, Level, MetricVerdict, State
from trainbench.history.run_tables import breaches
from trainbench.history.summary_tables import acknowledgements
from trainbench.judging.deviations import NAMES, UNITS

_WORK = ("is_drill", "group_id", "gpu_name", "model", "recipe", "strategy")
_COMMON = (
    "id",
    "node",
    "campaign_id",
    "dag_id",
    "dag_run_id",
    "opened_at",
    "closed_at",
    "closed_by_campaign_id",
    "ended",
)
# A new database may repeat an id, so node and group identify the breach too.
OF_BREACH = and_(
    acknowledgements.c.breach_id == breaches.c.id,
    acknowledgements.c.node == breaches.c.node,
    acknowledgements.c.group_id == breaches.c.group_id,
)


class BreachKind(StrEnum):
    """The table that holds the breach."""

    BREACH = "breach"  # a red node
    WARNING = "warning"  # a node that is not red but needs attention


class Acknowledgement(Frozen):
    who: str
    at: AwareDatetime
    reason: str


class Breach(Frozen):
    """A breach, open until `closed_at`. `finding`: the judgement's, unchanged."""

    kind: BreachKind
    id: int  # unique within its kind
    node: str  # "": an alarm of the whole run
    finding: Finding
    state: State | None = None  # of the red node; None: a warning
    reason: str = ""  # of the verdict; "" for a warning
    group_id: str | None = None  # this and the next four: the work; None for a warning
    gpu_name: str | None = None
    model: str | None = None
    recipe: str | None = None
    strategy: str | None = None
    campaign_id: str  # that opened it
    dag_id: str
    dag_run_id: str | None
    opened_at: AwareDatetime
    closed_at: AwareDatetime | None
    closed_by_campaign_id: str | None = None
    ended: str | None  # its end as a phrase; None while it is open, and where a worse warning replaced it
    is_drill: bool = False
    acknowledgement: Acknowledgement | None = None

    @property
    def name(self) -> str:
        """The node, or the run of an alarm."""
        return self.node or self.finding.subject

    @property
    def level(self) -> Level:
        return self.finding.level

    @property
    def figure(self) -> MetricVerdict | None:
        """The metric beyond its limit; None: the node failed or was missing, or this is a warning."""
        known = (metric for metric in self.finding.evidence if metric.deviation is not None)
        return next((metric for metric in known if metric.state is State.BREACH), None)

    @property
    def deviation(self) -> str:
        """ "samples/s -7.3 %", or "" for a node that failed or was missing and for a warning."""
        figure = self.figure
        return f"{NAMES[figure.metric]} {signed(figure.deviation or 0.0, UNITS[figure.metric])}" if figure else ""


def select_breaches() -> Select[Any]:
    """The query whose rows `breach_of` reads."""
    seen = acknowledgements.c.who, acknowledgements.c.at, acknowledgements.c.reason.label("seen_because")
    return select(breaches, *seen).select_from(breaches.outerjoin(acknowledgements, OF_BREACH))


def open_breaches_by_node(connection: Connection, of_breaches: ColumnElement[bool]) -> Mapping[str, Sequence[Breach]]:
    """Node -> its open breaches, the oldest first. `of_breaches`: those that count."""
    by_node: dict[str, list[Breach]] = {}
    is_open = of_breaches & breaches.c.closed_at.is_(None)
    for row in connection.execute(select_breaches().where(is_open).order_by(breaches.c.opened_at, breaches.c.id)):
        by_node.setdefault(row.node, []).append(breach_of(row))
    return by_node


def breach_of(row: Row[Any]) -> Breach:
    values = row._mapping
    seen = Acknowledgement(who=row.who, at=row.at, reason=row.seen_because) if row.who is not None else None
    return Breach(
        kind=BreachKind.BREACH,
        finding=Finding.model_validate_json(row.finding),
        state=State(row.state),
        reason=row.reason,
        acknowledgement=seen,
        **{name: values[name] for name in (*_COMMON, *_WORK)},
    )


def warning_of(row: Row[Any]) -> Breach:
    """The breach of a row of `warnings`."""
    values = {name: row._mapping[name] for name in _COMMON}
    finding = Finding.model_validate_json(row.finding)
    return Breach(kind=BreachKind.WARNING, finding=finding, is_drill=finding.is_drill, **values)
