"""Strategies and costs over several campaigns."""

from __future__ import annotations

from datetime import date, timedelta
from typing import Any

import pytest

from bench_image.contract.options import Strategy
from bench_image.contract.spec import Drill
from tests.builders import make_failed, make_result
from tests.builders.nights import ENDED_AT, night
from tests.builders.three_nights import ALL, DAY_3, SEEN, overview_of
from trainbench.figure_catalogue.run_figures import (
    PEAK_MEMORY_GB,
    SAMPLES_PER_SECOND,
    SCALING_EFFICIENCY_PCT,
    TOKENS_PER_SECOND,
)
from trainbench.history.history import History
from trainbench.pages.reads.comparisons import costs, strategies, two_months
from trainbench.pages.reads.queries import Pages
from trainbench.params.campaign_kind import CampaignKind

pytestmark = pytest.mark.both_databases


def study(history: History) -> Pages:
    """Two weeks of ddp on 1, 2 and 4 GPUs; the second week's run on 4 GPUs fails."""

    def ran(strategy: Strategy, gpus: int, rate: float) -> Any:
        return make_result("node-1", rate, strategy=strategy, gpus_per_node=gpus)

    week_1 = [ran(Strategy.SINGLE, 1, 10.0), ran(Strategy.DDP, 2, 18.0), ran(Strategy.FSDP, 2, 19.0)]
    week_2 = [ran(Strategy.SINGLE, 1, 12.0), ran(Strategy.DDP, 2, 20.0)]
    broken = make_failed("node-1", strategy=Strategy.DDP, gpus_per_node=4)
    fields: dict[str, Any] = {"campaign_kind": CampaignKind.STRATEGIES, "groups": (), "suite": "strategy_scaling"}
    history.record(night(1, week_1, **fields))
    history.record(night(8, [*week_2, broken], **fields))
    return Pages(history.engine, {"strategy_scaling"})


def test_strategies_are_medians_over_the_campaigns_of_equal_work(history: History) -> None:
    """single: (10 + 12) / 2 = 11. ddp on 2: (18 + 20) / 2 = 19, its efficiencies 90 and 83.33 %, median 86.67 %.
    fsdp on 2 ran once, at 19, so it may be 5 % off; both have 19 x 512 tokens/s, and the name decides.
    """
    rows = study(history).read(strategies, ALL).rows
    assert [(row.strategy, row.world_size, row.figure(SAMPLES_PER_SECOND)) for row in rows] == [
        ("single", 1, 11.0),
        ("ddp", 2, 19.0),
        ("fsdp", 2, 19.0),
        ("ddp", 4, None),
    ]
    assert [round(row.noise, 2) for row in rows] == [0.31, 0.18, 0.05, 0.0]  # of 2, 2, 1 and no figure
    ddp = rows[1]
    assert ddp.figure(SCALING_EFFICIENCY_PCT) == pytest.approx((90 + 100 * (20 / 2) / 12) / 2)
    assert ddp.figure(TOKENS_PER_SECOND) == 19.0 * 512
    assert (ddp.figure(PEAK_MEMORY_GB), ddp.num_campaigns, ddp.num_runs, ddp.num_failed) == (7.1, 2, 2, 0)
    assert (rows[3].num_runs, rows[3].num_failed, rows[3].gpu_name) == (1, 1, "NVIDIA H200")
    assert len({row.work_key for row in rows}) == 1
    assert (ddp.at, rows[2].at) == (ENDED_AT + timedelta(days=7), ENDED_AT)  # fsdp ran in the first week only


def test_drills_are_paid_for_but_do_not_enter_a_median(history: History) -> None:
    drilled = make_result("node-1", 1.0, drill=Drill(slowdown_pct=90))
    history.record(night(1, [drilled, make_result("node-2", 10.0)]))
    pages = Pages(history.engine, {SEEN})
    (row,) = pages.read(strategies, ALL).rows
    assert (row.figure(SAMPLES_PER_SECOND), row.num_runs) == (10.0, 2)
    assert pages.read(costs, ALL).total.num_runs == 2


def test_costs_by_month_by_dag_and_by_work(history: History) -> None:
    """Each run takes 55 s per GPU at $0.60: on one GPU $0.0091667. November has 3, December 1 of two GPUs."""
    history.record(night(1, {"node-1": 10.0, "node-2": 10.0}))
    history.record(night(2, {"node-1": 10.0}))
    two = make_result("node-1", 18.0, strategy=Strategy.DDP, gpus_per_node=2)
    history.record(night(31, [two], suite="strategy_scaling", groups=()))
    paid = Pages(history.engine, {SEEN, "strategy_scaling"}).read(costs, ALL)
    one = 55 / 3600 * 0.6
    assert [(row.what, row.usd, row.num_runs) for row in paid.months] == [
        ("2026-12", pytest.approx(2 * one), 1),
        ("2026-11", pytest.approx(3 * one), 3),
    ]
    assert [(row.what, row.usd) for row in paid.dags] == [
        (SEEN, pytest.approx(3 * one)),
        ("strategy_scaling", pytest.approx(2 * one)),
    ]
    assert [row.what for row in paid.works] == [
        "mistral-7b qlora single NVIDIA H200",
        "mistral-7b qlora ddp NVIDIA H200",
    ]
    assert paid.total.usd == pytest.approx(5 * one)
    assert paid.total.gpu_hours == pytest.approx(5 * 55 / 3600)


def test_this_month_stands_beside_the_same_days_of_the_last(history: History) -> None:
    """The nights of 1, 2 and 28 February have 1, 2 and 1 runs, that of 31 March one: March has 31 days."""
    for day, nodes in ((1, 1), (2, 2), (28, 1), (59, 1)):
        at_february = day + 92  # night 1 is that of 1 November
        history.record(night(at_february, {f"node-{number}": 10.0 for number in range(nodes)}))
    pages, one = Pages(history.engine, {SEEN}), 55 / 3600 * 0.6

    def spends(*today: int) -> list[float | None]:
        return [each.usd for each in pages.read(two_months, ALL, date(2027, *today))]

    assert spends(2, 28) == [pytest.approx(4 * one), None]
    assert spends(3, 1) == [None, pytest.approx(one)]
    assert spends(3, 2) == [None, pytest.approx(3 * one)]
    assert spends(3, 31) == [pytest.approx(one), pytest.approx(4 * one)]
    assert spends(3, 30) == [None, pytest.approx(4 * one)]


def test_an_unknown_price_is_counted_and_never_0(history: History) -> None:
    history.record(night(1, {"node-1": 10.0}, usd_per_gpu_hour=None))
    pages = Pages(history.engine, {SEEN})
    assert (pages.read(costs, ALL).total.usd, pages.read(costs, ALL).total.num_unknown) == (None, 1)
    assert [of.text for of in pages.read(costs, ALL).unpriced] == ["1 run on NVIDIA H200, which has no price"]
    assert overview_of(pages, ALL, DAY_3).spent.usd is None
    history.record(night(2, {"node-1": 10.0}))
    total = pages.read(costs, ALL).total
    assert (total.usd, total.num_runs, total.num_unknown) == (pytest.approx(55 / 3600 * 0.6), 2, 1)
