"""The lists of open and closed notices."""

from __future__ import annotations

from datetime import date, timedelta

import pytest

from tests.builders.nights import ENDED_AT, night
from tests.builders.three_nights import ALL, SEEN
from trainbench.core.verdicts import Against, Metric, State, Why
from trainbench.history.history import History
from trainbench.pages.reads.filters import Filters
from trainbench.pages.reads.notices import closed_notices, notice_by_id, open_notices
from trainbench.pages.reads.queries import Pages


@pytest.mark.both_databases
def test_an_open_notice_shows_figure_cause_and_next_step(pages: Pages) -> None:
    actual = pages.read(open_notices, ALL)
    (notice,) = actual.rows
    assert actual.num_total == 1
    assert (notice.node, notice.state, notice.why, notice.deviation) == ("node-2", State.RED, Why.MISSING, None)
    assert (notice.finding.cause, notice.finding.resolution) == (
        "node-2 is hot: its fans stand still",
        "look at the fans of node-2",
    )
    assert (notice.dag_id, notice.dag_run_id, notice.campaign_id) == (SEEN, "scheduled__3", "night-3")
    assert (notice.gpu_name, notice.model, notice.recipe, notice.strategy) == (
        "NVIDIA H200", "mistral-7b", "qlora", "single",
    )  # fmt: skip
    assert notice.opened_at == ENDED_AT + timedelta(days=2)
    assert notice.acknowledgement is None
    assert pages.read(notice_by_id, Filters(), notice.id) == notice


def test_a_closed_notice_names_its_end_and_the_campaign_that_closed_it(pages: Pages) -> None:
    (notice,) = pages.read(closed_notices, ALL).rows
    assert (notice.node, notice.metric, notice.against) == ("node-3", Metric.SAMPLES_PER_SECOND, Against.PEERS)
    assert notice.deviation == pytest.approx(-10.0)
    assert (notice.closed_at, notice.closed_by_campaign_id) == (ENDED_AT + timedelta(days=2), "night-3")
    assert pages.read(closed_notices, Filters(since=date(2026, 11, 4))).rows == ()


def test_the_time_does_not_hide_what_is_wrong_now_but_other_filters_narrow_it(pages: Pages) -> None:
    assert pages.read(open_notices, Filters(since=date(2026, 11, 4))).num_total == 1
    assert pages.read(open_notices, Filters(strategy="zero3")).num_total == 0


@pytest.mark.both_databases
def test_a_short_list_of_closed_notices_counts_all_of_them(history: History) -> None:
    rates = {f"node-{i}": 10.0 for i in range(3)}
    history.record(night(1, dict.fromkeys(rates, 9.0), dict.fromkeys(rates, Why.SLOW)))
    for day in (2, 3):
        history.record(night(day, rates))
    actual = Pages(history.engine, {SEEN}).read(closed_notices, ALL, 2)

    assert (len(actual.rows), actual.num_total) == (2, 3)
