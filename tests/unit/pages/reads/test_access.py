"""Whoever may not see a DAG sees nothing of it: no row, no name and no number."""

from __future__ import annotations

import shutil
from dataclasses import asdict
from pathlib import Path

import pytest

from tests.builders.three_nights import ALL, DAY_3, HIDDEN, HOSTILE, every_read, node_of, overview_of
from trainbench.core.verdicts import State
from trainbench.exchange.reindex import reindex
from trainbench.history.history import History, open_history
from trainbench.pages.reads.comparisons import costs, strategies
from trainbench.pages.reads.filters import Filters
from trainbench.pages.reads.fleet import heat_map
from trainbench.pages.reads.notices import notice_by_id, open_notices
from trainbench.pages.reads.queries import Pages, choices, open_engine
from trainbench.pages.reads.run_list import run_page, runs_page
from trainbench.results.artefacts import open_store
from trainbench.results.campaign import RESULT_FILES, WITHOUT_DAG

STUDY = Path(__file__).parents[4] / "docs" / "results" / "campaigns" / "h200-strategies-2026-11-21"


@pytest.mark.both_databases
def test_a_dag_that_one_may_not_see_is_nowhere_not_even_in_a_number(recorded: History, pages: Pages) -> None:
    everything_read = "\n".join(map(str, every_read(pages, ALL)))
    assert [word for word in ("hidden", HIDDEN, "node-9", "gpt2", "A10") if word in everything_read] == []
    overview = overview_of(pages, ALL, DAY_3)
    assert (overview.num_nodes, overview.summary.counts[State.RED], overview.spent.num_runs) == (4, 1, 11)
    theirs = overview_of(Pages(recorded.engine, {HIDDEN}), ALL, DAY_3)
    assert (theirs.num_nodes, theirs.summary.counts[State.RED], theirs.spent.num_runs) == (1, 1, 1)
    assert theirs.last_run
    assert theirs.last_run.dag_id == HIDDEN


def test_whoever_may_see_nothing_sees_an_empty_page(recorded: History) -> None:
    nobody = Pages(recorded.engine, set())
    assert overview_of(nobody, ALL, DAY_3).num_nodes == 0
    assert nobody.read(heat_map, ALL, DAY_3).rows == ()
    assert nobody.read(open_notices, ALL).num_total == 0
    assert nobody.read(runs_page, ALL).num_total == 0
    known = asdict(nobody.read(choices, ALL))
    assert known == dict.fromkeys(known, ())


def test_a_run_or_a_notice_of_another_dag_looks_like_one_that_is_not_there(recorded: History, pages: Pages) -> None:
    (their_notice,) = Pages(recorded.engine, {HIDDEN}).read(open_notices, ALL).rows
    (their_run,) = Pages(recorded.engine, {HIDDEN}).read(runs_page, ALL).rows
    assert pages.read(notice_by_id, Filters(), their_notice.id) is None
    assert pages.read(run_page, Filters(), "hidden-3", their_run.run_id) is None
    assert Pages(recorded.engine, {HIDDEN}).read(run_page, Filters(), "hidden-3", their_run.run_id) is not None


@pytest.mark.parametrize("text", ["\x00", "\ud800", "a" * 10_000, "'; DROP TABLE runs; --", HOSTILE, "", "%"])
def test_a_name_from_outside_finds_nothing_and_breaks_nothing(pages: Pages, text: str) -> None:
    assert node_of(pages, text, ALL) is None
    assert pages.read(run_page, Filters(), text, text) is None


@pytest.mark.parametrize("number", [-1, 0, 2**31, 10**30])
def test_a_notice_that_cannot_be_is_not_there(pages: Pages, number: int) -> None:
    assert pages.read(notice_by_id, Filters(), number) is None


def test_a_study_without_a_dag_appears_on_every_page_of_who_sees_our_dags(tmp_path: Path) -> None:
    store = open_store(str(tmp_path / "store"))
    shutil.copytree(STUDY, tmp_path / "store" / "campaigns" / STUDY.name)
    url = f"sqlite:///{tmp_path / 'history.sqlite'}"
    assert reindex(store, open_history(url, store)).recorded == (STUDY.name,)

    num_runs = (STUDY / "documents.jsonl").read_text().count('"runs/')
    seen = Pages(open_engine(url, store), WITHOUT_DAG)
    assert seen.read(runs_page, Filters()).num_total == num_runs
    rows = seen.read(strategies, Filters(strategy="fsdp")).rows
    assert {row.world_size for row in rows} == {2, 4}
    assert all(row.tokens_per_second for row in rows)
    paid = seen.read(costs, Filters())
    assert (paid.total.num_runs, paid.dags[0].what) == (num_runs, RESULT_FILES)
    assert paid.total.gpu_hours is not None

    hidden = Pages(open_engine(url, store), frozenset({"node_consistency"}))
    assert hidden.read(runs_page, Filters()).num_total == 0
