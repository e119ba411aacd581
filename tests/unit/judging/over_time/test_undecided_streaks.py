"""Nights without a verdict: counted in a row, reported from the third."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from tests.builders.verdicts import make_group, make_node
from trainbench.core.verdicts import State
from trainbench.judging.over_time.undecided_streaks import Streak, is_undecided, streak, undecided_findings

NO, OK, RED, BUSY = State.INSUFFICIENT, State.OK, State.BREACH, State.BUSY


def at(night: int) -> datetime:
    return datetime(2026, 11, night, 3, tzinfo=UTC)


@pytest.mark.parametrize(
    ("states", "expected"),
    [
        ([NO], True),
        ([NO, OK], True),  # one of its works
        ([NO, RED], False),
        ([OK], False),
        ([State.NOTICE], False),
        ([BUSY], None),
        ([State.NO_BASELINE], None),
        ([], None),
    ],
)
def test_a_night_is_undecided_decided_or_no_night_at_all(states: list[State], expected: bool | None) -> None:
    assert is_undecided(states) is expected


def test_a_streak_goes_back_to_the_last_verdict_and_nights_when_a_node_was_busy_do_not_end_it() -> None:
    nights = [(at(9), [NO]), (at(8), [BUSY]), (at(7), [NO]), (at(6), [OK]), (at(5), [NO])]
    assert streak(nights) == Streak(since=at(7), nights=2)
    assert streak([(at(9), [OK]), (at(8), [NO])]) is None


def test_the_third_night_without_a_verdict_is_reported_with_its_date() -> None:
    group = make_group(
        [make_node("node-1", state=NO, reason="the noise is 9 %"), make_node("node-2", state=OK)], "group-1"
    )
    assert undecided_findings([group], {"node-1": Streak(at(1), 1)}, at(2)) == ()
    (finding,) = undecided_findings([group], {"node-1": Streak(at(1), 2), "node-2": Streak(at(1), 2)}, at(3))
    assert (finding.subject, finding.category) == ("node-1", "undecided")
    assert finding.summary == "could not be judged since 1 Nov 2026: the noise is 9 %"
    assert finding.measured == "no verdict on 3 nights in a row"


def test_without_history_the_first_night_has_no_streak() -> None:
    group = make_group([make_node("node-1", state=NO)], "group-1")
    assert undecided_findings([group], {}, at(1) + timedelta(days=1)) == ()
