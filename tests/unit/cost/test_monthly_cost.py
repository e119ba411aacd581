"""The cost of benchmarking by month: one answer, whichever surface gives it."""

from __future__ import annotations

from datetime import timedelta

import pytest

from tests.builders import make_failed, make_result
from tests.builders.nights import night
from tests.builders.three_nights import ALL
from trainbench.cost.monthly_cost import by_month, paid_runs
from trainbench.history.history import History
from trainbench.pages.reads.comparisons import costs
from trainbench.pages.reads.queries import Pages
from trainbench.params.cost_params import start_of

pytestmark = pytest.mark.both_databases
SUITE = "node_consistency"
ONE_USD = 55 / 3600 * 0.6  # 55 s on one GPU at $0.60 per GPU-hour


def test_a_night_over_the_end_of_a_month_counts_in_one_month_on_every_surface(history: History) -> None:
    """Its run began on 30 November at 23:46 and it ended on 1 December: report and page had it in different months."""
    campaign = night(31, {"node-1": 10.0})
    (run,), earlier = campaign.results, timedelta(hours=2, minutes=45)
    run = run.model_copy(update={name: getattr(run, name) - earlier for name in ("started_at", "finished_at")})
    times = {name: getattr(campaign, name) - earlier for name in ("started_at", "finished_at")}
    history.record(campaign.model_copy(update={"results": (run,), **times}))
    page = Pages(history.engine, {SUITE}).read(costs, ALL).months
    november, december = by_month(history, ["2026-11", "2026-12"])

    assert (run.started_at.month, november.total.num_runs, december.total.num_runs) == (11, 0, 1)
    assert [(row.what, row.usd) for row in page] == [("2026-12", december.total.usd)]
    assert list(paid_runs(history, start_of("2026-11"), start_of("2027-01")).month) == ["2026-12"]


def test_each_month_by_dag_empty_months_included(history: History) -> None:
    history.record(night(1, {"node-1": 10.0}))
    two = make_result("node-1", 18.0, strategy="ddp", gpus_per_node=2)
    history.record(night(2, [two], suite="strategy_scaling", groups=()))
    october, november = by_month(history, ["2026-10", "2026-11"])

    assert (october.total.num_runs, october.total.usd, october.by_dag, october.unknown) == (0, None, (), ())
    assert [(line.what, line.usd) for line in november.by_dag] == [
        ("strategy_scaling", pytest.approx(2 * ONE_USD)), (SUITE, pytest.approx(ONE_USD)),
    ]  # fmt: skip
    assert november.total.usd == pytest.approx(3 * ONE_USD)


def test_unknown_costs_are_counted_and_named_and_the_longer_use_comes_first(history: History) -> None:
    for number, (suite, num_runs) in enumerate((("a", 1), ("b", 2)), start=1):
        runs = [make_result(f"node-{i}", 9.0) for i in range(num_runs)]
        history.record(night(number, runs, suite=suite, groups=(), usd_per_gpu_hour=None))
    history.record(night(3, [make_failed("node-1")], suite="c", groups=()))
    (november,) = by_month(history, ["2026-11"])

    assert [line.what for line in november.by_dag[:2]] == ["b", "a"]
    assert (november.total.num_runs, november.total.num_unknown, november.total.usd) == (4, 4, None)
    assert november.unknown == ("1 run failed", "3 runs on NVIDIA H200, which has no price")
