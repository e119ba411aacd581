"""The cost of benchmarking by month: known costs summed, unknown ones counted and named."""

from __future__ import annotations

import pytest

from tests.builders.paid_runs import NOVEMBER, OCTOBER, paid_run
from trainbench.cost.monthly_cost import by_month, run_table, spend


def test_known_costs_are_summed_and_unknown_ones_named() -> None:
    """Two of $0.06, one without a price, one whose end is unknown: $0.12 of 3 x 0.1 GPU-hours, two not known."""
    actual = spend("all", run_table([
        paid_run(), paid_run(), paid_run(usd_per_gpu_hour=None, gpu_name="NVIDIA B300"),
        paid_run(None, gpu_hours=None, nodes=("node-7",)),
    ]))  # fmt: skip

    assert (actual.num_runs, actual.num_unknown) == (4, 2)
    assert actual.usd == pytest.approx(0.12)
    assert actual.gpu_hours == pytest.approx(0.3)
    assert actual.unknown == (
        "1 run on NVIDIA B300: no price",
        "1 run on node-7: no duration, they did not report their end",
    )


def test_nothing_known_is_null_and_never_zero() -> None:
    actual = spend("all", run_table([paid_run(usd_per_gpu_hour=None, gpu_name=None, gpu_hours=None)]))
    assert (actual.usd, actual.gpu_hours) == (None, None)
    assert actual.unknown == ("1 run on CPU, or a GPU that the run never reported: no price",)


def test_each_month_by_dag_empty_months_included() -> None:
    runs = [
        paid_run(started_at=OCTOBER), paid_run(started_at=NOVEMBER), paid_run(num_gpus=4, suite="strategy_scaling"),
    ]  # fmt: skip
    september, october, november = by_month(run_table(runs), ["2026-09", "2026-10", "2026-11"])

    assert (september.total.num_runs, september.total.usd, september.by_dag) == (0, None, ())
    assert october.total.usd == pytest.approx(0.06)
    assert [(line.what, line.usd) for line in november.by_dag] == [
        ("strategy_scaling", pytest.approx(0.24)), ("node_consistency", pytest.approx(0.06)),
    ]  # fmt: skip


def test_of_costs_that_are_not_known_the_longer_use_comes_first() -> None:
    """Two hours and one without a price, after what has one; of equals by name."""
    runs = [
        paid_run(usd_per_gpu_hour=None, suite="a", gpu_hours=1.0),
        paid_run(usd_per_gpu_hour=None, suite="b", gpu_hours=2.0),
        paid_run(suite="d"), paid_run(suite="c"),
    ]  # fmt: skip
    (november,) = by_month(run_table(runs), ["2026-11"])
    assert [line.what for line in november.by_dag] == ["c", "d", "b", "a"]
