"""The list of runs, one run, and the runs as CSV."""

from __future__ import annotations

import csv
import io
from datetime import UTC, datetime

import pytest

from tests.builders import make_failed, make_result
from tests.builders.nights import night
from tests.builders.three_nights import ALL, DAY_3, HOSTILE, SEEN, pieces
from trainbench.core.verdicts import State, Why
from trainbench.history.history import History
from trainbench.pages.reads.comparisons import strategies
from trainbench.pages.reads.filters import Filters
from trainbench.pages.reads.fleet import heat_map
from trainbench.pages.reads.notices import open_notices
from trainbench.pages.reads.queries import Pages
from trainbench.pages.reads.run_list import run_page, runs_csv, runs_page

pytestmark = pytest.mark.both_databases


def test_the_run_list_is_newest_campaign_first_in_pages_that_hold_each_run_once(
    pages: Pages, monkeypatch: pytest.MonkeyPatch
) -> None:
    newest = pages.read(runs_page, ALL)
    assert [row.campaign_id for row in newest.rows] == ["night-3"] * 3 + ["night-2"] * 4 + ["night-1"] * 4
    assert (newest.num_total, newest.page, newest.num_pages) == (11, 1, 1)
    first = newest.rows[0]
    assert (first.dag_id, first.dag_run_id, first.status, first.state) == (SEEN, "scheduled__3", "ok", State.WELL)

    monkeypatch.setattr("trainbench.pages.reads.run_list.RUNS_ON_PAGE", 3)
    some = [pages.read(runs_page, ALL, page) for page in (1, 2, 3, 4)]
    assert [row.run_id for page in some for row in page.rows] == [row.run_id for row in newest.rows]
    assert [page.num_pages for page in some] == [4, 4, 4, 4]
    assert pages.read(runs_page, ALL, 1000) == some[-1]
    assert pages.read(runs_page, ALL, -3) == some[0]


def test_one_run_with_its_campaign_verdict_and_repeats(history: History) -> None:
    runs = [make_result("node-1", 9.0), make_result("node-1", 9.2, round=2), make_result("node-2", 10.0)]
    history.record(night(1, runs, {"node-1": Why.SLOW}))
    first, second = runs[0].spec.identity.run_id, runs[1].spec.identity.run_id
    actual = Pages(history.engine, {SEEN}).read(run_page, Filters(), "night-1", first)
    assert actual
    assert (actual.run.run_id, actual.others, actual.run.dag_run_id) == (first, (second,), "scheduled__1")
    assert actual.verdict
    assert (actual.verdict.word, actual.verdict.num_runs, actual.verdict.run_id) == ("red: slow", 2, first)


def test_a_failed_run_is_in_the_lists_of_its_group_s_gpu(history: History) -> None:
    history.record(night(1, [make_result("node-1", 10.0), make_failed("node-2")], {"node-2": Why.FAILED}))
    pages = Pages(history.engine, {SEEN})
    filters = Filters(gpu_name="NVIDIA H200")
    assert sorted((row.node, row.status) for row in pages.read(runs_page, filters).rows) == [
        ("node-1", "ok"),
        ("node-2", "oom"),
    ]
    assert [notice.node for notice in pages.read(open_notices, filters).rows] == ["node-2"]
    (row,) = pages.read(strategies, filters).rows
    assert (row.num_runs, row.num_failed) == (2, 1)


def test_a_campaign_recorded_again_is_counted_once(history: History) -> None:
    history.record(night(1, {"node-1": 10.0, "node-2": 10.0}, {"node-3": Why.MISSING}))
    history.record(night(1, {"node-1": 9.0}))
    pages = Pages(history.engine, {SEEN})
    assert pages.read(runs_page, ALL).num_total == 1
    assert [row.node for row in pages.read(heat_map, ALL, DAY_3).rows] == ["node-1"]


def test_the_csv_holds_every_run_in_pieces(pages: Pages, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("trainbench.pages.reads.run_list.ROWS_AT_ONCE", 2)
    texts = list(pieces(pages, runs_csv, ALL))
    assert [len(piece.splitlines()) for piece in texts] == [1, 2, 2, 2, 2, 2, 1]
    rows = list(csv.DictReader(io.StringIO("".join(texts))))
    assert [(row["campaign_id"], row["run_id"]) for row in rows] == [
        (row.campaign_id, row.run_id) for row in pages.read(runs_page, ALL).rows
    ]
    assert rows[0]["samples_per_second"] == "10.1"
    assert (rows[0]["state"], rows[0]["why"]) == ("well", "well")
    assert rows[0]["is_drill"] == "false"
    assert datetime.fromisoformat(rows[0]["started_at"]).tzinfo == UTC


def test_a_spreadsheet_finds_no_formula_in_the_csv(history: History) -> None:
    history.record(night(1, [make_result("node-1", 10.0)], dag_run_id=HOSTILE))
    text = "".join(pieces(Pages(history.engine, {SEEN}), runs_csv, ALL))
    (row,) = csv.DictReader(io.StringIO(text))
    assert row["dag_run_id"] == "'=cmd|' /C calc'!A0 <script>alert(1)</script>"
