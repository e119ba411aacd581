"""A node: its figures over time, what happened to it, its notices."""

from __future__ import annotations

from datetime import timedelta

import pytest

from tests.builders import make_result
from tests.builders.nights import ENDED_AT, night
from tests.builders.three_nights import ALL, HIDDEN, SEEN, node_of, three_nights
from tests.builders.verdicts import make_comparison, make_finding, make_group, make_node
from trainbench.core.states import FRESH
from trainbench.core.verdicts import MARKED, Finding, Level, Metric, State, Why
from trainbench.history.history import History
from trainbench.pages.reads.filters import Filters
from trainbench.pages.reads.node_trends import node_page
from trainbench.pages.reads.queries import Pages
from trainbench.pages.reads.rows import EventKind
from trainbench.pages.reads.run_list import run_page
from trainbench.pages.render.links import Links
from trainbench.pages.render.listings import verdicts_table

pytestmark = pytest.mark.both_databases


def test_a_node_has_a_series_for_each_work_oldest_first(pages: Pages) -> None:
    """9.0, 10.0, 10.0 samples/s against 10: -10, 0 and 0 %."""
    actual = node_of(pages, "node-3", ALL)
    assert actual
    (series,) = actual.series
    assert (series[-1].work_name, series[-1].gpu_name) == (
        "mistral-7b · qlora · single", "NVIDIA H200",
    )  # fmt: skip
    assert [point.samples_per_second for point in series] == [9.0, 10.0, 10.0]
    assert [point.deviation_pct for point in series] == pytest.approx([-10.0, 0.0, 0.0])
    assert [point.peers_expected for point in series] == pytest.approx([10.0, 10.0, 10.0])
    assert [point.word for point in series] == ["red: slow", "well", "well"]
    assert [point.campaign_id for point in series] == ["night-1", "night-2", "night-3"]
    assert [point.at for point in series] == [ENDED_AT + timedelta(days=i) for i in range(3)]
    run = series[0].run_id
    assert run
    assert pages.read(run_page, Filters(), "night-1", run)
    assert not actual.is_cut


def test_each_point_has_the_limits_of_its_campaign(history: History) -> None:
    """A point that was never judged has no limit."""
    tight = make_comparison(10.0, 10.0, limit=3.0), make_comparison(7.0, 7.0, metric=Metric.MEMORY_GB, limit=1.0)
    judged = make_group([make_node("node-1", comparisons=tight)], make_result().spec.identity.group_id)
    three_nights(history).record(night(4, {"node-1": 10.0}, groups=[judged]))
    actual = node_of(Pages(history.engine, {SEEN}), "node-1", ALL)
    assert actual is not None
    (series,) = actual.series

    limits = [(p.samples_per_second_limit_pct, p.memory_limit_pct, p.temperature_limit_c) for p in series]
    assert limits == [*[(5.0, None, None)] * 3, (3.0, 1.0, None)]


def test_a_node_is_well_since_its_first_verdict_after_the_last_bad_one(pages: Pages) -> None:
    """node-3 is slow in the first night and well in the next two."""
    actual = pages.read(node_page, ALL, "node-3", ENDED_AT + timedelta(days=2, hours=1), FRESH)
    assert actual
    assert (actual.state.state, actual.state.since) == (State.WELL, ENDED_AT + timedelta(days=1))


def test_a_missing_node_is_a_point_without_a_figure(pages: Pages) -> None:
    actual = node_of(pages, "node-2", ALL)
    assert actual
    last = actual.series[0][-1]
    assert (last.why, last.samples_per_second, last.peers_expected, last.run_id) == (Why.MISSING, None, None, None)
    assert [notice.node for notice in actual.open_notices] == ["node-2"]
    assert (actual.state.state, actual.state.why) == (State.RED, Why.MISSING)


def test_a_point_has_the_figure_beside_peers_past_and_level(history: History) -> None:
    """9.7 against 10, 9.8 and 12: -3, -1.02 and -19.17 %."""
    expected = {"node-1": {"past": 9.8, "level": 12.0}}
    history.record(night(1, {"node-1": 9.7}, {"node-1": Why.BEHIND}, expected=expected))
    actual = node_of(Pages(history.engine, {SEEN}), "node-1", ALL)
    assert actual
    (point,) = actual.series[0]
    assert (point.peers_expected, point.past_expected, point.level_expected) == pytest.approx((10.0, 9.8, 12.0))
    assert (point.deviation_pct, point.past_deviation_pct, point.level_deviation_pct) == pytest.approx(
        (-3.0, -1.0204, -19.1667), rel=1e-4
    )
    shown = verdicts_table([point], Links(), "latest", "Latest").rows[0].texts
    assert shown[1:6] == ("look: behind", "9.700", "−3.0 % of 10.00", "−1.0 % of 9.800", "−19.2 % of 12.00")


def test_events_of_a_node_are_listed_newest_first(history: History) -> None:
    history.record(night(1, [make_result("node-1", driver="580.1")]))
    history.record(night(2, [make_result("node-1", driver="580.2", libraries={"torch": "2.14.0"})]))
    history.record(night(3, [make_result("node-1", driver="580.2", libraries={"torch": "2.14.0"})]))
    other = [make_result("node-1", driver="590.0")]
    history.record(night(3, other, suite=HIDDEN, campaign_id="hidden-3"))
    actual = node_of(Pages(history.engine, {SEEN}), "node-1", ALL)
    assert actual
    assert [(event.what, event.text, event.campaign_id) for event in actual.events] == [
        ("driver", "driver went from 580.1 to 580.2", "night-2"),
        ("torch", "torch went from 2.13.0 to 2.14.0", "night-2"),
    ]
    assert {event.kind for event in actual.events} == {EventKind.SETUP}


def test_another_gpu_is_an_event_only_if_it_was_never_seen_there(history: History) -> None:
    for day, gpu_name in enumerate(("NVIDIA H200", "NVIDIA H100", "NVIDIA H100"), start=1):
        history.record(night(day, [make_result("node-1", gpu_name=gpu_name)]))
    swapped = make_result("node-1", gpu_name="NVIDIA H100")
    assert swapped.context
    gpu = swapped.context.gpus[0].model_copy(update={"uuid": "GPU-new"})
    context = swapped.context.model_copy(update={"gpus": (gpu,)})
    for day in (4, 5):
        history.record(night(day, [swapped.model_copy(update={"context": context})]))
    history.record(night(6, [make_result("node-1", gpu_name="NVIDIA H100")]))
    actual = node_of(Pages(history.engine, {SEEN}), "node-1", ALL)
    assert actual
    assert [(event.text, event.campaign_id) for event in actual.events] == [
        ("GPUs: GPU-new, never seen on this node before", "night-4"),
        ("GPU went from NVIDIA H200 to NVIDIA H100", "night-2"),
    ]


def test_a_notice_is_an_event_when_it_opens_and_when_it_closes(pages: Pages) -> None:
    actual = node_of(pages, "node-3", ALL)
    assert actual
    assert [(event.kind, event.campaign_id, event.text) for event in actual.events] == [
        (EventKind.CLOSED, "night-3", "well again"),
        (EventKind.OPENED, "night-1", "red: slow, samples/s −10.0 % against the median of 3 peers"),
    ]


def test_a_long_series_is_cut_at_its_old_end_and_says_so(recorded: History, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("trainbench.pages.reads.node_trends.MAX_POINTS", 2)
    actual = node_of(Pages(recorded.engine, {SEEN}), "node-3", ALL)
    assert actual
    assert [point.campaign_id for point in actual.series[0]] == ["night-2", "night-3"]
    assert actual.is_cut


def test_a_mark_and_its_end_are_events_of_the_node(history: History) -> None:
    three_nights(history)
    marked = Finding(
        level=Level.WARNING,
        category=MARKED,
        nodes=("node-3",),
        measured="the taint",
        expected="no mark",
        summary="is marked with the taint: samples/s -10.0 %",
        resolution="repair it",
    )
    rates = {"node-1": 10.0, "node-3": 9.0}
    history.record(night(4, rates, findings=[marked], marks_are_known=True))
    history.end_marks(["node-3"], "ada", ENDED_AT + timedelta(days=4))
    actual = node_of(Pages(history.engine, {SEEN}), "node-3", ALL)
    assert actual is not None

    assert [(event.kind, event.at, event.text) for event in actual.events if event.what == "mark"] == [
        (EventKind.FREED, ENDED_AT + timedelta(days=4), "freed by ada"),
        (EventKind.MARKED, ENDED_AT + timedelta(days=3), "is marked with the taint: samples/s -10.0 %"),
    ]


def test_an_absent_node_costs_no_other_node_its_page(history: History) -> None:
    """With any node absent, the page of each other node answered 503."""
    absent = make_finding("node-2", Why.ABSENT, measured="not Ready")
    history.record(night(1, {"node-1": 10.0}, findings=(absent,)))
    page = node_of(Pages(history.engine, {SEEN}), "node-1", ALL)
    assert page
    assert page.state.node == "node-1"
