"""From the history to the cost report: what is read, what old rows lack, what a database that is away says."""

from __future__ import annotations

import math
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import text

from bench_image.contract.spec import Drill
from tests.builders import campaigns, make_failed, make_independent, make_result
from trainbench.cost.monthly_cost import _work_month, paid_runs
from trainbench.cost.monthly_report import report_on
from trainbench.history.database import HistoryError
from trainbench.history.history import History, open_history
from trainbench.params.cost_params import parse_spend_params

NOW = datetime(2026, 11, 21, 9, 0, tzinfo=UTC)
ALL = (datetime(2026, 1, 1, tzinfo=UTC), datetime(2027, 1, 1, tzinfo=UTC))


def record(history: History, *results: Any) -> None:
    history.record(campaigns.make_campaign(results))


def test_what_others_measured_is_not_our_spend(history: History) -> None:
    imported = campaigns.make_campaign([make_result()], campaign_id="imported-nvidia-h200-mistral-7b-qlora-12345678")
    history.record(imported)
    assert paid_runs(history, *ALL).empty


def test_a_run_as_it_was_recorded(history: History) -> None:
    """A gang of two A10 for 29 s and 480 samples at 2.8 samples/s: 2 x 200.43 / 3600 = 0.11135 GPU-hours, at $0.60
    $0.06681.
    """
    gang = campaigns.a10("node-1", 2.8, strategy="ddp", nodes=2, gpus_per_node=1, peers=("node-2",))
    record(history, gang)
    (run,) = paid_runs(history, *ALL).itertuples()

    assert run.work == "mistral-7b qlora, batch 8 x 512 tokens, ddp on 2 GPUs, as_users_run"
    assert (run.num_gpus, run.gpu_name, run.month) == (2, "NVIDIA A10", "2026-11")
    assert run.gpu_hours == pytest.approx(0.111349, abs=1e-6)
    assert run.run_usd == pytest.approx(0.066810, abs=1e-6)
    assert (run.usd_per_gpu_hour, run.price_source, run.is_measured) == (0.60, "OCI price page", True)
    assert math.isnan(run.energy_j)  # this is one pod's file


def test_drills_and_failed_runs_are_paid_for_but_say_nothing_of_the_work(history: History) -> None:
    record(history, make_result("node-1", drill=Drill(slowdown_pct=50)), make_failed("node-2"))
    assert list(paid_runs(history, *ALL).is_measured) == [False, False]


def test_months_end_where_they_end(history: History) -> None:
    record(history, make_result("node-1"))
    begin = datetime(2026, 11, 21, 2, 0, tzinfo=UTC)  # of the builder's runs
    assert len(paid_runs(history, begin, ALL[1])) == 1
    assert paid_runs(history, ALL[0], begin).empty


def test_numbers_that_are_none_are_unknown(history: History) -> None:
    record(history, campaigns.a10("node-1", 1.46))
    with history.engine.execution_options(is_write=True).begin() as connection:
        connection.execute(text("UPDATE runs SET run_usd = -5, samples_per_second = 9e999, gpu_hours = -1"))
    (run,) = paid_runs(history, *ALL).itertuples()

    assert all(map(math.isnan, (run.run_usd, run.samples_per_s, run.gpu_hours)))
    assert not run.is_measured


def test_a_history_that_is_away_is_one_sentence(tmp_path: Path) -> None:
    away = open_history(f"sqlite:///{tmp_path}/history.sqlite")
    with away.engine.execution_options(is_write=True).begin() as connection:
        connection.execute(text("DROP TABLE runs"))
    with pytest.raises(HistoryError, match="no such table"):
        paid_runs(away, *ALL)


def test_the_whole_report_of_a_recorded_night(history: History) -> None:
    record(history, *campaigns.healthy().results)
    report = report_on(parse_spend_params({}), history, "x", NOW)

    assert report.summary[0] == "Benchmarking cost $0.259 in 2026-11 so far: 8 runs, 0.431 GPU-hours."
    assert any(actual.category == "stale_price" for actual in report.findings)  # the table's A10 rows are of January


def test_the_months_before_are_read_too(history: History) -> None:
    """The report on two months up to December shows the run of November as the month before."""
    record(history, campaigns.a10("node-1", 1.46))
    report = report_on(parse_spend_params({"month": "2026-12", "months": 2}), history, "x", NOW.replace(month=12))
    (work,) = report.works
    assert (work.this, work.last is not None) == (None, True)


def test_independent_gpus_cost_what_all_of_their_samples_cost_and_not_those_of_the_slowest(history: History) -> None:
    """Two A10 at $0.60 make 10 + 9 samples/s: 1.20 / 3600 / 19 x 1000 = $0.01754, and not $0.0370 of 9 alone."""
    run = campaigns.a10("node-1", 19.0)
    both = make_independent("node-1", (10.0, 9.0), gpu_name=run.context.gpus[0].name if run.context else "")
    record(history, both)
    paid = paid_runs(history, *ALL)

    assert list(paid.samples_per_s) == [19.0]
    month = _work_month("2026-11", paid)
    assert month is not None
    assert month.usd_per_gpu_hour == 0.60
    assert month.usd_per_1000_samples == pytest.approx(0.017544, abs=1e-6)
