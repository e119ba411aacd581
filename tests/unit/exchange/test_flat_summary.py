"""metrics.csv and a report of flat files: the example of the reference document."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest

from tests.builders import make_result
from tests.builders.commands import trainbench
from tests.unit.exchange.test_flat_results import PUBLISHED
from trainbench.exchange.flat_summary import flat_summary


@pytest.fixture
def results(tmp_path: Path) -> Path:
    four = {"world_size": 4, "tokens_per_sec": 12220.341463838564}
    runs = {
        "ddp-ws2": PUBLISHED,
        "ddp-ws4": PUBLISHED | four,
        "zero2-ws4": PUBLISHED | four | {"strategy": "zero2", "mean_loss": None},
    }
    for name, run in runs.items():
        (tmp_path / name).mkdir()
        (tmp_path / name / "result.json").write_text(json.dumps(run))
    return tmp_path


def test_the_metrics_are_the_files_own_with_their_scaling(results: Path) -> None:
    """12,220.34 / 4 = 3,055.09 tokens/s per GPU over 8,369.46 / 2 = 4,184.73 are 73.0056 %; zero2 ran on 4 only."""
    done = trainbench("report", str(results))
    assert done.exit_code == 0
    with (results / "summary" / "metrics.csv").open() as file:
        first, second, third = csv.DictReader(file)
    assert {name: first[name] for name in PUBLISHED} == {name: str(value) for name, value in PUBLISHED.items()}
    assert [float(row["scaling_efficiency_pct"]) for row in (first, second, third)] == [
        100.0, pytest.approx(73.0056, abs=1e-4), 100.0,
    ]  # fmt: skip
    assert third["mean_loss"] == ""
    plots = {path.stem for path in (results / "summary" / "plots").iterdir()}
    assert plots == {"tokens_per_sec_vs_gpu", "step_time_vs_gpu", "scaling_efficiency", "gbps_vs_gpu"}
    report = (results / "summary" / "BENCHMARK_REPORT.md").read_text()
    assert "| [2](../ddp-ws4/result.json) | ddp-ws4 | 4 GPUs | ddp | 4 x 4 = 16 |" in report
    assert 'href="../ddp-ws4/result.json"' in (results / "summary" / "report.html").read_text()


def test_a_folder_with_a_result_of_ours_is_none_of_it(results: Path) -> None:
    (results / "ours").mkdir()
    (results / "ours" / "result.json").write_text(make_result().model_dump_json())
    assert flat_summary(results, ()) is None
    assert flat_summary(results / "nothing", ()) is None


def test_a_strategy_that_nobody_knows_and_a_column_without_values_are_not_drawn(results: Path) -> None:
    for path in results.glob("*/result.json"):
        path.write_text(json.dumps(json.loads(path.read_text()) | {"h2d_gbps_per_gpu": None}))
    (results / "ddp-ws2" / "result.json").write_text(
        json.dumps(PUBLISHED | {"strategy": "own-ring", "h2d_gbps_per_gpu": None})
    )
    summary = flat_summary(results, ())
    assert summary is not None
    assert "plots/step_time_vs_gpu.png" in summary.files
    assert "plots/gbps_vs_gpu.png" not in summary.files


def test_a_broken_file_is_named_and_the_others_are_reported(results: Path) -> None:
    (results / "ddp-ws2" / "result.json").write_text(json.dumps(PUBLISHED | {"world_size": 0}))
    (results / "zero2-ws4" / "result.json").write_text('{"strategy": "zero2"')
    done = trainbench("report", str(results))
    assert done.exit_code == 1
    for name, reason in (("ddp-ws2", "no flat result of a strategy comparison: world_size"), ("zero2-ws4", "no JSON")):
        sentence = f"{name}/result.json is left out: {reason}"
        assert sentence in done.stderr
        assert sentence in (results / "summary" / "BENCHMARK_REPORT.md").read_text().replace("\\", "")
        assert sentence in (results / "summary" / "report.html").read_text()
    with (results / "summary" / "metrics.csv").open() as file:
        assert [row["world_size"] for row in csv.DictReader(file)] == ["4"]
