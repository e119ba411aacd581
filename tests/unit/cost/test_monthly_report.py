"""The cost report as people read it: golden files, an empty history, hostile names, many runs."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

import pytest

from tests.builders.paid_runs import OCTOBER, paid_run, spent
from tests.unit.cost.test_other_prices import TABLE
from tests.unit.reporting.parsed_page import Page
from trainbench.cost.monthly_cost import run_table
from trainbench.cost.monthly_report import (
    MAX_ROWS,
    SpendReport,
    make_report,
    publish,
    report_files,
    spend_tables,
)
from trainbench.params.cost_params import months_until, parse_spend_params
from trainbench.results.artefacts import open_store

MADE_AT = datetime(2026, 11, 21, 9, 0, tzinfo=UTC)
H100 = {"gpu_name": "NVIDIA H100 80GB HBM3"}


def report(runs: Sequence[Mapping[str, Any]], **form: Any) -> SpendReport:
    params = parse_spend_params(form)
    months = spent(runs, months_until(params.month or "2026-11", params.months))
    return make_report(run_table(runs), months, params, report_id="by-hand-2026-11", made_at=MADE_AT, table=TABLE)


def two_months() -> list[dict[str, Any]]:
    """The A10's price rises and its throughput too; an H100 does the same work; one GPU has no price; a drill."""
    gang = {
        "num_gpus": 2, "suite": "strategy_scaling", "fingerprint": "aa0000000000",
        "work": "mistral-7b qlora, batch 8 x 512 tokens, ddp on 2 GPUs, as_users_run",
    }  # fmt: skip
    october = [paid_run(rate, month=OCTOBER, run_id=f"oct-{rate}") for rate in (1.45, 1.46, 1.47)]
    november = [paid_run(rate, 0.66, run_id=f"nov-{rate}", campaign_id="night-2") for rate in (1.50, 1.51, 1.52)]
    return [
        *october, paid_run(2.80, month=OCTOBER, **gang), *november, paid_run(2.80, **gang),
        paid_run(9.6, 10.0, **H100), paid_run(12.0, None, gpu_name="NVIDIA B300", energy_j=None),
        paid_run(0.4, 0.66, is_measured=False),
    ]  # fmt: skip


def test_the_files(golden: Callable[[str, str], None]) -> None:
    made = report_files(report(two_months(), usd_per_gpu_hour=0.5, usd_per_kwh=0.2, pue=1.3), {"night-2"})
    golden("spend-COST_REPORT.md", made["COST_REPORT.md"])
    golden("spend-cost_report.outline.txt", Page(made["cost_report.html"]).outline)


def test_only_results_that_are_still_there_are_linked() -> None:
    text = report_files(report(two_months()), {"night-2"})["COST_REPORT.md"]
    assert "../../campaigns/night-2/runs/nov-1.52/result.json" in text
    assert "campaigns/night-1/" not in text


def test_an_empty_history_is_reported_as_a_sentence() -> None:
    empty = report([])
    assert empty.summary == (
        "No run was recorded from 2026-06 to 2026-11: there is nothing to report yet. A run is recorded when its "
        "benchmark publishes; trainbench reindex records the campaigns of the store.",
    )
    assert spend_tables(empty) == ()
    assert report_files(empty, ())["cost_report.html"].startswith("<!doctype html>")


def test_a_month_without_runs_beside_one_with() -> None:
    (this, trend) = report([paid_run(month=OCTOBER)]).summary
    assert this == "No run was recorded in 2026-11 so far."
    assert trend == "No work has a price in both 2026-10 and 2026-11: no trend yet."


def test_a_month_that_is_over_is_not_so_far() -> None:
    (this, *_) = report([paid_run(month=OCTOBER)], month="2026-10").summary
    assert this == "Benchmarking cost $0.0600 in 2026-10: 1 run, 0.100 GPU-hours."


def test_unknown_prices_are_never_free() -> None:
    (this, missing, *_) = report([paid_run(usd_per_gpu_hour=None)]).summary
    assert this == "The cost of benchmarking in 2026-11 so far is unknown: no run has a price (1 run, 0.100 GPU-hours)."
    assert missing == "Not included: 1 run on NVIDIA A10, which has no price."


def test_hostile_names_are_shown_and_not_run() -> None:
    evil = {"gpu_name": "<script>alert(1)</script>|\n# x", "work": "=cmd|'/c calc'!A0", "suite": "[x](javascript:1)"}
    made = report_files(report([paid_run(**evil)]), ())

    assert "<script>" not in made["cost_report.html"] + made["COST_REPORT.md"]
    assert "](javascript" not in made["COST_REPORT.md"].replace("\\]", "")


def test_it_is_written_into_the_store_and_replaced(tmp_path: Any) -> None:
    store = open_store(str(tmp_path))
    for runs in ([], two_months()):
        addresses = publish(report(runs), store)

    assert set(addresses) == {"COST_REPORT.md", "cost_report.html", "costs.json"}
    folder = tmp_path / "cost" / "by-hand-2026-11"
    assert {path.name for path in folder.iterdir()} == set(addresses)
    assert SpendReport.model_validate_json((folder / "costs.json").read_text()).works
    assert json.loads((folder / "costs.json").read_text())["month"] == "2026-11"
    assert store.campaign_ids() == ()


def test_a_gpu_without_any_price_is_named() -> None:
    told = report([paid_run(gpu_name="NVIDIA B300"), paid_run()]).summary
    assert "The price table has no price for NVIDIA B300." in told


def test_each_kind_of_price_is_a_row_with_its_basis() -> None:
    """$1.20 and $8 / 2 GPUs on demand, $2.40 / 2 GPUs spot; 0.1 GPU-hours."""
    (table,) = [table for table in spend_tables(report([paid_run()])) if table.title == "What if: other prices"]
    assert [(*row.texts[1:5], row.texts[-1]) for row in table.rows] == [
        ("Cheap x, here", "on-demand", "2026-11-01", "$1.20", "$0.120"),
        ("Dear x, here", "spot", "2026-11-01", "$1.20", "$0.120"),
        ("Dear x, here", "on-demand", "2026-11-01", "$4.00", "$0.400"),
    ]


def test_a_work_that_did_not_run_this_month_hides_no_other() -> None:
    """Works stand by name; the first of them ran in October only."""
    runs = [paid_run(month=OCTOBER, work="a work", fingerprint="aa"), paid_run(work="b work", fingerprint="bb")]
    table = next(t for t in spend_tables(report(runs)) if t.title.startswith("What the work costs"))
    assert [row.texts[0] for row in table.rows] == ["b work"]


def test_two_prices_in_a_month_are_both_shown() -> None:
    two = [paid_run(price_source="OCI"), paid_run(price_source="AWS")]
    table = next(t for t in spend_tables(report(two)) if t.title.startswith("What the work costs"))
    assert table.notes[-1].startswith("Where several prices were paid in the month")


@pytest.mark.parametrize(("num_works", "is_cut"), [(MAX_ROWS, False), (MAX_ROWS + 1, True)])
def test_a_table_is_cut_only_beyond_its_length(num_works: int, is_cut: bool) -> None:
    runs = [paid_run(work=f"work {i:03}", fingerprint=f"{i:012}") for i in range(num_works)]
    table = next(t for t in spend_tables(report(runs)) if t.title.startswith("What the work costs"))
    assert len(table.rows) == MAX_ROWS
    assert (len(table.notes) > 1) is is_cut
