"""The lists of open and closed breaches."""

from __future__ import annotations

from datetime import date, timedelta

import pytest

from bench_image.contract.spec import Drill
from tests.builders import make_result
from tests.builders.nights import ENDED_AT, night
from tests.builders.three_nights import ALL, DAY_3, SEEN
from trainbench.core.verdicts import Metric, State
from trainbench.history.history import History
from trainbench.pages.reads.filters import Filters
from trainbench.pages.reads.queries import Pages


def test_an_open_breach_shows_figure_cause_and_next_step(pages: Pages) -> None:
    actual = pages.open_breaches(ALL)
    (breach,) = actual.rows
    assert actual.num_total == 1
    assert (breach.node, breach.state, breach.figure) == ("node-2", State.MISSING, None)
    assert (breach.finding.cause, breach.finding.resolution) == (
        "node-2 is hot: its fans stand still",
        "look at the fans of node-2",
    )
    assert (breach.dag_id, breach.dag_run_id, breach.campaign_id) == (SEEN, "scheduled__3", "night-3")
    assert (breach.gpu_name, breach.model, breach.recipe, breach.strategy) == (
        "NVIDIA H200", "mistral-7b", "qlora", "single",
    )  # fmt: skip
    assert breach.opened_at == ENDED_AT + timedelta(days=2)
    assert breach.acknowledgement is None
    assert pages.breach(breach.id) == breach


def test_a_closed_breach_names_its_end_and_the_campaign_that_closed_it(pages: Pages) -> None:
    (breach,) = pages.closed_breaches(ALL).rows
    assert breach.figure is not None
    assert (breach.node, breach.figure.metric) == ("node-3", Metric.SAMPLES_PER_SECOND)
    assert breach.figure.deviation == pytest.approx(-10.0)
    assert (breach.closed_at, breach.closed_by_campaign_id) == (ENDED_AT + timedelta(days=1), "night-2")
    assert pages.closed_breaches(Filters(since=DAY_3)).rows == ()


def test_the_time_does_not_hide_what_is_wrong_now_but_other_filters_narrow_it(pages: Pages) -> None:
    assert pages.open_breaches(Filters(until=date(2026, 11, 1))).num_total == 1
    assert pages.open_breaches(Filters(strategy="zero3")).num_total == 0


def test_a_long_list_of_breaches_is_cut_and_counted(history: History, monkeypatch: pytest.MonkeyPatch) -> None:
    history.record(night(1, {"node-1": 10.0}, {f"node-{i}": State.MISSING for i in range(2, 8)}))
    monkeypatch.setattr("trainbench.pages.reads.breach_rows.MAX_BREACHES", 4)
    actual = Pages(history.engine, {SEEN}).open_breaches(ALL)
    assert (len(actual.rows), actual.num_total) == (4, 6)


def test_a_short_list_of_closed_breaches_counts_all_of_them(history: History) -> None:
    rates = {f"node-{i}": 10.0 for i in range(3)}
    history.record(night(1, rates, dict.fromkeys(rates, State.BREACH)))
    history.record(night(2, rates))
    actual = Pages(history.engine, {SEEN}).closed_breaches(ALL, 2)

    assert (len(actual.rows), actual.num_total) == (2, 3)


def test_a_drill_needs_no_attention_once_its_run_is_over(history: History) -> None:
    drilled = make_result("node-1", 5.0, drill=Drill(slowdown_pct=50))
    history.record(night(1, [drilled, make_result("node-2", 10.0)], {"node-1": State.BREACH}, drilled=["node-1"]))
    pages = Pages(history.engine, {SEEN})
    before = pages.overview(ALL, date(2026, 11, 1))
    assert before.summary.headline == "1 of 2 nodes was slowed on purpose: node-1; 1 is well."
    assert before.num_red == 0
    history.record(night(2, {"node-2": 9.0}, {"node-2": State.BREACH}))
    overview = pages.overview(ALL, date(2026, 11, 2), ENDED_AT + timedelta(days=1))
    assert overview.summary.headline == "1 of 2 nodes is in breach: node-2; 1 was slowed on purpose: node-1."
    assert [row.node for row in pages.open_breaches(ALL).rows] == ["node-2"]
    assert [(row.node, row.ended) for row in pages.closed_breaches(ALL).rows] == [("node-1", "over with its run")]
