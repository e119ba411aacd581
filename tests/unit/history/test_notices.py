"""When a notice opens, turns red and ends: nights of verdicts, recorded in a database."""

from __future__ import annotations

import random
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from bench_image.contract.spec import Drill
from tests.builders import make_result
from tests.builders.nights import ENDED_AT, night
from tests.builders.recorded_nights import make_night, stored
from tests.builders.verdicts import make_comparison, make_finding, make_group, make_node
from trainbench.core.user_error import EntryError
from trainbench.core.verdicts import NO_FIGURE, Against, Finding, Level, Metric, State, Why
from trainbench.history.history import History
from trainbench.history.notices import (
    CHECKED,
    JUDGED_ANEW,
    LESS,
    OVER,
    REMOVED,
    WELL_AGAIN,
    Notice,
    acknowledge,
)
from trainbench.history.tables import notices

FINE, SLOW, LATE = (Why.WELL, 0.0), (Why.SLOW, -9.0), (Why.BEHIND, -4.0)
FAILED, NOISY, BUSY, ONCE = (Why.FAILED, None), (Why.NOISY, 0.0), (Why.BUSY, None), (Why.ONCE, -6.0)
NO_RUN = (Why.FAILED, Why.BUSY, Why.MISSING)
Nightly = tuple[Why, float | None]


def record(history: History, day: int, tonight: Nightly | None, **fields: Any) -> None:
    """node-1 deviates from its peers by so many percent tonight; None: it is not on the list of nodes."""
    rates, whys = {"node-2": 10.0}, {}
    if tonight is not None:
        why, deviation = tonight
        whys["node-1"] = why
        if why not in NO_RUN:
            rates["node-1"] = 10.0 * (1 + (deviation or 0.0) / 100)
    history.record(night(day, rates, whys, **fields))


def events(history: History, nights: Sequence[Nightly | None]) -> list[str]:
    """ "1 slow", "5 well again": the days on which something changed for node-1, and how."""
    seen: dict[int, Notice] = {}
    said = []
    for day, tonight in enumerate(nights, start=1):
        record(history, day, tonight)
        ended = {row["id"]: row["ended"] for row in stored(history, notices) if row["closed_at"] is not None}
        said += [f"{day} {ended[number]}" for number in sorted(seen.keys() & ended.keys())]
        now = {notice.id: notice for notice in history.open_notices() if notice.node == "node-1"}
        assert len(now) < 2
        for number, notice in now.items():
            if number not in seen:
                said.append(f"{day} {notice.why}")
            elif notice.worsened_at != seen[number].worsened_at:
                said.append(f"{day} now {notice.why}")
        seen = now
    return said


@pytest.mark.parametrize(
    ("nights", "expected"),
    [
        # ONCE and the like have no size: two nights in a row that are well end them.
        ([ONCE, ONCE, FINE, ONCE, FINE, FINE], ["2 once", f"6 {WELL_AGAIN}"]),
        # Red opens at once; of two nights in a row that are well the second one ends it.
        ([SLOW, SLOW, FINE, FINE, FINE], ["1 slow", f"4 {WELL_AGAIN}"]),
        ([SLOW, FINE, SLOW, FINE, SLOW, FINE, FINE], ["1 slow", f"7 {WELL_AGAIN}"]),
        # -4.4 % is below half of -9 %, -4.6 % is not.
        ([SLOW, (Why.BEHIND, -4.4), (Why.BEHIND, -4.4)], ["1 slow", f"3 {LESS}"]),
        ([SLOW, (Why.BEHIND, -4.6), (Why.BEHIND, -4.4), FINE], ["1 slow", f"4 {WELL_AGAIN}"]),
        # What opened it counts, not what it was in a later red night.
        ([SLOW, (Why.SLOW, -6.0), (Why.BEHIND, -4.4), (Why.BEHIND, -4.4)], ["1 slow", f"4 {LESS}"]),
        ([SLOW, NOISY, BUSY, NOISY, BUSY], ["1 slow"]),
        ([SLOW, FINE, FAILED, FINE, FINE], ["1 slow", f"5 {WELL_AGAIN}"]),
        # What no deviation opened ends in the first night in which the node is well.
        ([FAILED, NOISY, FINE], ["1 failed", f"3 {WELL_AGAIN}"]),
        ([FAILED, SLOW, FINE, FINE], ["1 failed", f"4 {WELL_AGAIN}"]),
        ([FAILED, LATE, LATE, FINE, FINE], ["1 failed", f"5 {WELL_AGAIN}"]),
        # A look opens in the second night in a row, and tells once more when it turns red.
        ([LATE, FINE, LATE, FINE, LATE], []),
        ([LATE, LATE, LATE, FINE, LATE, FINE, FINE], ["2 behind", f"7 {WELL_AGAIN}"]),
        ([ONCE, LATE, SLOW, LATE, SLOW, FINE, FINE], ["2 behind", "3 now slow", f"7 {WELL_AGAIN}"]),
        # What is left of it is told anew after two more nights, not in the night of the end.
        ([LATE, LATE, *[(Why.BEHIND, -1.9)] * 4], ["2 behind", f"4 {LESS}", "6 behind"]),
        # Not checked for three nights in a row.
        ([NOISY, BUSY, FINE, NOISY, NOISY], []),
        ([NOISY, BUSY, BUSY, BUSY, FINE], ["3 busy", f"5 {WELL_AGAIN}"]),
        ([NOISY, NOISY, NOISY, LATE, LATE], ["3 noisy", f"4 {CHECKED}"]),
        ([NOISY, NOISY, NOISY, SLOW, FINE, FINE], ["3 noisy", "4 now slow", f"6 {WELL_AGAIN}"]),
        # Another list of nodes says nothing about it.
        ([SLOW, None, FINE, None, None], ["1 slow"]),
    ],
)  # fmt: skip
def test_when_a_notice_opens_and_ends(history: History, nights: list[Nightly | None], expected: list[str]) -> None:
    assert events(history, nights) == expected


def test_a_node_that_is_constantly_a_little_slow_is_told_of_once(history: History) -> None:
    """30 nights at -2.5 %, measured with 0.3 % noise: on some nights that is beyond chance, on some not."""
    rng = random.Random(1)
    rates = [rng.gauss(-2.5, 0.3) for _ in range(30)]
    assert events(history, [(Why.BEHIND if rate < -2.5 else Why.WELL, rate) for rate in rates]) == ["5 behind"]


def test_what_a_notice_says(history: History) -> None:
    history.record(night(1, {"node-1": 9.0, "node-2": 10.0}, {"node-1": Why.SLOW}, reference=10.0))
    (notice,) = history.open_notices()
    assert (notice.node, notice.word, notice.campaign_id, notice.dag_run_id) == (
        "node-1", "red: slow", "night-1", "scheduled__1",
    )  # fmt: skip
    assert (notice.metric, notice.against) == (Metric.SAMPLES_PER_SECOND, Against.PEERS)
    assert notice.deviation == pytest.approx(-10.0)
    assert notice.phrase == "is slow: samples/s −10.0 % against its peers"
    assert (notice.model, notice.gpu_name, notice.finding.why) == ("mistral-7b", "NVIDIA H200", Why.SLOW)
    assert (notice.opened_at, notice.level) == (ENDED_AT, Level.ERROR)


def test_a_notice_tells_of_one_night_and_ends_by_what_opened_it(history: History) -> None:
    """-10, then -7 %, then -4.9 % and -4.5 %: each night's own figures, and half of the first ends it."""
    for day, rate in enumerate([9.0, 9.3], start=1):
        history.record(night(day, {"node-1": rate}, {"node-1": Why.SLOW}, findings=(_explained(rate),)))
    (notice,) = history.open_notices()
    assert (notice.deviation_text, notice.finding.cause) == ("samples/s −7.0 % against its peers", "explains 7.0")
    assert notice.reason.startswith("samples/s −7.0 %")
    assert [deviation for *_, deviation in notice.deviations] == [pytest.approx(-10.0)]
    assert (notice.campaign_id, notice.opened_at) == ("night-1", ENDED_AT)
    history.record(night(3, {"node-1": 9.51}, {"node-1": Why.BEHIND}))
    assert history.open_notices() == (notice,)  # another reason says nothing of this one
    history.record(night(4, {"node-1": 9.55}, {"node-1": Why.BEHIND}))
    (closed,) = stored(history, notices)
    assert (closed["ended"], closed["deviation"]) == (LESS, pytest.approx(-7.0))


def test_a_red_notice_tells_tonight_s_reason_and_ends_by_what_opened_it(history: History) -> None:
    """Slow, then without a result, then two nights at half of what it was and less."""
    for day, tonight in enumerate([SLOW, FAILED, (Why.BEHIND, -4.4), (Why.BEHIND, -4.4)], start=1):
        record(history, day, tonight)
        said = [(notice.phrase.split(":")[0], len(notice.deviations)) for notice in history.open_notices()]
        assert said == [[("is slow", 1)], [("failed", 1)], [("failed", 1)], []][day - 1]


def _explained(rate: float) -> Finding:
    return make_finding("node-1", Why.SLOW, cause=f"explains {100 - 10 * rate:.1f}")


def test_all_that_opened_a_notice_has_to_be_over(history: History) -> None:
    """-10 % against peers and past: where the peers have become as slow, it is not well again."""
    for day, (peers, past) in enumerate([(10.0, 10.0), (9.0, 10.0), (9.0, 10.0), (9.0, 9.4), (9.0, 9.4)], start=1):
        node = make_node("node-1", 9.0, peers=peers, past=past, why=Why.SLOW if day == 1 else Why.BEHIND)
        history.record(night(day, {"node-1": 9.0}, {"node-1": node.why}, reference=peers,
                             expected={"node-1": {"past": past}}))  # fmt: skip
        assert bool(history.open_notices()) is (day < 5)


def test_what_is_as_hot_as_its_peers_is_over_only_when_it_is_cool(history: History) -> None:
    """The air conditioning fails: all are 12 degrees above their past, none above its peers."""
    heat = Metric.TEMPERATURE_C
    for day, celsius in enumerate([72.0, 72.0, 72.0, 72.0, 60.0, 60.0], start=1):
        past = make_comparison(celsius, 60.0, Against.PAST, heat)
        compared = {"comparisons": (make_comparison(celsius, celsius, metric=heat), past)}
        why = Why.HOT if celsius > 70 else Why.WELL
        history.record(night(day, {"node-1": 10.0}, {"node-1": why}, expected={"node-1": compared}))  # type: ignore[dict-item]
        assert bool(history.open_notices()) is (1 < day < 6), day
    assert len(stored(history, notices)) == 1


def test_a_faster_one_of_two_is_no_better_before_it_is_nearer(history: History) -> None:
    """Two that differ: +8 % of its peer, then +7 % and +3 %."""
    for day, rate in enumerate([10.8, 10.8, 10.7, 10.3, 10.3], start=1):
        history.record(night(day, {"node-1": rate}, {"node-1": Why.PAIR}))
        assert bool(history.open_notices()) is (1 < day < 5)


@pytest.mark.both_databases
def test_a_change_of_the_fleet_has_one_finding(history: History) -> None:
    names = tuple(f"node-{i}" for i in range(256))
    change = make_finding("node-0", Why.CHANGED, nodes=names, summary="have become slower")
    for day in (1, 2):
        history.record(night(day, dict.fromkeys(names, 9.5), dict.fromkeys(names, Why.CHANGED), findings=(change,)))
    opened = history.open_notices()
    assert len(opened) == 256
    assert {notice.finding.model_copy(update={"evidence": ()}) for notice in opened} == {change}


def test_a_drill_is_over_with_its_run_and_says_nothing_of_the_node(history: History) -> None:
    drill = make_result("node-1", drill=Drill(slowdown_pct=50))
    for _ in range(2):  # recorded again it is the same
        history.record(make_night(1, drill, whys={"node-1": Why.SLOW}))
    (row,) = stored(history, notices)
    assert (row["is_drill"], row["state"], row["closed_by_campaign_id"], row["ended"]) == (
        True, "drill", "night-1", OVER,
    )  # fmt: skip
    record(history, 2, SLOW)
    history.record(make_night(3, drill, make_result("node-2"), whys={"node-1": Why.DRILL}))
    record(history, 4, FINE)
    assert [notice.is_drill for notice in history.open_notices()] == [False]
    history.record(make_night(5, drill, whys={"node-1": Why.SLOW}))
    record(history, 6, FINE)  # the second night in a row that says something
    assert history.open_notices() == ()


def test_each_dag_has_its_own(history: History) -> None:
    for suite in ("a", "b"):
        record(history, 1, SLOW, suite=suite, campaign_id=f"{suite}-1")
    for day in (2, 3):
        record(history, day, FINE, suite="a", campaign_id=f"a-{day}")
    assert [notice.dag_id for notice in history.open_notices()] == ["b"]


def test_only_the_newest_campaign_of_its_dag_changes_notices(history: History) -> None:
    for day, tonight in ((3, SLOW), (4, FINE), (1, SLOW), (2, FINE), (2, FAILED)):
        record(history, day, tonight)
    assert [notice.campaign_id for notice in history.open_notices()] == ["night-3"]
    assert len(stored(history, notices)) == 1


@pytest.mark.both_databases
def test_a_campaign_recorded_again_replaces_what_it_did(history: History) -> None:
    record(history, 1, SLOW)
    (first,) = history.open_notices()
    record(history, 1, FAILED)
    (again,) = history.open_notices()
    assert (again.id, again.why, again.deviation) == (first.id, Why.FAILED, None)
    record(history, 1, FINE)
    assert [row["ended"] for row in stored(history, notices)] == [JUDGED_ANEW]
    record(history, 1, FAILED)
    record(history, 2, FINE)
    assert history.open_notices() == ()
    record(history, 2, FAILED)
    assert [notice.id for notice in history.open_notices()] == [first.id]


def test_an_end_that_is_judged_anew_makes_room_for_the_first_notice(history: History) -> None:
    """Night 4 ended the first notice; judged anew it is slow still, and night 4 opened nothing else."""
    for day, tonight in enumerate([SLOW, SLOW, FINE, FINE, SLOW], start=1):
        record(history, day, tonight)
    (second,) = history.open_notices()
    assert second.campaign_id == "night-5"
    record(history, 5, FINE)
    assert history.open_notices() == ()


@pytest.mark.parametrize(("day", "is_open"), [(8, True), (9, False)])
def test_a_node_that_the_cluster_lists_no_more_is_removed_after_a_week(
    history: History, day: int, is_open: bool
) -> None:
    """It was judged on day 1: on day 8 that is 7 days ago, not more."""
    record(history, 1, SLOW)
    record(history, day, None, params={"nodes": ["node-2"]})
    assert len(history.open_notices()) == 1
    record(history, day, None)
    assert bool(history.open_notices()) is is_open
    assert [row["ended"] for row in stored(history, notices)] == [None if is_open else REMOVED]


def test_a_node_on_which_nothing_could_run_is_told_of_in_the_second_night(history: History) -> None:
    def absent(level: Level) -> Finding:
        return make_finding("node-1", Why.ABSENT, level=level, measured="the node is not Ready")

    record(history, 1, None, findings=(absent(Level.WARNING),))
    assert history.open_notices() == ()
    record(history, 2, None, findings=(absent(Level.WARNING),))
    (notice,) = history.open_notices()
    assert (notice.node, notice.why, notice.state, notice.group_id) == ("node-1", Why.ABSENT, State.LOOK, None)
    record(history, 3, LATE)
    assert history.open_notices() == ()
    for day in (4, 5):
        record(history, day, None, findings=(absent(Level.INFO),))  # in quarantine: somebody wants that
    assert history.open_notices() == ()


def test_an_alarm_of_a_run_lasts_until_a_later_run_is_without_it(history: History) -> None:
    alarm = Finding(
        level=Level.ERROR,
        category=NO_FIGURE,
        item="night-1",
        measured="no figure",
        expected="a figure",
        summary="no run gave a figure",
        resolution="run it again",
    )
    for day, found in ((1, (alarm,)), (2, (alarm, alarm)), (2, (alarm,))):
        record(history, day, FINE, findings=found)
    (notice,) = history.open_notices()
    assert (notice.node, notice.name, notice.category, notice.why, notice.word) == (
        "", "night-1", NO_FIGURE, None, "red: alarm",
    )  # fmt: skip
    assert (notice.phrase, notice.campaign_id, notice.is_red) == ("no run gave a figure", "night-1", True)
    record(history, 3, FINE)
    assert [row["ended"] for row in stored(history, notices)] == ["a later run gave figures"]


def test_of_two_works_the_worse_one_is_told(history: History) -> None:
    """It is well at one work and slow at the other, whose deviation closes it later."""
    for day, rates in enumerate(((10.0, 9.0), (10.0, 9.9), (9.9, 10.0)), start=1):
        groups = []
        for group_id, rate in zip("ab", rates, strict=True):
            why = Why.SLOW if rate == 9.0 else Why.WELL
            groups.append(make_group([make_node("node-1", rate, peers=10.0, why=why), make_node("node-2")], group_id))
        history.record(night(day, {}, groups=groups))
        assert [notice.group_id for notice in history.open_notices()] == (["b"] if day < 3 else [])


@pytest.mark.both_databases
def test_many_recorders_at_once_open_one_notice(history: History) -> None:
    """Tasks of several runs, which overlap, record the same node."""
    campaigns = [night(day, {"node-1": 9.0}, {"node-1": Why.SLOW}) for day in range(2, 6)]
    with ThreadPoolExecutor(4) as recorders:
        list(recorders.map(history.record, campaigns))
    assert len(history.open_notices()) == 1


def test_what_is_open_for_a_thousand_nodes_is_kept_in_seconds(history: History) -> None:
    rates = {f"node-{i}": 9.0 for i in range(1200)}
    for day in (1, 2):
        history.record(night(day, rates, dict.fromkeys(rates, Why.SLOW), findings=()))
    assert len(history.open_notices()) == 1200


def test_who_acknowledges_one_notice_acknowledges_no_other(history: History) -> None:
    history.record(night(1, {"node-1": 9.0, "node-2": 9.0, "node-3": 10.0}, {"node-1": Why.SLOW, "node-2": Why.SLOW}))
    first, second = (notice.id for notice in history.open_notices())
    with history.engine.begin() as connection:
        acknowledge(connection, first, "ada", "a fan is on its way", ENDED_AT)
        acknowledge(connection, second, "bob", "known", ENDED_AT)
        with pytest.raises(EntryError, match="there is no notice 99"):
            acknowledge(connection, 99, "ada", "known", ENDED_AT)
    by = {notice.id: notice.acknowledgement and notice.acknowledgement.who for notice in history.open_notices()}
    assert by == {first: "ada", second: "bob"}
