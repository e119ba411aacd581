"""The runs of a reader's scope as CSV, in pieces, so that a million rows are never in memory together."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager

from sqlalchemy import Connection

from trainbench.core.csv_cells import Cell, lines
from trainbench.figure_catalogue.run_figures import STORED
from trainbench.pages.reads.filters import Scope
from trainbench.pages.reads.rows import RunRow
from trainbench.pages.reads.run_list import num_runs_by_campaign, runs_of_campaign

ROWS_AT_ONCE = 500
COLUMNS = (*RunRow.__slots__, *(each.name for each in STORED))

Connect = Callable[[], AbstractContextManager[Connection]]


def runs_csv(connect: Connect, scope: Scope) -> Iterator[str]:
    """Yield the header, then the newest campaign first. Each piece is a transaction, so that a slow download holds none
    open. Campaigns recorded meanwhile are missing; re-recorded ones appear in their new state.
    """
    yield lines([COLUMNS])
    with connect() as connection:
        counted = num_runs_by_campaign(connection, scope)
    for campaign_id, number in counted:
        for offset in range(0, number, ROWS_AT_ONCE):
            with connect() as connection:
                rows = runs_of_campaign(connection, scope, campaign_id, offset, ROWS_AT_ONCE)
            yield lines(map(_cell, row.cells(RunRow.__slots__)) for row in rows)


def _cell(value: object) -> Cell:
    if isinstance(value, tuple):
        return ",".join(value)
    return value.isoformat() if hasattr(value, "isoformat") else value  # type: ignore[return-value]
