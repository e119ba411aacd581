"""Warnings: one for a node and kind, kept while its rate is not back, whatever words a night has for it."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import select

from tests.builders import make_result
from tests.builders.databases import DATABASES, empty_database
from tests.builders.nights import ENDED_AT, night
from trainbench.core.verdicts import Finding, Level, RateChange, State
from trainbench.history.history import History, open_history
from trainbench.history.notice_tables import warnings
from trainbench.history.warnings import FORGOTTEN, FORGOTTEN_DAYS
from trainbench.judging.diagnosis.diagnose import UNSTEADY
from trainbench.judging.mark_findings import MARKED, NOT_MARKED
from trainbench.judging.over_time.baseline_deviation import HISTORY_SLOWER
from trainbench.judging.over_time.level_changes import SLOWER_STEP
from trainbench.judging.warning_findings import WarningKind

WORK = make_result().effective_spec.fingerprint
WELL = {"node-1": 10.0, "node-2": 10.0}


@pytest.fixture(params=DATABASES)
def history(request: pytest.FixtureRequest, tmp_path: Path) -> History:
    return open_history(empty_database(request.param, tmp_path))


def slower(*nodes: str, to: float = 9.6, category: str = HISTORY_SLOWER, **changes: Any) -> Finding:
    """From 10 samples/s, with a limit of 1.5 %."""
    about = nodes or ("node-2",)
    of = (RateChange(node=node, fingerprint=WORK, before=10.0, after=to, limit_pct=1.5) for node in about)
    fields: dict[str, Any] = {
        "level": Level.WARNING,
        "category": category,
        "measured": "9.6",
        "expected": "10",
        "summary": "is slower than it was",
        "resolution": "look at its clocks",
        "nodes": about,
        "changes": tuple(of),
    }
    return Finding(**fields | changes)


def plain(category: str, node: str = "node-2", **changes: Any) -> Finding:
    """Without rates: watched, unsteady, not judged, not there."""
    return slower(node, category=category, **{"changes": (), "summary": f"is {category}"} | changes)


def record(
    history: History, day: int, *findings: Finding, rates: Mapping[str, float] | float = WELL, **fields: Any
) -> None:
    """`rates`: one number is that of node-2."""
    of = rates if isinstance(rates, Mapping) else WELL | {"node-2": rates}
    history.record(night(day, of, fields.pop("states", None), findings=findings, **fields))


def actual(history: History) -> list[tuple[Any, ...]]:
    """(node, kind, campaign that opened it, that closed it, how it ended)"""
    names = ("node", "kind", "campaign_id", "closed_by_campaign_id", "ended")
    with history.engine.connect() as connection:
        query = select(*(warnings.c[name] for name in names)).order_by(warnings.c.id)
        return [tuple(row) for row in connection.execute(query)]


def ends(history: History) -> list[Any]:
    return [row[3] for row in actual(history)]


def test_a_warning_lasts_from_the_first_night_that_says_it_to_the_one_where_the_rate_is_back(history: History) -> None:
    record(history, 1, slower(), rates=9.6)
    record(history, 2, slower(), rates=9.6)
    record(history, 3)

    assert actual(history) == [("node-2", "slow", "night-1", "night-3", "as fast again as before")]


@pytest.mark.parametrize(("rate", "is_over"), [(9.92, False), (9.93, True)])
def test_back_is_within_half_of_the_limit_of_the_level_before(history: History, rate: float, is_over: bool) -> None:
    """1.5 % / 2 of 10 samples/s: from 9.925."""
    record(history, 1, slower(), rates=9.6)
    record(history, 2, rates=rate)

    assert ends(history) == ["night-2" if is_over else None]


def test_a_night_without_the_finding_is_no_all_clear_while_the_rate_is_low(history: History) -> None:
    """[J3] The driver that makes -4 % to -20 % begins a new past, which has no baseline yet."""
    record(history, 1, slower(), rates=9.6)
    record(history, 2, rates=8.0)
    record(history, 3, rates=8.0)

    assert ends(history) == [None]


def test_what_gets_worse_is_a_new_warning_that_is_over_at_the_first_level(history: History) -> None:
    """-4 %, then -20 % from 9.6: back at 9.6 is not over."""
    step = RateChange(node="node-2", fingerprint=WORK, before=9.6, after=8.0, limit_pct=1.5)
    record(history, 1, slower(), rates=9.6)
    record(history, 2, slower(category=SLOWER_STEP, changes=(step,)), rates=8.0)
    assert [row[2:] for row in actual(history)] == [("night-1", "night-2", None), ("night-2", None, None)]

    record(history, 3, rates=9.6)
    assert ends(history) == ["night-2", None]
    record(history, 4)
    assert ends(history) == ["night-2", "night-4"]


def test_recording_again_or_late_changes_nothing(history: History) -> None:
    record(history, 2, slower(), rates=9.6)
    record(history, 2, slower(), rates=9.6)
    record(history, 1)

    assert actual(history) == [("node-2", "slow", "night-2", None, None)]


def test_a_campaign_without_the_node_does_not_close_its_warning(history: History) -> None:
    record(history, 1, slower(), plain("gone_node", "node-9"), rates=9.6)
    history.record(night(2, {"node-1": 10.0}, params={"nodes": ["node-1"]}, findings=()))
    assert ends(history) == [None, None]

    record(history, 3)
    assert ends(history) == ["night-3", "night-3"]


@pytest.mark.parametrize("state", [State.BREACH, State.FAILED])
def test_a_node_that_is_red_now_keeps_its_warning(history: History, state: State) -> None:
    record(history, 1, slower(), rates=9.6)
    record(history, 2, states={"node-2": state})

    assert ends(history) == [None]


def test_a_node_that_was_not_measured_keeps_its_warning(history: History) -> None:
    record(history, 1, slower(), rates=9.6)
    record(history, 2, rates={"node-1": 10.0}, states={"node-2": State.BUSY})

    assert ends(history) == [None]


def test_red_nodes_drilled_nodes_and_mere_information_are_no_warnings(history: History) -> None:
    record(history, 1, slower(), states={"node-2": State.BREACH})
    record(history, 2, slower(), drilled=["node-2"])
    record(history, 3, slower(level=Level.INFO), plain("stale_price"))

    assert actual(history) == []


def test_a_slowdown_of_several_nodes_is_a_warning_of_each(history: History) -> None:
    """A driver reaches one node after the other: each new one is news, and each ends by itself."""
    both = slower("node-1", "node-2", category=SLOWER_STEP)
    slow = {"node-1": 9.6, "node-2": 9.6}
    record(history, 1, slower("node-1", category=SLOWER_STEP), rates=slow | {"node-2": 10.0})
    record(history, 2, both, rates=slow)
    assert [row[:3] for row in actual(history)] == [("node-1", "slow", "night-1"), ("node-2", "slow", "night-2")]

    record(history, 3, rates=slow | {"node-1": 10.0})
    assert ends(history) == ["night-3", None]


def test_a_slowdown_whose_date_is_known_by_now_is_the_same_warning(history: History) -> None:
    """[J7] The finding of one night gives way to the dated one: nobody gets two notices, or one that it is over."""
    record(history, 1, slower(), rates=9.6)
    record(history, 2, slower(category=SLOWER_STEP, summary="is 4.0 % slower since 2 Nov 2026"), rates=9.6)
    record(history, 3, plain("watched"), rates=9.6)

    assert actual(history) == [("node-2", "slow", "night-1", None, None)]


def test_a_campaign_of_other_work_is_no_recovery(history: History) -> None:
    """Somebody starts the DAG by hand with another sequence length: what is slow at 512 tokens was not looked at."""
    record(history, 1, slower(), rates=9.6)
    history.record(night(2, [make_result(node, rate, seq_length=2048) for node, rate in WELL.items()], findings=()))
    assert ends(history) == [None]

    record(history, 3)
    assert ends(history) == ["night-3"]


def test_work_that_nobody_measures_any_more_is_warned_of_for_two_weeks(history: History) -> None:
    record(history, 1, slower(), rates=9.6)
    other = [make_result(node, rate, seq_length=2048) for node, rate in WELL.items()]
    history.record(night(FORGOTTEN_DAYS, other, findings=()))
    assert ends(history) == [None]

    history.record(night(1 + FORGOTTEN_DAYS, other, findings=()))
    assert actual(history)[0][3:] == (f"night-{1 + FORGOTTEN_DAYS}", FORGOTTEN)


@pytest.mark.parametrize(
    ("category", "ended"),
    [("watched", "as fast again as before"), ("unsteady", "steady again"), ("undecided", "judged again")],
)
def test_watched_unsteady_and_undecided_nodes_are_warned_of_until_they_are_well(
    history: History, category: str, ended: str
) -> None:
    """[J2, J4] A night without a verdict ends none of them."""
    record(history, 1, plain(category))
    record(history, 2, states={"node-2": State.INSUFFICIENT})
    record(history, 3, states={"node-2": State.BUSY})
    assert ends(history) == [None]

    record(history, 4)
    assert actual(history)[0][3:] == ("night-4", ended)


def test_a_node_that_is_found_in_breach_was_judged(history: History) -> None:
    record(history, 1, plain("undecided"), plain("unsteady"))
    record(history, 2, states={"node-2": State.BREACH})

    assert sorted(row[1:4:2] for row in actual(history)) == [("undecided", "night-2"), ("unsteady", None)]


def test_every_finding_that_warns_people_has_a_kind_and_a_sentence_for_its_end() -> None:
    from trainbench.judging.warning_findings import ENDED, KIND_OF

    assert set(KIND_OF.values()) == set(WarningKind)
    assert {WarningKind.SLOW, WarningKind.UNSTEADY, WarningKind.UNDECIDED} <= set(ENDED)


# --- what is not over -------------------------------------------------------------------------------------------------


def open_on(history: History, day: int, campaign_id: str = "") -> list[tuple[str, float, int]]:
    """(node, level before, day on which it was first warned of)"""
    slowdowns = history.slower_before("node_consistency", campaign_id, ENDED_AT + timedelta(days=day - 1))
    return [(each.change.node, each.change.before, (each.since - ENDED_AT).days + 1) for each in slowdowns]


def test_a_slowdown_is_known_from_the_night_after_it_was_warned_of_to_the_one_that_finds_it_over(
    history: History,
) -> None:
    record(history, 1, slower(), rates=9.6)
    record(history, 2, slower(), rates=9.6)
    record(history, 3)

    assert [open_on(history, day) for day in (1, 2, 3, 4)] == [[], [("node-2", 10.0, 1)], [("node-2", 10.0, 1)], []]
    assert history.slower_before("another_dag", "", ENDED_AT + timedelta(days=1)) == ()


def test_a_worse_warning_keeps_its_first_date_and_is_not_new_to_the_campaign_that_reported_it(
    history: History,
) -> None:
    step = RateChange(node="node-2", fingerprint=WORK, before=9.6, after=8.0, limit_pct=1.5)
    record(history, 1, slower(), rates=9.6)
    record(history, 2, slower(category=SLOWER_STEP, changes=(step,)), rates=8.0)

    assert open_on(history, 3) == [("node-2", 10.0, 1)]
    assert open_on(history, 2, "night-2") == [("node-2", 10.0, 1)]


def test_a_second_slowdown_counts_from_its_own_warning(history: History) -> None:
    record(history, 1, slower(), rates=9.6)
    record(history, 2)
    record(history, 3, slower(), rates=9.6)

    assert open_on(history, 4) == [("node-2", 10.0, 3)]


def mark(*nodes: str, **changes: Any) -> Finding:
    return plain(MARKED, nodes=nodes or ("node-2",), **changes)


def test_a_mark_is_a_warning_beside_the_breach_until_a_night_that_knows_the_marks_does_not_name_it(
    history: History,
) -> None:
    """A night that could not read the nodes says nothing of them, be the node well or not."""
    record(history, 1, mark(), rates=9.0, states={"node-2": State.BREACH}, marks_are_known=True)
    record(history, 2, mark(), rates=9.0, states={"node-2": State.BREACH}, marks_are_known=True)
    record(history, 3, rates=10.0)
    assert actual(history) == [("node-2", "node_marked", "night-1", None, None)]

    record(history, 4, rates=9.0, states={"node-2": State.BREACH}, marks_are_known=True)
    assert actual(history) == [("node-2", "node_marked", "night-1", "night-4", "takes other work again")]


def test_a_mark_that_was_not_set_is_over_with_its_breach_though_marking_was_switched_off_since(
    history: History,
) -> None:
    """Else the node's all-clear would wait for ever."""
    record(history, 1, plain(NOT_MARKED), mark("node-1"), rates=9.0, states={"node-2": State.BREACH})
    record(history, 2, rates=9.0, states={"node-2": State.BREACH})
    assert ends(history) == [None, None]

    record(history, 3)
    assert [(row[1], row[3]) for row in actual(history)] == [("node_not_marked", "night-3"), ("node_marked", None)]


def test_who_frees_a_node_by_hand_ends_its_mark_and_nothing_else(history: History) -> None:
    record(history, 1, mark("node-1"), mark(), plain(UNSTEADY), marks_are_known=True)
    history.end_marks(["node-2"], "ada", ENDED_AT + timedelta(days=1))

    assert [(row[0], row[1], row[4]) for row in actual(history)] == [
        ("node-1", "node_marked", None), ("node-2", "node_marked", "freed by ada"), ("node-2", "unsteady", None),
    ]  # fmt: skip


def test_only_an_earlier_campaign_of_the_dag_has_a_later_one(history: History) -> None:
    record(history, 2)

    assert [history.has_later(night(day, WELL)) for day in (1, 2, 3)] == [True, False, False]
