"""Warnings: opened once, kept while they last, closed by the campaign that could have said them again and did not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import select

from bench_control.judging.step_changes import SLOWER_STEP
from bench_control.judging.trend import HISTORY_SLOWER
from bench_control.past.history import History, open_history
from bench_control.past.notice_tables import warnings
from bench_control.words.verdicts import Finding, Level, State
from tests.databases import DATABASES, empty_database
from tests.nights import night

RATES = {"node-1": 10.0, "node-2": 9.8}


@pytest.fixture(params=DATABASES)
def history(request: pytest.FixtureRequest, tmp_path: Path) -> History:
    return open_history(empty_database(request.param, tmp_path))


def slower(node: str = "node-2", category: str = HISTORY_SLOWER, **changes: Any) -> Finding:
    fields: dict[str, Any] = {
        "level": Level.WARNING,
        "category": category,
        "subject": node,
        "measured": "9.8",
        "expected": "10",
        "summary": f"{node} is slower than it was",
        "resolution": "look at its clocks",
    }
    return Finding(**fields | changes)


def record(history: History, day: int, *findings: Finding, **fields: Any) -> None:
    history.record(night(day, RATES, fields.pop("states", None), findings=findings, **fields))


def found(history: History) -> list[tuple[Any, ...]]:
    columns = (warnings.c.node, warnings.c.summary, warnings.c.campaign_id, warnings.c.closed_by_campaign_id)
    with history.engine.connect() as connection:
        return [tuple(row) for row in connection.execute(select(*columns).order_by(warnings.c.id))]


def test_a_warning_lasts_from_the_first_night_that_tells_it_to_the_one_that_does_not(history: History) -> None:
    record(history, 1, slower())
    record(history, 2, slower())
    record(history, 3)

    assert found(history) == [("node-2", "is slower than it was", "night-1", "night-3")]


def test_recording_again_or_late_changes_nothing(history: History) -> None:
    record(history, 2, slower())
    record(history, 2, slower())
    record(history, 1)

    assert found(history) == [("node-2", "is slower than it was", "night-2", None)]


def test_a_campaign_without_the_node_does_not_close_its_warning(history: History) -> None:
    record(history, 1, slower(), slower("node-9", "gone_node"))
    history.record(night(2, {"node-1": 10.0}, params={"nodes": ["node-1"]}, findings=()))

    assert [row[3] for row in found(history)] == [None, None]
    record(history, 3)
    assert [row[3] for row in found(history)] == ["night-3", "night-3"]


@pytest.mark.parametrize("state", [State.BREACH, State.BUSY, State.FAILED])
def test_a_node_that_was_not_measured_or_is_red_now_keeps_its_warning(history: History, state: State) -> None:
    record(history, 1, slower())
    record(history, 2, states={"node-2": state})

    assert found(history)[0][3] is None


def test_red_nodes_drilled_nodes_and_mere_information_are_no_warnings(history: History) -> None:
    record(history, 1, slower(), states={"node-2": State.BREACH})
    record(history, 2, slower(), drilled=["node-2"])
    record(history, 3, slower(level=Level.INFO), slower(category="stale_price"))

    assert found(history) == []


def test_a_slowdown_of_several_nodes_is_one_warning(history: History) -> None:
    together = slower("node-1 and node-2", SLOWER_STEP, summary="are 3 % slower since 2 Nov 2026: driver 570 -> 580")
    record(history, 1, together)
    record(history, 2, together)

    assert [row[:2] for row in found(history)] == [("node-1 and node-2", together.summary)]
