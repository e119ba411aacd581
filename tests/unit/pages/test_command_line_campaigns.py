"""The committed study of strategies, re-indexed into a store, on the pages Strategies, Runs and Costs."""

from __future__ import annotations

import shutil
from pathlib import Path

from trainbench.exchange.reindex import reindex
from trainbench.history.history import open_history
from trainbench.pages.reads.filters import Filters
from trainbench.pages.reads.queries import Pages, open_engine
from trainbench.pages.reads.rows import RunSort
from trainbench.results.artefacts import open_store
from trainbench.results.campaign import RESULT_FILES, WITHOUT_DAG

STUDY = Path(__file__).parents[3] / "docs" / "results" / "campaigns" / "h200-strategies-2026-11-21"


def test_a_study_without_a_dag_appears_on_every_page_of_who_sees_our_dags(tmp_path: Path) -> None:
    store = open_store(str(tmp_path / "store"))
    shutil.copytree(STUDY, tmp_path / "store" / "campaigns" / STUDY.name)
    url = f"sqlite:///{tmp_path / 'history.sqlite'}"
    assert reindex(store, open_history(url, store)).recorded == (STUDY.name,)

    num_runs = len(list(STUDY.glob("runs/*/result.json")))
    seen = Pages(open_engine(url, store), WITHOUT_DAG)
    assert seen.runs(Filters(), 1, RunSort.NEWEST).num_total == num_runs
    rows = seen.strategies(Filters(strategy="fsdp")).rows
    assert {row.world_size for row in rows} == {2, 4}
    assert all(row.figures["tokens_per_second"] for row in rows)
    costs = seen.costs(Filters())
    assert (costs.total.num_runs, costs.dags[0].name) == (num_runs, RESULT_FILES)
    assert costs.total.gpu_hours is not None

    hidden = Pages(open_engine(url, store), frozenset({"node_consistency"}))
    assert hidden.runs(Filters(), 1, RunSort.NEWEST).num_total == 0
