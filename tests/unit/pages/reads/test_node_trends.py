"""A node: its figures over time, what happened to it, its breaches."""

from __future__ import annotations

from datetime import date, timedelta

import pytest

from tests.builders import make_result
from tests.builders.nights import ENDED_AT, night
from tests.builders.three_nights import ALL, HIDDEN, SEEN, three_nights
from tests.builders.verdicts import behind_its_past, make_group, make_metric, make_node
from trainbench.core.verdicts import Finding, Level, Metric, State
from trainbench.history.history import History
from trainbench.judging.mark_findings import MARKED
from trainbench.judging.node_condition import Condition
from trainbench.pages.reads.queries import Pages
from trainbench.pages.reads.rows import EventKind


def test_a_node_has_a_series_for_each_work_oldest_first(pages: Pages) -> None:
    """9.0, 10.0, 10.0 samples/s against 10: -10, 0 and 0 %."""
    actual = pages.node("node-3", ALL)
    assert actual
    (series,) = actual.series
    assert (series.model, series.recipe, series.strategy, series.gpu_name) == (
        "mistral-7b", "qlora", "single", "NVIDIA H200",
    )  # fmt: skip
    assert [point.samples_per_second for point in series.points] == [9.0, 10.0, 10.0]
    assert [point.deviation_pct for point in series.points] == pytest.approx([-10.0, 0.0, 0.0])
    assert [point.peers_samples_per_second for point in series.points] == pytest.approx([10.0, 10.0, 10.0])
    assert [point.state for point in series.points] == [State.BREACH, State.OK, State.OK]
    assert [point.campaign_id for point in series.points] == ["night-1", "night-2", "night-3"]
    assert [point.at for point in series.points] == [ENDED_AT + timedelta(days=i) for i in range(3)]
    run = series.points[0].run_id
    assert run
    assert pages.run("night-1", run)
    assert not actual.is_cut


def test_each_point_has_the_limits_of_its_campaign(history: History) -> None:
    """A point that was never judged has no limit."""
    tight = make_metric(10.0, 10.0, limit=3.0), make_metric(7.0, 7.0, metric=Metric.MEMORY_GB, limit=1.0)
    three_nights(history).record(
        night(
            4, {"node-1": 10.0}, groups=[make_group([make_node("node-1", tight)], make_result().spec.identity.group_id)]
        )
    )
    actual = Pages(history.engine, {SEEN}).node("node-1", ALL)
    assert actual is not None
    (series,) = actual.series

    limits = [(p.samples_per_second_limit_pct, p.memory_limit_pct, p.temperature_limit_c) for p in series.points]
    assert limits == [*[(5.0, None, None)] * 3, (3.0, 1.0, None)]


def test_a_missing_node_is_a_point_without_a_figure(pages: Pages) -> None:
    actual = pages.node("node-2", ALL)
    assert actual
    last = actual.series[0].points[-1]
    assert (last.state, last.samples_per_second, last.peers_samples_per_second, last.run_id) == (
        State.MISSING, None, None, None,
    )  # fmt: skip
    assert [breach.node for breach in actual.open_breaches] == ["node-2"]


def test_the_past_that_a_node_was_compared_with_is_a_line_of_its_own(history: History) -> None:
    result = make_result("node-1", 9.7)
    past = behind_its_past("node-1", result.spec.identity.group_id, rate=9.7, deviation_pct=-3.0)
    history.record(night(1, [result], history=(past,)))
    pages = Pages(history.engine, {SEEN})
    actual = pages.node("node-1", ALL)
    assert actual
    (point,) = actual.series[0].points
    assert (point.own_median_samples_per_second, point.history_deviation_pct, point.history_state) == (
        10.0, -3.0, State.BREACH,
    )  # fmt: skip
    (cell,) = pages.heat_map(ALL, date(2026, 11, 1), days=1).rows[0].cells
    assert cell
    assert cell.condition is Condition.BEHIND


def test_events_of_a_node_are_listed_newest_first(history: History) -> None:
    history.record(night(1, [make_result("node-1", driver="580.1")]))
    history.record(night(2, [make_result("node-1", driver="580.2", libraries={"torch": "2.14.0"})]))
    history.record(night(3, [make_result("node-1", driver="580.2", libraries={"torch": "2.14.0"})]))
    other = [make_result("node-1", driver="590.0")]
    history.record(night(3, other, suite=HIDDEN, campaign_id="hidden-3"))
    actual = Pages(history.engine, {SEEN}).node("node-1", ALL)
    assert actual
    assert sorted((event.what, event.was, event.now, event.campaign_id) for event in actual.events) == [
        ("driver", "580.1", "580.2", "night-2"),
        ("torch", "2.13.0", "2.14.0", "night-2"),
    ]
    assert {event.kind for event in actual.events} == {EventKind.SETUP}
    assert actual.events[0].text == "driver went from 580.1 to 580.2"


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
    actual = Pages(history.engine, {SEEN}).node("node-1", ALL)
    assert actual
    assert [(event.what, event.was, event.now, event.campaign_id) for event in actual.events] == [
        ("GPUs", None, "GPU-new", "night-4"),
        ("GPU", "NVIDIA H200", "NVIDIA H100", "night-2"),
    ]


def test_a_breach_is_an_event_when_it_opens_and_when_it_closes(pages: Pages) -> None:
    actual = pages.node("node-3", ALL)
    assert actual
    assert [(event.kind, event.campaign_id, event.text) for event in actual.events] == [
        (EventKind.BREACH_CLOSED, "night-2", "well again"),
        (EventKind.BREACH_OPENED, "night-1", "breach, node-3 is breach"),
    ]


def test_a_long_series_is_cut_at_its_old_end_and_says_so(recorded: History, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("trainbench.pages.reads.node_trends.MAX_POINTS", 2)
    actual = Pages(recorded.engine, {SEEN}).node("node-3", ALL)
    assert actual
    assert [point.campaign_id for point in actual.series[0].points] == ["night-2", "night-3"]
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
    actual = Pages(history.engine, {SEEN}).node("node-3", ALL)
    assert actual is not None

    assert [(event.kind, event.at, event.text) for event in actual.events if event.what == "mark"] == [
        (EventKind.FREED, ENDED_AT + timedelta(days=4), "freed by ada"),
        (EventKind.MARKED, ENDED_AT + timedelta(days=3), "is marked with the taint: samples/s -10.0 %"),
    ]
