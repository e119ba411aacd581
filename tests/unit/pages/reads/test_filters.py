"""The filters of all lists, and what a form may send."""

from __future__ import annotations

from dataclasses import asdict
from datetime import date
from typing import Any

import pytest
from pydantic import ValidationError

from tests.builders import make_failed, make_result
from tests.builders.nights import night
from tests.builders.three_nights import DAY_3, SEEN, every_read, overview_of, pieces
from trainbench.history.history import History
from trainbench.pages.reads.comparisons import costs, strategies
from trainbench.pages.reads.filters import Filters
from trainbench.pages.reads.fleet import heat_map
from trainbench.pages.reads.notices import open_notices
from trainbench.pages.reads.queries import Pages, choices
from trainbench.pages.reads.rows import RunsPage
from trainbench.pages.reads.run_list import runs_csv, runs_page


@pytest.mark.both_databases
def test_the_choices_are_what_was_ever_benchmarked(pages: Pages) -> None:
    assert asdict(pages.read(choices, Filters())) == {
        "gpu_names": ("NVIDIA H200",), "models": ("mistral-7b",), "recipes": ("qlora",), "strategies": ("single",),
        "nodes": ("node-1", "node-10", "node-2", "node-3"), "campaigns": ("night-3", "night-2", "night-1"),
        "dag_ids": (SEEN,),
    }  # fmt: skip


@pytest.mark.parametrize(
    ("chosen", "num_runs"),
    [
        ({}, 11),
        ({"gpu_name": "NVIDIA H200", "model": "mistral-7b", "recipe": "qlora", "strategy": "single"}, 11),
        ({"since": date(2026, 11, 2)}, 7),
        ({"gpu_name": "NVIDIA A10"}, 0),
        ({"strategy": "zero3"}, 0),
        ({"model": "gpt2"}, 0),
        ({"since": date(2027, 1, 1)}, 0),
        ({"campaign": "T-2"}, 4),
    ],
)
def test_every_list_has_the_same_filters(pages: Pages, chosen: dict[str, Any], num_runs: int) -> None:
    filters = Filters(**chosen)
    assert pages.read(runs_page, filters).num_total == len(pages.read(runs_page, filters).rows) == num_runs
    assert pages.read(costs, filters).total.num_runs == num_runs
    assert len("".join(pieces(pages, runs_csv, filters)).splitlines()) == num_runs + 1
    assert sum(row.num_runs for row in pages.read(strategies, filters).rows) == num_runs
    assert len(list(every_read(pages, filters))) == 14


@pytest.mark.parametrize(
    ("chosen", "num_runs"),
    [
        ({"node": "node-1"}, 3),  # not node-10
        ({"node": "ODE-1"}, 6),
        ({"node": "node-9"}, 0),  # another DAG's
        ({"node": "%"}, 0),
        ({"state": "red"}, 1),
        ({"state": "failed"}, 0),
        ({"state": "well", "campaign": "night-1"}, 3),
    ],
)
def test_runs_are_searched_by_node_and_state(pages: Pages, chosen: dict[str, Any], num_runs: int) -> None:
    filters = Filters(**chosen)
    assert pages.read(runs_page, filters).num_total == num_runs
    assert len(pages.read(runs_page, filters).rows) == num_runs
    assert len("".join(pieces(pages, runs_csv, filters)).splitlines()) == num_runs + 1


@pytest.mark.both_databases
def test_failed_runs_and_the_second_node_of_a_gang_are_found(history: History) -> None:
    gang = make_result("node-1", 10.0, strategy="ddp", nodes=2, peers=("node-2",))
    history.record(night(1, [gang, make_failed("node-4")]))
    pages = Pages(history.engine, {SEEN})

    def runs(filters: Filters) -> RunsPage:
        return pages.read(runs_page, filters)

    assert [row.node for row in runs(Filters(node="node-2")).rows] == ["node-1"]
    assert [row.node for row in runs(Filters(state="failed")).rows] == ["node-4"]
    assert (runs(Filters()).num_failed, runs(Filters(node="node-4")).num_failed) == (1, 1)
    assert runs(Filters(node="node-2")).num_failed == 0


def test_the_fleet_is_searched_by_node(pages: Pages) -> None:
    """node-1 and node-10, of which only the first is meant by its whole name."""
    for node, names in (("node-1", ["node-1"]), ("E-1", ["node-1", "node-10"]), ("node-9", [])):
        filters = Filters(node=node)
        overview = overview_of(pages, filters, DAY_3)
        assert [state.node for state in overview.states] == names
        assert (overview.num_nodes, overview.num_measured) == (len(names), len(names))
        assert [row.node for row in pages.read(heat_map, filters, DAY_3).rows] == names
    assert [row.node for row in pages.read(heat_map, Filters(), DAY_3, only={"node-2"}).rows] == ["node-2"]
    assert [notice.node for notice in pages.read(open_notices, Filters(node="node-2")).rows] == ["node-2"]
    assert pages.read(open_notices, Filters(node="node-1")).rows == ()


def test_what_a_form_sends_is_checked() -> None:
    assert Filters.model_validate({"gpu_name": "", "model": "gpt2"}) == Filters(model="gpt2")
    for bad in ({"since": "yesterday"}, {"model": "\x00"}, {"model": "x" * 301}, {"colour": "red"}, {"state": "ill"}):
        with pytest.raises(ValidationError):
            Filters.model_validate(bad)
