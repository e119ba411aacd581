"""The list of runs, and one run."""

from __future__ import annotations

import pytest

from tests.builders import make_failed, make_result
from tests.builders.nights import night
from tests.builders.three_nights import ALL, DAY_3, SEEN
from trainbench.core.verdicts import State, Why
from trainbench.figure_catalogue.run_figures import SAMPLES_PER_SECOND
from trainbench.history.history import History
from trainbench.pages.reads.filters import Filters
from trainbench.pages.reads.queries import Pages
from trainbench.pages.reads.rows import RunSort

pytestmark = pytest.mark.both_databases


def test_the_run_list_is_newest_campaign_first_and_can_be_turned_round(pages: Pages) -> None:
    newest, oldest = pages.runs(ALL), pages.runs(ALL, sort=RunSort.OLDEST)
    assert [row.campaign_id for row in newest.rows] == ["night-3"] * 3 + ["night-2"] * 4 + ["night-1"] * 4
    assert [row.run_id for row in oldest.rows] == [row.run_id for row in reversed(newest.rows)]
    assert (newest.num_total, newest.num_ranked, newest.page, newest.num_pages) == (11, 11, 1, 1)
    first = newest.rows[0]
    assert (first.dag_id, first.dag_run_id, first.status, first.state) == (SEEN, "scheduled__3", "ok", State.WELL)


@pytest.mark.parametrize("sort", list(RunSort))
def test_pages_of_the_run_list_hold_each_run_once(pages: Pages, monkeypatch: pytest.MonkeyPatch, sort: RunSort) -> None:
    whole = [(row.campaign_id, row.run_id) for row in pages.runs(ALL, sort=sort).rows]
    monkeypatch.setattr("trainbench.pages.reads.run_list.RUNS_ON_PAGE", 3)
    actual = [pages.runs(ALL, page, sort) for page in (1, 2, 3, 4)]
    assert [(row.campaign_id, row.run_id) for page in actual for row in page.rows] == whole
    assert [page.num_pages for page in actual] == [4, 4, 4, 4]
    assert pages.runs(ALL, 1000, sort) == actual[-1]
    assert pages.runs(ALL, -3, sort) == actual[0]


def test_runs_ranked_by_speed_and_price(history: History) -> None:
    broken = make_failed("node-4")
    runs = [make_result("node-1", 9.0, total_s=60.0), make_result("node-2", 11.0), make_result("node-3", 10.0), broken]
    history.record(night(1, runs))
    pages = Pages(history.engine, {SEEN})
    order = {sort: [row.node for row in pages.runs(ALL, sort=sort).rows] for sort in RunSort}
    assert order[RunSort.SLOWEST] == ["node-1", "node-3", "node-2", "node-4"]
    assert order[RunSort.FASTEST] == ["node-2", "node-3", "node-1", "node-4"]
    assert order[RunSort.DEAREST][0] == "node-1"
    assert order[RunSort.DEAREST][-1] == "node-4"


def test_only_the_newest_runs_are_ranked_and_the_page_says_how_many(
    pages: Pages, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Night 3 has 3 runs and night 2 has 4: together 7, and night 1's 9.0 samples/s are not looked at."""
    monkeypatch.setattr("trainbench.pages.reads.run_list.RANKED_RUNS", 8)
    actual = pages.runs(ALL, sort=RunSort.SLOWEST)
    assert (actual.num_total, actual.num_ranked, len(actual.rows)) == (11, 7, 7)
    assert actual.rows[0].figure(SAMPLES_PER_SECOND) == 9.8


def test_one_run_with_its_campaign_verdict_and_repeats(history: History) -> None:
    runs = [make_result("node-1", 9.0), make_result("node-1", 9.2, round=2), make_result("node-2", 10.0)]
    history.record(night(1, runs, {"node-1": Why.SLOW}))
    first, second = runs[0].spec.identity.run_id, runs[1].spec.identity.run_id
    actual = Pages(history.engine, {SEEN}).run("night-1", first)
    assert actual
    assert (actual.run.run_id, actual.others, actual.run.dag_run_id) == (first, (second,), "scheduled__1")
    assert actual.verdict
    assert (actual.verdict.word, actual.verdict.num_runs, actual.verdict.run_id) == ("red: slow", 2, first)


def test_a_failed_run_is_in_the_lists_of_its_group_s_gpu(history: History) -> None:
    history.record(night(1, [make_result("node-1", 10.0), make_failed("node-2")], {"node-2": Why.FAILED}))
    pages = Pages(history.engine, {SEEN})
    filters = Filters(gpu_name="NVIDIA H200")
    assert sorted((row.node, row.status) for row in pages.runs(filters).rows) == [("node-1", "ok"), ("node-2", "oom")]
    assert [notice.node for notice in pages.open_notices(filters).rows] == ["node-2"]
    (row,) = pages.strategies(filters).rows
    assert (row.num_runs, row.num_failed) == (2, 1)


def test_a_campaign_recorded_again_is_counted_once(history: History) -> None:
    history.record(night(1, {"node-1": 10.0, "node-2": 10.0}, {"node-3": Why.MISSING}))
    history.record(night(1, {"node-1": 9.0}))
    pages = Pages(history.engine, {SEEN})
    assert pages.runs(ALL).num_total == 1
    assert [row.node for row in pages.heat_map(ALL, DAY_3).rows] == ["node-1"]
