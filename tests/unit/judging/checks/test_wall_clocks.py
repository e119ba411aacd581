"""Nodes with wrong clocks: order is kept by the campaign's clock, and a finding names the node."""

from __future__ import annotations

from datetime import datetime, timedelta

from bench_image.contract.result import RunResult, Status
from tests.builders import STARTED_AT, make_failed, make_result
from trainbench.judging.checks.wall_clocks import campaign_times, clock_findings, on_our_clock
from trainbench.results.collect import collect

BEGAN, ENDED = STARTED_AT - timedelta(minutes=1), STARTED_AT + timedelta(minutes=10)


def moved(node: str, by: timedelta) -> RunResult:
    result = make_result(node)
    return result.model_copy(update={"started_at": result.started_at + by, "finished_at": result.finished_at + by})


def test_a_time_is_put_between_start_and_end() -> None:
    assert on_our_clock(STARTED_AT, BEGAN, ENDED) == STARTED_AT
    assert on_our_clock(datetime(1970, 1, 1, tzinfo=BEGAN.tzinfo), BEGAN, ENDED) == BEGAN
    assert on_our_clock(STARTED_AT + timedelta(days=9), BEGAN, ENDED) == ENDED


def test_clocks_ahead_and_behind_are_reported() -> None:
    """ahead: finished 05:00:55, the campaign ended at 02:10; behind: began 2 h before 02:00."""
    results = [make_result("well"), moved("ahead", timedelta(hours=3)), moved("behind", timedelta(hours=-2))]
    ahead, behind = clock_findings(results, BEGAN, ENDED)
    assert (ahead.subject, behind.subject) == ("ahead", "behind")
    assert "05:00" in ahead.measured  # against the campaign's end, by which it is ahead
    assert "00:00" in behind.measured  # against its start
    assert "clock that is at least 2 h 50 min ahead" in ahead.summary
    assert "clock that is at least 1 h 59 min behind" in behind.summary


def test_results_that_are_all_old_are_those_of_a_cleared_run() -> None:
    assert clock_findings([moved(f"n{i}", timedelta(hours=-5)) for i in (1, 2)], BEGAN, ENDED) == ()
    assert clock_findings([make_result()], BEGAN, ENDED) == ()


def test_the_times_of_a_run_whose_last_tasks_were_cleared_are_those_of_its_pods() -> None:
    """Monday's run, published again on Thursday: Airflow says that it started on Thursday. Its last pod ended at
    02:00:55 on Monday. A clock that is a year ahead ends the run now, and no result at all when it was planned.
    """
    planned, thursday = BEGAN + timedelta(seconds=20), STARTED_AT + timedelta(days=3)
    now = thursday + timedelta(minutes=2)
    lost = make_failed("n3").model_copy(update={"started_at": now, "finished_at": now})
    pods = [make_result("n1"), moved("n2", timedelta(minutes=-1)), lost]

    assert campaign_times(pods, planned, BEGAN, ENDED) == (BEGAN, ENDED)
    assert campaign_times(pods, planned, thursday, now) == (planned, STARTED_AT + timedelta(seconds=55))
    assert campaign_times([moved("n1", timedelta(days=365))], planned, thursday, now) == (planned, now)
    assert campaign_times([lost], planned, thursday, now) == (planned, planned)
    assert clock_findings(pods, *campaign_times(pods, planned, thursday, now)) == ()


def test_a_run_that_ends_before_it_begins_is_a_failed_one_with_the_reason() -> None:
    result = make_result()
    document = result.model_dump(mode="json") | {"finished_at": "2026-11-20T02:00:00Z"}
    (failed,) = collect([result.spec], [document], ENDED)
    assert failed.status is Status.ERROR
    assert failed.error is not None
    assert "lies before started_at" in failed.error.message


def test_a_result_that_never_came_hides_no_clock() -> None:
    """It stands first; whoever said that it did not come did so by another clock."""
    (ahead,) = clock_findings(
        [make_failed("lost"), moved("ahead", timedelta(hours=3)), make_result("well")], BEGAN, ENDED
    )
    assert ahead.subject == "ahead"


def test_a_clock_may_be_a_minute_off() -> None:
    """The builder's run ends 55 s after 02:00; the campaign ends one minute before that, then a second more."""
    ended = make_result().finished_at - timedelta(minutes=1)
    assert clock_findings([make_result("a"), make_result("b")], BEGAN, ended) == ()
    assert len(clock_findings([make_result("a"), make_result("b")], BEGAN, ended - timedelta(seconds=1))) == 2
