"""The marks that keep other work away from nodes, as the runs reported them."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from sqlalchemy import Connection, insert, select, update

from trainbench.core.verdicts import MARKED, Level
from trainbench.history.tables import marks
from trainbench.results.campaign import Campaign

TAKES_WORK = "takes other work again"
_IS_OPEN = marks.c.closed_at.is_(None)


def update_marks(connection: Connection, campaign: Campaign) -> None:
    """Only a campaign that read the marks of all nodes changes them."""
    if not campaign.marks_are_known:
        return
    found = (each for each in campaign.findings if each.category == MARKED and each.level is Level.WARNING)
    tonight = {node: finding for finding in found for node in finding.nodes}
    of_dag = _IS_OPEN & (marks.c.dag_id == campaign.suite)
    known = set(connection.execute(select(marks.c.node).where(of_dag)).scalars())
    end = {"closed_at": campaign.finished_at, "ended": TAKES_WORK}
    connection.execute(update(marks).where(of_dag, marks.c.node.not_in(tonight)).values(end))
    for node in tonight.keys() - known:
        began = {"node": node, "dag_id": campaign.suite, "dag_run_id": campaign.dag_run_id}
        values = began | {"finding": tonight[node].model_dump_json(), "opened_at": campaign.finished_at}
        connection.execute(insert(marks).values(values))


def end_marks(connection: Connection, nodes: Sequence[str], who: str, at: datetime) -> None:
    freed = {"closed_at": at, "ended": f"freed by {who}"}
    connection.execute(update(marks).where(_IS_OPEN, marks.c.node.in_(nodes)).values(freed))


def marked_nodes(connection: Connection) -> frozenset[str]:
    return frozenset(connection.execute(select(marks.c.node).where(_IS_OPEN)).scalars())
