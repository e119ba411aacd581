"""This month against last: the change and its two causes, which leave nothing over."""

from __future__ import annotations

from typing import Any

import pytest

from tests.builders.paid_runs import OCTOBER, paid_run
from trainbench.cost.monthly_cost import WorkCost, run_table, work_costs


def costs(*runs: Any) -> tuple[WorkCost, ...]:
    return work_costs(run_table(runs), "2026-11", "2026-10")


def test_price_and_throughput_are_split_exactly() -> None:
    """$0.60 at 1.25 samples/s: u = 1000 / 4500 = 0.2222 h, $0.1333 per 1K. $0.90 at 2.0: u = 1000 / 7200 = 0.1389 h,
    $0.1250. By price: 0.30 x (0.2222 + 0.1389) / 2 = +$0.05417; by throughput: -0.08333 x 0.75 = -$0.0625; together
    -$0.00833, which is 6.25 % less.
    """
    (work,) = costs(paid_run(1.25, month=OCTOBER), paid_run(2.0, 0.90))
    assert work.change is not None

    assert work.last is not None
    assert work.this is not None
    assert work.last.usd_per_1000_samples == pytest.approx(0.133333, abs=1e-6)
    assert work.this.usd_per_1000_samples == pytest.approx(0.125)
    assert work.change.by_price_usd == pytest.approx(0.0541667, abs=1e-7)
    assert work.change.by_throughput_usd == pytest.approx(-0.0625)
    assert work.change.usd == pytest.approx(work.change.by_price_usd + work.change.by_throughput_usd, abs=1e-15)
    assert work.change.pct == pytest.approx(-6.25)


@pytest.mark.parametrize(
    ("runs", "why"),
    [
        ([paid_run()], "not run last month"),
        ([paid_run(month=OCTOBER)], "not run this month"),
        ([paid_run(month=OCTOBER, usd_per_gpu_hour=None), paid_run()], "no price in 2026-10"),
    ],
)
def test_where_there_is_no_trend_it_says_why(runs: Any, why: str) -> None:
    (work,) = costs(*runs)
    assert (work.change, work.why) == (None, why)


def test_each_kind_of_gpu_is_its_own_line_and_doubtful_runs_are_none() -> None:
    lines = costs(
        paid_run(), paid_run(9.6, 10.0, gpu_name="NVIDIA H100 80GB HBM3"), paid_run(99.0, is_measured=False),
    )  # fmt: skip
    assert [(line.gpu_name, line.this and line.this.samples_per_s) for line in lines] == [
        ("NVIDIA A10", 1.46), ("NVIDIA H100 80GB HBM3", 9.6),
    ]  # fmt: skip


def test_a_month_is_its_median_not_its_mean() -> None:
    """Rates 1.0, 1.0 and 4.0, mean 2.0; prices 0.6, 0.6 and 3.0, mean 1.4; tokens 512 each sample."""
    runs = [
        paid_run(1.0, 0.6, tokens_per_s=512.0),
        paid_run(1.0, 0.6, tokens_per_s=512.0),
        paid_run(4.0, 3.0, tokens_per_s=2048.0),
    ]
    (work,) = costs(*runs)
    assert work.this is not None
    assert (work.this.samples_per_s, work.this.tokens_per_s, work.this.usd_per_gpu_hour) == (1.0, 512.0, 0.6)


def test_the_last_run_is_named_with_its_own_campaign() -> None:
    (work,) = costs(paid_run(campaign_id="night-1", run_id="a"), paid_run(campaign_id="night-2", run_id="b"))
    assert work.this is not None
    assert work.this.last_run == "night-2/b"
