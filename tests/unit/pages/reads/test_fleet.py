"""The overview of a fleet and the map of its nodes by day."""

from __future__ import annotations

import csv
from datetime import date, timedelta

import pytest

from tests.builders.nights import ENDED_AT, night
from tests.builders.three_nights import ALL, DAY_3, SEEN, overview_of, pieces
from trainbench.core.states import TRAITS, NodeState
from trainbench.core.verdicts import Against, Metric, State, Why
from trainbench.history.history import History
from trainbench.history.spending import Spend
from trainbench.pages.reads.filters import Filters
from trainbench.pages.reads.fleet import heat_csv, heat_map
from trainbench.pages.reads.queries import Pages
from trainbench.pages.reads.rows import Overview

pytestmark = pytest.mark.both_databases


def test_the_overview_counts_the_last_days(pages: Pages) -> None:
    """11 runs of 55 s on one GPU at $0.60: 11 x 55 / 3600 = 0.16806 GPU-hours, $0.10083."""
    overview = overview_of(pages, ALL, DAY_3)
    assert (overview.num_nodes, overview.num_measured) == (4, 4)
    assert overview.summary.counts == {State.RED: 1, State.WELL: 3}
    assert overview.spent.gpu_hours == pytest.approx(0.168056, rel=1e-4)
    assert overview.spent.usd == pytest.approx(0.100833, rel=1e-4)
    assert overview.last_run == ("node_consistency", "scheduled__3", ENDED_AT + timedelta(days=2), False, 1)
    missing = overview_of(pages, Filters(since=DAY_3), DAY_3)  # node-2 is counted but not measured
    assert (missing.num_nodes, missing.num_measured) == (4, 3)
    later = overview_of(pages, ALL, DAY_3 + timedelta(days=7))
    assert (later.num_nodes, later.num_measured, later.summary.counts) == (0, 0, {State.RED: 1})


def test_nodes_of_one_reason_stand_together_but_each_red_one_by_itself() -> None:
    """On a phone the first card is all that one sees."""
    of = [("node-2", Why.BEHIND, ""), ("node-10", Why.SLOW, "why"), ("node-3", Why.BEHIND, ""),
          ("node-4", Why.WELL, ""), ("node-1", Why.BEHIND, "-4.0 %"), ("node-5", Why.SLOW, "why")]  # fmt: skip
    seen = Overview(
        num_nodes=6, num_measured=6, last_run=None,
        states=tuple(NodeState(node, TRAITS[why].state, why, reason) for node, why, reason in of),
        spent=Spend(what="", usd=None, gpu_hours=None, num_runs=0, num_unknown=0),
    )  # fmt: skip

    assert [[node.node for node in nodes] for nodes in seen.unwell] == [
        ["node-10"], ["node-5"], ["node-2", "node-3", "node-1"],
    ]  # fmt: skip
    assert seen.summary.headline == (
        "2 of 6 nodes are slow: node-5 and node-10; 3 lag behind: node-1, node-2 and node-3; 1 is well."
    )


def test_the_map_puts_the_node_that_was_red_last_first_and_sorts_the_rest_by_number(pages: Pages) -> None:
    heat = pages.read(heat_map, ALL, DAY_3, days=30)
    assert heat.days == ("2026-11-01", "2026-11-02", "2026-11-03")
    assert [row.node for row in heat.rows] == ["node-2", "node-3", "node-1", "node-10"]
    assert [[cell.why.value if cell else None for cell in row.cells] for row in heat.rows] == [
        ["well", "well", "missing"],
        ["slow", "well", "well"],
        ["well", "well", "well"],
        ["well", "well", "well"],
    ]
    assert (heat.num_nodes, heat.num_red_nodes, heat.page, heat.num_pages) == (4, 2, 1, 1)
    missing, slow = heat.rows[0].cells[2], heat.rows[1].cells[0]
    assert missing
    assert slow
    assert (missing.metric, missing.against, missing.deviation, missing.num_verdicts) == (None, None, None, 1)
    assert (slow.metric, slow.against) == (Metric.SAMPLES_PER_SECOND, Against.PEERS)
    assert slow.deviation == pytest.approx(-10.0)
    assert (slow.campaign_id, slow.dag_id, slow.dag_run_id) == ("night-1", SEEN, "scheduled__1")
    assert heat.rows[0].gpu_name == "NVIDIA H200"


def test_the_map_begins_with_the_filters_and_shows_days_without_a_verdict(pages: Pages) -> None:
    heat = pages.read(heat_map, Filters(since=DAY_3), DAY_3 + timedelta(days=1), days=30)
    assert heat.days == ("2026-11-03", "2026-11-04")
    assert [row.node for row in heat.rows] == ["node-2", "node-1", "node-3", "node-10"]
    assert all(row.cells[1] is None for row in heat.rows)


@pytest.mark.parametrize("days", [-5, 0, 1, 10**9])
def test_the_map_has_at_least_a_day_and_at_most_a_quarter(pages: Pages, days: int) -> None:
    later = DAY_3 + timedelta(days=365)  # without a verdict no day is left out
    assert len(pages.read(heat_map, ALL, later, days=days).days) == (92 if days > 1 else 1)


def test_pages_of_the_map(pages: Pages, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("trainbench.pages.reads.fleet.NODES_ON_PAGE", 3)
    actual = [pages.read(heat_map, ALL, DAY_3, page=page) for page in (-1, 1, 2, 99)]
    assert [(heat.page, [row.node for row in heat.rows]) for heat in actual] == [
        (1, ["node-2", "node-3", "node-1"]),
        (1, ["node-2", "node-3", "node-1"]),
        (2, ["node-10"]),
        (2, ["node-10"]),
    ]


def test_all_rows_of_the_map_come_in_pieces(pages: Pages, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = pages.read(heat_map, ALL, DAY_3, days=3).rows
    monkeypatch.setattr("trainbench.pages.reads.fleet.NODES_ON_PAGE", 3)
    head, *tables = [list(csv.reader(text.splitlines())) for text in pieces(pages, heat_csv, ALL, DAY_3, 3)]

    assert head[0][:4] == ["node", "gpu_name", "day", "state"]
    assert [list(dict.fromkeys(line[0] for line in lines)) for lines in tables] == [
        ["node-2", "node-3", "node-1"],
        ["node-10"],
    ]
    assert [line for lines in tables for line in lines] == [
        [row.node, row.gpu_name, *("" if value is None else str(value) for value in cell)]
        for row in rows
        for cell in row.cells
        if cell
    ]


def test_a_day_of_several_campaigns_shows_the_worst_of_them(history: History) -> None:
    """node-1 is behind with -3 % in the morning, busy at noon, and at +1 % in the evening."""
    for hour, rate, why in ((1, 9.7, Why.BEHIND), (2, 10.0, Why.BUSY), (3, 10.1, Why.WELL)):
        campaign = night(1, {"node-1": rate}, {"node-1": why}, campaign_id=f"hour-{hour}", dag_run_id=f"run-{hour}")
        moved = campaign.finished_at + timedelta(hours=hour)
        history.record(campaign.model_copy(update={"finished_at": moved}))
    (row,) = Pages(history.engine, {SEEN}).read(heat_map, ALL, date(2026, 11, 1), days=1).rows
    (cell,) = row.cells
    assert cell
    assert (cell.state, cell.why, cell.campaign_id, cell.dag_run_id, cell.num_verdicts) == (
        State.LOOK, Why.BEHIND, "hour-1", "run-1", 3,
    )  # fmt: skip
    assert cell.deviation == pytest.approx(-3.0)


def test_the_map_shows_the_figure_that_decided(history: History) -> None:
    """-7 % against its past decides beside an only peer that is as slow: 9.3 of 10.0 and of 9.31."""
    decided_by = {"decided_by": (Metric.SAMPLES_PER_SECOND, Against.PAST), "past": 10.0}
    history.record(night(1, {"node-1": 9.3}, {"node-1": Why.SLOW}, reference=9.31, expected={"node-1": decided_by}))  # type: ignore[dict-item]
    (row,) = Pages(history.engine, {SEEN}).read(heat_map, ALL, date(2026, 11, 1), days=1).rows
    (cell,) = row.cells
    assert cell
    assert (cell.metric, cell.against, cell.deviation) == (
        Metric.SAMPLES_PER_SECOND, Against.PAST, pytest.approx(-7.0),
    )  # fmt: skip


def test_the_map_begins_with_the_first_day_on_which_a_node_was_judged(history: History) -> None:
    history.record(night(-3, {"node-1": 10.0}, groups=()))  # it compares runs and judges no node
    history.record(night(1, {"node-1": 10.0}))
    heat = Pages(history.engine, {SEEN}).read(heat_map, ALL, date(2026, 11, 2), days=30)

    assert heat.days == ("2026-11-01", "2026-11-02")


def test_works_recorded_in_another_order_than_their_days_stand_in_the_order_of_days(history: History) -> None:
    """`reindex` may record an older campaign after a newer one."""
    for day in (2, 1):
        history.record(night(day, {"node-1": 10.0 * day}, campaign_id=f"night-{day}", dag_run_id=f"run-{day}"))
    pages = Pages(history.engine, {SEEN})
    (row,) = pages.read(heat_map, ALL, date(2026, 11, 2), days=2).rows
    lines = "".join(pieces(pages, heat_csv, ALL, date(2026, 11, 2), 2)).splitlines()

    assert [cell.campaign_id for cell in row.cells if cell] == ["night-1", "night-2"]
    assert [line.split(",")[2] for line in lines[1:]] == ["2026-11-01", "2026-11-02"]
