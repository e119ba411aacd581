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
from bench_control.words.verdicts import Finding, HistoryVerdict, Level, State
from tests.builders import make_result
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
    states, pasts = fields.pop("states", None), fields.pop("pasts", ())
    history.record(night(day, RATES, states, findings=findings, history=pasts, **fields))


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


def past_of(node: str, state: State, group_id: str = "group") -> HistoryVerdict:
    nothing = dict.fromkeys(("samples_per_second", "baseline_median", "deviation_pct", "limit_pct"))
    return HistoryVerdict(node=node, group_id=group_id, state=state, num_points=0, reason="as given", **nothing)


def test_a_slowdown_whose_date_is_known_by_now_is_not_over(history: History) -> None:
    """The finding of one night gives way to the dated one: nobody may be told that it is over."""
    dated = slower(category=SLOWER_STEP, summary="is 2.0 % slower since 2 Nov 2026")
    record(history, 1, slower())
    record(history, 2, dated, pasts=(past_of("node-2", State.BREACH),))
    assert [row[3] for row in found(history)] == [None, None]

    record(history, 3, pasts=(past_of("node-2", State.OK),))
    assert [row[3] for row in found(history)] == ["night-3", "night-3"]


def test_a_past_that_starts_anew_with_a_driver_is_no_recovery(history: History) -> None:
    record(history, 1, slower())
    record(history, 2, pasts=(past_of("node-2", State.NO_BASELINE),))

    assert found(history)[0][3] is None


def test_a_campaign_of_other_work_is_no_recovery(history: History) -> None:
    """Somebody starts the DAG by hand with another sequence length: what is slow at 512 tokens was not looked at."""
    record(history, 1, slower())
    history.record(night(2, [make_result(node, rate, seq_length=2048) for node, rate in RATES.items()], findings=()))
    assert found(history)[0][3] is None

    record(history, 3)
    assert found(history)[0][3] == "night-3"


def test_what_several_nodes_share_is_over_when_all_of_them_are_well(history: History) -> None:
    """A driver reaches one node after the other: each new one is news, and a fast one among them ends nothing."""
    first, both = slower("node-1", SLOWER_STEP), slower("node-1 and node-2", SLOWER_STEP)
    record(history, 1, first)
    record(history, 2, both)
    record(history, 3, first)
    assert [(row[0], row[3]) for row in found(history)] == [("node-1", None), ("node-1 and node-2", None)]

    record(history, 4, states={"node-2": State.BUSY})
    assert [row[3] for row in found(history)] == ["night-4", None]
    record(history, 5)
    assert [row[3] for row in found(history)] == ["night-4", "night-5"]


def test_a_slowdown_of_many_nodes_is_one_warning_also_on_a_night_that_names_others_of_them(history: History) -> None:
    """Only the first five are named, and a drilled node is left out for a night."""
    record(history, 1, slower("node-1, node-2, node-3, node-4, node-5 and 3 more", SLOWER_STEP))
    record(history, 2, slower("node-1, node-2, node-3, node-4, node-6 and 2 more", SLOWER_STEP))

    assert [(row[2], row[3]) for row in found(history)] == [("night-1", None)]
