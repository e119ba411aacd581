"""The cost report as Airflow runs it: when it starts, what it may emit, what it writes, and what stops it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.builders import campaigns
from trainbench.history.history import open_history


def addresses(dag_run: Any) -> Any:
    (ti,) = dag_run.get_task_instances()
    value = ti.xcom_pull(task_ids="report")
    return json.loads(value) if isinstance(value, str) else value


def test_its_shape(dagbag: Any) -> None:
    dag = dagbag.dags["cost_report"]
    (task,) = dag.tasks

    assert dagbag.import_errors == {}
    assert {run_type.value for run_type in dag.allowed_run_types} == {"manual", "scheduled", "asset_triggered"}
    assert (dag.catchup, dag.max_active_runs, task.retries) == (False, 1, 0)
    assert list(dag.params)[:3] == ["month", "months", "usd_per_gpu_hour"]
    # it must not start itself: what it emits is not what it waits for
    assert [asset.name for asset in task.outlets] == ["trainbench_costs"]


def test_it_writes_the_report_of_what_the_history_holds(dagbag: Any, store: Any) -> None:
    open_history(store=store).record(campaigns.healthy())
    dag_run = dagbag.dags["cost_report"].test(run_conf={"month": "2026-11", "usd_per_gpu_hour": 0.9})
    files = addresses(dag_run)

    assert dag_run.state == "success"
    assert set(files) == {"COST_REPORT.md", "cost_report.html", "costs.json"}
    assert "Benchmarking cost $0.259 in 2026-11" in Path(files["COST_REPORT.md"]).read_text()
    assert Path(files["COST_REPORT.md"]).parent.parent == Path(store.root.path) / "cost"


def test_what_stops_it_is_one_sentence(dagbag: Any, store: Any, capfd: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRAINBENCH_HISTORY_URL", "sqlite:////proc/none/h.db")
    dag_run = dagbag.dags["cost_report"].test()
    out, err = capfd.readouterr()

    assert dag_run.state == "failed"
    assert "history sqlite:////proc/none/h.db" in out + err
