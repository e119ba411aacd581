"""report.json: the same findings and figures as the other reports, as numbers, and nothing hostile breaks it."""

from __future__ import annotations

import csv
import io
import json
from typing import Any

import pytest

from tests.builders import campaigns
from trainbench.reporting import verdict_text
from trainbench.reporting.data_files import metrics_csv, report_json
from trainbench.results.campaign import Campaign


def document(campaign: Campaign) -> dict[str, Any]:
    data: dict[str, Any] = json.loads(report_json(campaign))
    return data


def test_verdicts_findings_and_runs_of_a_slow_node() -> None:
    """node-3 runs at 1.31 against a median of 1.45 samples/s: -9.66 %."""
    data = document(campaigns.slow_node())
    assert (data["format"], data["format_version"]) == ("trainbench-report", 1)
    assert data["verdict"]["tone"] == "bad"
    assert data["verdict"]["sentence"].startswith("1 of 4 nodes is slow: node-3")
    (red,) = (node for node in data["groups"][0]["nodes"] if node["state"] == "red")
    assert red["comparisons"][0]["deviation"] == pytest.approx(-9.655, abs=0.001)
    assert (data["nodes"][0]["node"], data["nodes"][0]["why"]) == ("node-3", "slow")
    assert [finding["category"] for finding in data["findings"]] == ["thermal_throttling", "stale_price"]
    assert len(data["runs"]) == 10  # nine runs and one skipped
    assert data["runs"][-1]["result"] is None


def test_runs_are_the_rows_of_the_csv_as_numbers() -> None:
    campaign = campaigns.slow_node()
    rows = list(csv.DictReader(io.StringIO(metrics_csv(campaign))))
    runs = document(campaign)["runs"]
    assert [run["run_id"] for run in runs[:9]] == [row["run_id"] for row in rows[:9]]
    assert runs[0]["samples_per_second"] == float(rows[0]["samples_per_second"])
    assert runs[0]["scaling_efficiency_pct"] is None
    assert runs[0]["result"] == f"../runs/{runs[0]['run_id']}/result.json"


def test_comparisons_carry_units_fields_and_links() -> None:
    data = document(campaigns.strategies())
    (table, *_) = next(part["tables"] for part in data["comparisons"] if part["anchor"] == "strategies")
    columns = {column["name"]: column for column in table["columns"]}
    assert columns["memory GB"] == {
        "name": "memory GB", "is_number": True, "unit": "1e9 bytes", "field": "memory.peak_during_training",
    }  # fmt: skip
    assert all(row["result"].startswith("../runs/") for row in table["rows"])


@pytest.mark.parametrize(
    "make", [campaigns.healthy, campaigns.all_failed, campaigns.cpu_drill, campaigns.two_nodes, campaigns.scaling]
)
def test_every_campaign_is_json_without_nan(make: Any) -> None:
    campaign = make()
    data = document(campaign)
    assert data["verdict"]["sentence"] == verdict_text.verdict(campaign)
    assert len(data["runs"]) >= len(campaign.results)
