"""Nights for the tests of the history: whole results and reasons, recorded and read back."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import Any

from sqlalchemy import Table, select

from bench_image.contract.result import RunResult
from tests.builders import make_result
from tests.builders.nights import ENDED_AT, night
from trainbench.core.verdicts import Why
from trainbench.history.history import History
from trainbench.judging.past import NodeRecord
from trainbench.results.campaign import Campaign

DAY_1 = ENDED_AT - timedelta(hours=1)  # the first night begins


def make_night(day: int, *results: RunResult, whys: Mapping[str, Why] | None = None, **fields: Any) -> Campaign:
    """The campaign of one night; every node is well unless `whys`, which may name others too, says otherwise."""
    drilled = [result.spec.identity.node for result in results if result.spec.drill]
    return night(day, results, whys, drilled=drilled, **fields)


def tonight(result: RunResult | None = None) -> RunResult:
    """A run of day 20."""
    return make_night(20, result or make_result()).results[0]


def records(history: History, result: RunResult, node: str | None = None) -> list[NodeRecord]:
    """The nights that a node (that of the run, unless given) made before this run at its work."""
    found = history.node_records(
        [result.effective_spec.fingerprint], result.spec.identity.campaign_id, result.started_at
    )
    return [record for record in found if record.node == (node or result.spec.identity.node)]


def past(history: History, result: RunResult, node: str | None = None) -> list[float]:
    """Samples/s of the nights that count."""
    return [record.samples_per_second for record in records(history, result, node) if record.counts]


def stored(history: History, table: Table) -> list[dict[str, Any]]:
    with history.engine.connect() as connection:
        return [dict(row._mapping) for row in connection.execute(select(table))]
