"""DataFrames for notebooks: the figures of metrics.csv and the history, with one type for each column."""

from __future__ import annotations

import csv
import doctest
import importlib.util
import io
from pathlib import Path

import pytest
from typer.testing import CliRunner

from tests.builders import campaigns
from tests.builders.commands import document
from trainbench import frames
from trainbench.cli.app import app
from trainbench.core.user_error import UserError
from trainbench.history.history import open_history
from trainbench.reporting.data_files import metrics_csv
from trainbench.results.artefacts import open_store
from trainbench.results.store_files import StoreError

ROOT = Path(__file__).resolve().parents[2]
HEALTHY, FAILED = "manual-2026-11-21", "failed-1"


@pytest.fixture(autouse=True)
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A healthy night of 2026-11 on four A10s and one in which all runs failed, published and recorded."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TRAINBENCH_HISTORY_URL", f"sqlite:///{tmp_path}/history.sqlite")
    monkeypatch.setenv("TRAINBENCH_STORE", str(tmp_path / "store"))
    opened = open_store()
    healthy, failed = campaigns.healthy(), campaigns.all_failed().model_copy(update={"campaign_id": FAILED})
    open_history(store=opened).record(healthy)
    for campaign in (healthy, failed):
        opened.write_campaign(campaign)


def test_the_runs_are_the_rows_of_metrics_csv() -> None:
    frame = frames.runs(HEALTHY)
    (header, *rows) = csv.reader(io.StringIO(metrics_csv(campaigns.healthy())))
    assert list(frame.columns) == header
    assert len(frame) == len(rows) == 8
    assert list(frame.run_id) == [row[header.index("run_id")] for row in rows]
    assert frame.samples_per_second.median() == pytest.approx(1.455, abs=0.01)
    assert str(frame.started_at.dtype) == "datetime64[us, UTC]"


def test_times_with_and_without_parts_of_a_second_stand_in_one_column() -> None:
    first, *others = campaigns.healthy().results
    whole = first.model_copy(update={"started_at": first.started_at.replace(microsecond=0)})
    parts = [each.model_copy(update={"started_at": each.started_at.replace(microsecond=5)}) for each in others]
    open_store().write_campaign(campaigns.healthy().model_copy(update={"results": (whole, *parts)}))
    assert sorted(set(frames.runs(HEALTHY).started_at.dt.microsecond)) == [0, 5]


def test_each_column_of_figures_holds_numbers_also_where_nothing_was_measured() -> None:
    frame = frames.runs(FAILED)
    assert frame.tokens_per_sec.isna().all()
    assert {str(frame[name].dtype) for name in frames.FIGURES if name in frame} == {"float64"}
    assert len(frames.runs()) == 8 + len(frame)
    with pytest.raises(StoreError, match="nowhere"):
        frames.runs("nowhere")


def test_the_months_by_hand() -> None:
    """Eight runs that take 1,552 s together, at $0.60 per GPU-hour: 0.431 GPU-hours, $0.259."""
    frame = frames.months(2, until="2026-11")
    (row,) = frame.to_dict("records")
    assert (row["month"], row["suite"], row["num_runs"], row["num_unknown"]) == ("2026-11", "node_consistency", 8, 0)
    assert (row["gpu_hours"], row["run_usd"]) == (pytest.approx(0.431, abs=1e-4), pytest.approx(0.2586, abs=1e-4))
    assert list(frames.months(1, until="2020-01").columns) == list(frame.columns)


def test_a_node_s_history() -> None:
    frame = frames.node_history("node-3")
    assert set(frame.node) == {"node-3"}
    assert frame.started_at.is_monotonic_increasing
    assert list(frame.samples_per_second.round(2)) == [1.47, 1.47]
    assert len(frames.node_history()) == 8


def test_imported_runs_are_in_no_frame_unless_their_campaign_is_named() -> None:
    """`report` of an imported campaign gives it a verdict, as of one of ours."""
    imported = campaigns.healthy().model_copy(update={"campaign_id": "imported-h200-12345678"})
    before = len(frames.runs()), len(frames.node_history())
    opened = open_store()
    opened.write_campaign(imported)
    open_history(store=opened).record(imported)

    assert (len(frames.runs()), len(frames.node_history())) == before
    assert len(frames.runs(imported.campaign_id)) == 8


@pytest.mark.parametrize(("what", "num_rows"), [("runs", 10), ("months", None), ("nodes", 8)])
def test_the_command_writes_csv_and_json(what: str, num_rows: int | None) -> None:
    done = CliRunner().invoke(app, ["table", what, "--output", "out.csv", "--json"])
    data = document(done)
    (header, *rows) = csv.reader(io.StringIO(Path("out.csv").read_text()))
    assert (data["file"], data["columns"]) == (str(Path("out.csv").absolute()), header)
    assert data["num_rows"] == len(rows)
    assert num_rows in (None, len(rows))
    shown = CliRunner().invoke(app, ["table", what])
    assert shown.stdout == Path("out.csv").read_text()
    records = document(CliRunner().invoke(app, ["table", what, "--json"]))["rows"]
    assert [list(record) for record in records] == [header] * len(rows)


def test_wrong_use_is_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UserError, match=r"ends in '.xlsx': choose one of .csv, .parquet"):
        frames.write(frames.node_history(), Path("a.xlsx"))
    monkeypatch.setitem(__import__("sys").modules, "pyarrow", None)  # as where it is not installed
    done = CliRunner().invoke(app, ["table", "nodes", "--output", "a.parquet"])
    assert done.exit_code == 2
    assert "Parquet files need pyarrow: pip install 'trainbench[parquet]', or write .csv" in done.stderr
    assert CliRunner().invoke(app, ["table", "months", "node-1"]).exit_code == 2


@pytest.mark.skipif(importlib.util.find_spec("pyarrow") is None, reason="the extra parquet is not installed")
def test_a_parquet_file_holds_the_same() -> None:
    import pandas as pd

    frame = frames.runs()
    frames.write(frame, Path("runs.parquet"))
    pd.testing.assert_frame_equal(pd.read_parquet("runs.parquet"), frame, check_dtype=False)


def test_the_examples_of_the_page_compute_what_they_say(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    failed, tried = doctest.testfile(str(ROOT / "docs" / "notebooks.md"), module_relative=False)
    assert (failed, tried) == (0, 8)
