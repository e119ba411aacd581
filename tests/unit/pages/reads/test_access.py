"""Whoever may not see a DAG sees nothing of it: no row, no name and no number."""

from __future__ import annotations

from dataclasses import asdict

import pytest

from tests.builders.three_nights import ALL, DAY_3, HIDDEN, HOSTILE, every_read
from trainbench.history.history import History
from trainbench.pages.reads.queries import Pages


def test_a_dag_that_one_may_not_see_is_nowhere_not_even_in_a_number(recorded: History, pages: Pages) -> None:
    everything_read = "\n".join(map(str, every_read(pages, ALL)))
    assert [word for word in ("hidden", HIDDEN, "node-9", "gpt2", "A10") if word in everything_read] == []
    overview = pages.overview(ALL, DAY_3)
    assert (overview.num_nodes, overview.num_red, overview.spent.num_runs) == (4, 1, 11)
    theirs = Pages(recorded.engine, {HIDDEN}).overview(ALL, DAY_3)
    assert (theirs.num_nodes, theirs.num_red, theirs.spent.num_runs) == (1, 1, 1)
    assert theirs.last_campaign
    assert theirs.last_campaign.campaign_id == "hidden-3"


def test_whoever_may_see_nothing_sees_an_empty_page(recorded: History) -> None:
    nobody = Pages(recorded.engine, set())
    assert nobody.overview(ALL, DAY_3).num_nodes == 0
    assert nobody.heat_map(ALL, DAY_3).rows == ()
    assert nobody.open_breaches(ALL).num_total == 0
    assert nobody.runs(ALL).num_total == 0
    assert asdict(nobody.choices()) == dict.fromkeys(("gpu_names", "models", "recipes", "strategies", "dag_ids"), ())


def test_a_run_or_a_breach_of_another_dag_looks_like_one_that_is_not_there(recorded: History, pages: Pages) -> None:
    (their_breach,) = Pages(recorded.engine, {HIDDEN}).open_breaches(ALL).rows
    (their_run,) = Pages(recorded.engine, {HIDDEN}).runs(ALL).rows
    assert pages.breach(their_breach.id) is None
    assert pages.run("hidden-3", their_run.run_id) is None
    assert Pages(recorded.engine, {HIDDEN}).run("hidden-3", their_run.run_id) is not None


@pytest.mark.parametrize("text", ["\x00", "\ud800", "a" * 10_000, "'; DROP TABLE runs; --", HOSTILE, "", "%"])
def test_a_name_from_outside_finds_nothing_and_breaks_nothing(pages: Pages, text: str) -> None:
    assert pages.node(text, ALL) is None
    assert pages.run(text, text) is None


@pytest.mark.parametrize("number", [-1, 0, 2**31, 10**30])
def test_a_breach_that_cannot_be_is_not_there(pages: Pages, number: int) -> None:
    assert pages.breach(number) is None
