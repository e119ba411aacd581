"""`trainbench cost`: the report of the DAG, by hand."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from tests.builders import campaigns
from tests.builders.commands import document as document_of
from trainbench.cli.app import app
from trainbench.history.history import open_history
from trainbench.results.artefacts import open_store

runner = CliRunner()


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """With one healthy night of 2026-11 in its history."""
    monkeypatch.setenv("TRAINBENCH_HISTORY_URL", f"sqlite:///{tmp_path}/history.sqlite")
    monkeypatch.setenv("TRAINBENCH_STORE", str(tmp_path / "store"))
    opened = open_store()
    open_history(store=opened).record(campaigns.healthy())
    return opened


def test_it_prints_the_month_and_writes_nothing(store: Any) -> None:
    done = runner.invoke(app, ["cost", "--month", "2026-11"])

    assert done.exit_code == 0
    assert done.stdout.startswith("Benchmarking cost $0.259 in 2026-11")
    assert "gpu-" not in done.stdout  # the tables are for --all
    assert "--all shows " in done.stdout
    assert len(done.stdout.splitlines()) <= 24
    assert not Path(store.root.path).exists()


def test_all_tables_follow_the_answer(store: Any) -> None:
    done = runner.invoke(app, ["cost", "--month", "2026-11", "--all"])
    assert done.stdout.startswith("Benchmarking cost $0.259 in 2026-11")
    assert done.stdout.index("What benchmarking cost") < done.stdout.index("What the work costs in 2026-11")
    assert "--all" not in done.stdout


def test_it_writes_with_the_flag(store: Any) -> None:
    done = runner.invoke(app, ["cost", "--month", "2026-11", "--write", "--json", "-s", "usd_per_gpu_hour=0.9"])
    document = document_of(done)

    assert Path(document["files"]["cost_report.html"]).read_text().startswith("<!doctype html>")
    assert Path(document["files"]["COST_REPORT.md"]).parent.name == "by-hand-2026-11"
    assert [price["usd_per_gpu_hour"] for price in document["prices"] if price["basis"] == "given"] == [0.9]
    assert document["month"] == "2026-11"


def test_without_a_month_it_is_this_month(store: Any) -> None:
    done = runner.invoke(app, ["cost", "--json"])
    assert document_of(done)["month"] == f"{datetime.now(UTC):%Y-%m}"


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--month", "11/2026"], "month is '11/2026': write it as 2026-11"),
        (["-s", "euro=1"], "euro is not a parameter"),
    ],
)
def test_wrong_usage_is_one_sentence(store: Any, arguments: list[str], sentence: str) -> None:
    done = runner.invoke(app, ["cost", *arguments])
    assert done.exit_code == 2
    assert sentence in done.stderr


def test_a_history_that_is_away(store: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRAINBENCH_HISTORY_URL", "sqlite:////proc/none/history.sqlite")
    done = runner.invoke(app, ["cost"])
    assert done.exit_code == 2
    assert done.stderr.startswith("trainbench: history sqlite:////proc/none/history.sqlite")
