"""Reads a DAG's slowdowns with an open warning from the stored warnings."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from sqlalchemy import Connection, Row, select

from trainbench.history.notice_tables import warnings
from trainbench.history.warnings import stored_changes
from trainbench.judging.over_time.lasting_slowdowns import Slowdown
from trainbench.judging.warning_findings import WarningKind


def read_slowdowns(connection: Connection, suite: str, campaign_id: str, before: datetime) -> tuple[Slowdown, ...]:
    """Open slowdowns as of `before`, without those that the campaign itself opened."""
    of_dag = (warnings.c.dag_id == suite) & (warnings.c.kind == WarningKind.SLOW.value)
    known = of_dag & (warnings.c.opened_at < before) & (warnings.c.campaign_id != campaign_id)
    by_node: dict[str, list[Row[Any]]] = {}
    for row in connection.execute(select(warnings).where(known).order_by(warnings.c.id)):
        by_node.setdefault(row.node, []).append(row)
    return tuple(
        Slowdown(change, _since(rows))
        for rows in by_node.values()
        if rows[-1].closed_at is None or rows[-1].closed_at >= before
        for change in stored_changes(rows[-1].changes)
    )


def _since(rows: list[Row[Any]]) -> datetime:
    """Start of the first in a chain of warnings that replaced each other as the node became slower."""
    first = rows[-1]
    for row in reversed(rows[:-1]):
        if row.ended is not None or row.closed_by_campaign_id != first.campaign_id:
            break
        first = row
    since: datetime = first.opened_at
    return since
