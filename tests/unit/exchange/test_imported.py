"""Imported results on the pages, beside the measurements of this installation, of which they are no part."""

from __future__ import annotations

import re
from datetime import timedelta
from pathlib import Path

import pytest
from sqlalchemy import select

from bench_image.contract.spec import NODE_NAME
from tests.builders import make_result
from tests.builders.commands import document, trainbench
from tests.builders.nights import ENDED_AT, night
from tests.builders.three_nights import overview_of
from trainbench.core.states import FRESH
from trainbench.core.user_error import UnknownEntryError
from trainbench.core.verdicts import Why
from trainbench.cost.monthly_cost import paid_runs
from trainbench.figure_catalogue.run_figures import SAMPLES_PER_SECOND
from trainbench.history.history import History, open_history
from trainbench.history.tables import runs
from trainbench.pages.reads.comparisons import costs, strategies
from trainbench.pages.reads.filters import Filters
from trainbench.pages.reads.fleet import heat_map
from trainbench.pages.reads.node_trends import node_page
from trainbench.pages.reads.notices import open_notices
from trainbench.pages.reads.queries import Pages
from trainbench.pages.reads.run_list import runs_page
from trainbench.results.artefacts import Store, open_store
from trainbench.results.campaign import WITHOUT_DAG

ALL, NOW = Filters(), ENDED_AT + timedelta(days=3)
OURS = night(1, {"node-1": 10.0, "node-2": 10.0})
IMPORTED = make_result("node-1", 20.0, campaign_id="imported-nvidia-h200-x-12345678")
# A verdict that another installation wrote: its node-1 is red, its price is its own.
WITH_VERDICT = night(2, {"node-1": 8.0}, {"node-1": Why.SLOW}, campaign_id="imported-with-a-verdict-87654321")


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Store:
    monkeypatch.setenv("TRAINBENCH_STORE", str(tmp_path / "store"))
    monkeypatch.delenv("TRAINBENCH_HISTORY_URL", raising=False)
    return open_store()


@pytest.fixture
def both(store: Store) -> History:
    """Our night and two imported campaigns; recorded twice, they are the same."""
    store.write_campaign(OURS)
    store.write_result(IMPORTED)
    store.write_campaign(WITH_VERDICT)
    for _ in range(2):
        done = document(trainbench("reindex", "--json"))
        assert (done["recorded"], len(done["imported"])) == (["night-1"], 2)
    return open_history(store=store)


@pytest.fixture
def ours(tmp_path: Path) -> History:
    """Our night alone."""
    history = open_history(f"sqlite:///{tmp_path}/ours.sqlite")
    history.record(OURS)
    return history


def pages_of(history: History) -> Pages:
    return Pages(history.engine, WITHOUT_DAG | {"node_consistency"})


def test_imported_runs_and_strategies_are_listed_as_imported(both: History) -> None:
    """Medians: ours 10 and 10, the imported 20 and 8, which makes 14."""
    rows = pages_of(both).read(runs_page, ALL).rows
    assert {(row.node, row.dag_id) for row in rows if row.is_imported} == {
        ("imported-12345678/node-1", "imported"),
        ("imported-87654321/node-1", "imported"),
    }
    assert {row.node for row in rows if not row.is_imported} == {"node-1", "node-2"}
    compared = pages_of(both).read(strategies, ALL).rows
    found = {(row.is_imported, row.figure(SAMPLES_PER_SECOND)) for row in compared}
    assert found == {(False, 10.0), (True, 14.0)}


def test_imported_runs_are_in_no_sum_of_the_costs(both: History, ours: History) -> None:
    together, alone = pages_of(both).read(costs, ALL), pages_of(ours).read(costs, ALL)
    assert alone.total.num_runs == 2
    assert (together.total, together.months, together.dags, together.works) == (
        alone.total, alone.months, alone.dags, alone.works,
    )  # fmt: skip
    assert (together.imported.num_runs, alone.imported.num_runs) == (2, 0)
    span = (ENDED_AT - timedelta(days=9), NOW)
    assert list(paid_runs(both, *span).campaign_id) == list(paid_runs(ours, *span).campaign_id) == ["night-1"] * 2


def test_imported_runs_are_no_part_of_the_fleet(both: History, ours: History) -> None:
    """Not even where their node is red, has the name of one of ours, and was measured later."""
    together, alone = pages_of(both), pages_of(ours)
    today = NOW.date()
    assert overview_of(together, ALL, today) == overview_of(alone, ALL, today)
    assert together.read(heat_map, ALL, today) == alone.read(heat_map, ALL, today)
    assert together.read(open_notices, ALL) == alone.read(open_notices, ALL)
    pages = [repr(read.read(node_page, ALL, "node-1", NOW, FRESH)) for read in (together, alone)]
    assert len({re.sub(r"work_id=\d+", "", page) for page in pages}) == 1  # each history has numbers of its own
    assert both.fleet_state(NOW, FRESH) == ours.fleet_state(NOW, FRESH)
    assert both.last_measured(ENDED_AT - timedelta(days=9)).keys() == {"node-1", "node-2"}


def test_imported_runs_are_no_past_of_our_nodes(both: History, ours: History) -> None:
    tonight = make_result("node-1", 10.0, campaign_id="tonight").model_copy(update={"started_at": NOW})
    works = {tonight.effective_spec.fingerprint}
    records = both.node_records(works, "tonight", NOW)
    assert records == ours.node_records(works, "tonight", NOW)
    assert {record.node for record in records} == {"node-1", "node-2"}


def test_by_no_field_an_imported_run_is_taken_for_one_of_ours(both: History) -> None:
    fields = (runs.c.node, runs.c.is_baseline, runs.c.gpu_uuids)
    with both.engine.connect() as connection:
        rows = connection.execute(select(*fields).where(runs.c.suite == "imported").order_by(runs.c.node)).all()
    assert [tuple(row) for row in rows] == [
        ("imported-12345678/node-1", False, None), ("imported-87654321/node-1", False, None),
    ]  # fmt: skip
    assert not any(re.fullmatch(NODE_NAME, row.node) for row in rows), "no node of a cluster can have this name"


def test_an_imported_node_has_no_level_to_accept(store: Store) -> None:
    store.write_result(IMPORTED)
    trainbench("reindex")
    with pytest.raises(UnknownEntryError, match="nothing was ever measured on any node: no run"):
        open_history(store=store).accept_baseline(None, "me", "new driver", NOW)


def test_an_import_without_a_reachable_history_is_stored(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    (Path(store.root.path)).mkdir(parents=True)
    result = Path(store.root.path) / "result.json"
    result.write_text(IMPORTED.model_dump_json())
    trainbench("export", str(result), "--output", str(store.root))
    (exported,) = Path(store.root.path).glob("nvidia-*.json")
    monkeypatch.setenv("TRAINBENCH_DEFERRABLE", "maybe")
    refused = trainbench("import", str(exported), "--store", str(store.root))
    assert (refused.exit_code, store.campaign_ids()) == (2, ()), refused.stderr
    monkeypatch.delenv("TRAINBENCH_DEFERRABLE")
    monkeypatch.setenv("TRAINBENCH_HISTORY_URL", "postgresql+psycopg://nowhere:1/x")
    done = trainbench("import", str(exported))
    assert done.exit_code == 0, done.stderr
    assert "the results are stored, and `trainbench reindex` brings them onto the pages" in done.stderr
    monkeypatch.delenv("TRAINBENCH_HISTORY_URL")
    trainbench("import", str(exported))
    (row,) = pages_of(open_history(store=store)).read(runs_page, ALL).rows
    assert row.node == f"imported-{row.campaign_id[-8:]}/node-1"
