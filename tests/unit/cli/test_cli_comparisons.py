"""The two comparisons on the command line: planned, and replayed from the store as what they were."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.builders import campaigns
from tests.builders.commands import document, trainbench
from trainbench import pipeline
from trainbench.cli.app import ExitCode
from trainbench.results.artefacts import open_store
from trainbench.results.campaign import Campaign

pytestmark = pytest.mark.usefixtures("own_folder")


def works(*arguments: str) -> list[str]:
    data: dict[str, Any] = document(trainbench("plan", "--json", *arguments))
    return [data["labels"][spec["identity"]["group_id"]] for spec in data["specs"]]


def test_a_suite_is_planned_by_its_name() -> None:
    diagnosis = ("--suite", "config_diagnosis", "--device", "cuda", "-s", "variants=fp16,seq 512", "-s", "rounds=1")
    survey = ("--suite", "hardware_survey", "--device", "cuda", "-s", "models=gpt2,tiny", "-s", "recipes=lora")

    assert works(*diagnosis) == ["baseline", "seq 512", "fp16"]
    assert works(*survey) == ["gpt2 lora", "tiny lora"]
    assert "baseline" in trainbench("plan", *diagnosis).stdout


@pytest.mark.parametrize(
    ("make", "heading"),
    [(campaigns.configurations, "## Configurations, against"), (campaigns.survey, "## Hardware, side by side")],
)
def test_a_stored_comparison_is_judged_and_reported_again_as_one(
    make: Callable[[], Campaign], heading: str, own_folder: Path
) -> None:
    store = open_store(str(own_folder / "store"))
    campaign = make()
    pipeline.report(campaign, store)
    again = trainbench("check", campaign.campaign_id, "--store", str(own_folder / "store"), "--json")
    written = trainbench(
        "report", campaign.campaign_id, "--store", str(own_folder / "store"), "--output", str(own_folder / "copy")
    )
    data = document(again)

    assert (data["campaign_kind"], data["labels"]) == (campaign.campaign_kind.value, campaign.labels)
    assert again.exit_code == ExitCode.OK
    assert written.exit_code == ExitCode.OK
    (report,) = (own_folder / "copy").rglob("BENCHMARK_REPORT.md")
    assert heading in report.read_text()


def test_prices_and_budgets_may_change_after_the_runs(own_folder: Path) -> None:
    store = open_store(str(own_folder / "store"))
    pipeline.report(campaigns.survey(), store)
    done = trainbench(
        "check", "manual-2026-11-21", "--store", str(own_folder / "store"), "--json",
        "-s", "budgets_usd=100,200", "-s", 'purchase_usd={"A10": 3000}', "-s", "baseline_gpu=A10",
    )  # fmt: skip
    params = document(done)["params"]

    assert params["budgets_usd"] == [100.0, 200.0]
    assert (params["purchase_usd"], params["baseline_gpu"]) == ({"A10": 3000.0}, "A10")
