"""The present condition of each node that a reader may see."""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime, timedelta

from sqlalchemy import Connection

from trainbench.history.node_conditions import DECIDED_DAYS, node_conditions
from trainbench.judging.node_condition import NodeCondition
from trainbench.pages.reads.filters import Scope


def fleet_conditions(
    connection: Connection, scope: Scope, names: Collection[str], now: datetime, fresh: timedelta
) -> tuple[NodeCondition, ...]:
    """The conditions of these nodes, judged within the scope, and of nodes with an open breach, in natural order."""
    until = now.date()
    quarter = scope.of(scope.filters.model_copy(update={"since": until - timedelta(days=DECIDED_DAYS), "until": until}))
    return node_conditions(
        connection, names, now, fresh, lately=scope.works, quarter=quarter.works, of_breaches=scope.breaches
    )
