"""Nights for the tests of the history: whole results and states, recorded and read back."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

from sqlalchemy import Table, select

from bench_image.contract.result import RunResult
from tests.builders import make_result
from tests.builders.nights import ENDED_AT, night
from tests.builders.verdicts import behind_its_past
from trainbench.core.verdicts import HistoryVerdict, State
from trainbench.history.history import History
from trainbench.results.campaign import Campaign

DAY_1 = ENDED_AT - timedelta(hours=1)  # the first night begins


def make_night(
    day: int, *results: RunResult, states: dict[str, State] | None = None, slower_than_past: Sequence[str] = ()
) -> Campaign:
    """The campaign of one night; every node is ok unless `states`, which may name others too, says otherwise."""
    group_id = results[0].spec.identity.group_id if results else "group-1"
    drilled = [result.spec.identity.node for result in results if result.spec.drill]
    return night(
        day, results, states, drilled=drilled, history=tuple(_slower(node, group_id) for node in slower_than_past)
    )


def tonight(result: RunResult | None = None) -> RunResult:
    """A run of day 20."""
    return make_night(20, result or make_result()).results[0]


def past(history: History, result: RunResult, **how: Any) -> list[float]:
    """Samples/s that the run's node is compared with."""
    (rates,) = history.baseline_rates([result], **how)
    return rates


def stored(history: History, table: Table) -> list[dict[str, Any]]:
    with history.engine.connect() as connection:
        return [dict(row._mapping) for row in connection.execute(select(table))]


def _slower(node: str, group_id: str) -> HistoryVerdict:
    return behind_its_past(node, group_id, median=9.5)
