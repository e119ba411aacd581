"""DAG ids: the installation's prefix, and a clash with another file is an import error."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from airflow.sdk import Asset

from trainbench.orchestration import dag_ids
from trainbench.orchestration.dag_ids import DagIdTaken, free_dag_id, our_dag
from trainbench.settings.environment import SettingsError, read_settings

OTHERS = {
    "positional": 'from airflow.sdk import DAG\nwith DAG("housekeeping"):\n    pass\n',
    "named": 'import airflow.sdk as a\nx = a.DAG(\n    dag_id="housekeeping"\n)\n',
    "decorated": "from airflow.sdk import dag\n@dag\ndef housekeeping(): ...\n",
    "decorated-with-schedule": "from airflow.sdk import dag\n@dag(schedule=None)\ndef housekeeping(): ...\n",
    "decorated-with-id": 'from airflow.sdk import dag\n@dag(dag_id="housekeeping")\ndef tidy(): ...\n',
}
HARMLESS = {
    "another-id": 'from airflow.sdk import DAG\nDAG("housekeeping_of_mine")\n',
    "a-text": 'print("housekeeping")\n',
    "function-with-another-id": 'from airflow.sdk import dag\n@dag(dag_id="tidy")\ndef housekeeping(): ...\n',
    "a-function": "def housekeeping(): ...\n",
    "ours": 'from trainbench.orchestration.housekeeping_dag import DAG\nDAG("housekeeping")\n',
}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(dag_ids, "_dag_folders", lambda: iter([tmp_path]))
    (tmp_path / "team").mkdir()
    return tmp_path


@pytest.mark.parametrize("name", OTHERS)
def test_the_id_of_anothers_dag_is_refused_with_file_line_and_remedy(name: str, folder: Path) -> None:
    """Airflow showed the DAG that it read last, and said nothing."""
    (folder / "team" / "tidy.py").write_text(OTHERS[name])

    with pytest.raises(
        DagIdTaken, match=r"'housekeeping' is taken by .*/team/tidy\.py, line [23]: set TRAINBENCH_DAG_"
    ):
        free_dag_id("housekeeping", read_settings({}))
    assert free_dag_id("metrics", read_settings({})) == "metrics"
    assert free_dag_id("housekeeping", read_settings({"TRAINBENCH_DAG_PREFIX": "gpu_"})) == "gpu_housekeeping"


@pytest.mark.parametrize("name", HARMLESS)
def test_a_file_that_makes_no_dag_of_that_id_changes_nothing(name: str, folder: Path) -> None:
    (folder / "team" / "tidy.py").write_text(HARMLESS[name])

    assert free_dag_id("housekeeping", read_settings({})) == "housekeeping"


def test_a_worker_does_not_look(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file that came after the run began must not end its tasks."""
    monkeypatch.setenv("_AIRFLOW_PARSING_CONTEXT_DAG_ID", "housekeeping")
    (folder / "tidy.py").write_text(OTHERS["named"])

    assert free_dag_id("housekeeping", read_settings({})) == "housekeeping"


def test_folders_are_that_of_airflow_and_of_local_bundles(monkeypatch: pytest.MonkeyPatch) -> None:
    bundles = """[
      {"name": "a", "classpath": "airflow.dag_processing.bundles.local.LocalDagBundle", "kwargs": {"path": "/a"}},
      {"name": "b", "classpath": "airflow.dag_processing.bundles.local.LocalDagBundle", "kwargs": {}},
      {"name": "c", "classpath": "airflow.providers.git.bundles.git.GitDagBundle", "kwargs": {"subdir": "dags"}}
    ]"""
    monkeypatch.setenv("AIRFLOW__CORE__DAGS_FOLDER", "/d")
    monkeypatch.setenv("AIRFLOW__DAG_PROCESSOR__DAG_BUNDLE_CONFIG_LIST", bundles)

    assert set(dag_ids._dag_folders()) == {Path("/d"), Path("/a")}


def test_a_schedule_is_set_by_the_id_without_the_prefix() -> None:
    environ = {"TRAINBENCH_DAG_PREFIX": "gpu_", "TRAINBENCH_SCHEDULE_HOUSEKEEPING": "0 1 * * *"}
    assert read_settings(environ).cron("housekeeping", None) == "0 1 * * *"


def test_a_prefix_that_airflow_would_refuse_is_refused() -> None:
    with pytest.raises(SettingsError, match="TRAINBENCH_DAG_PREFIX is 'my dags/': give at most 50 letters"):
        read_settings({"TRAINBENCH_DAG_PREFIX": "my dags/"})


@pytest.mark.parametrize(
    ("environ", "cron"),
    [
        ({"TRAINBENCH_LAUNCHER": "kubernetes"}, "20 * * * *"),
        ({"TRAINBENCH_LAUNCHER": "kubernetes", "TRAINBENCH_SCHEDULE_METRICS": "0 1 * * *"}, "0 1 * * *"),
        ({"TRAINBENCH_LAUNCHER": "kubernetes", "TRAINBENCH_SCHEDULE_METRICS": "none"}, None),
        ({"TRAINBENCH_LAUNCHER": "local"}, None),
    ],
)
def test_a_dag_starts_by_its_time_or_its_asset_or_by_hand_only(
    environ: dict[str, str], cron: str | None, folder: Path
) -> None:
    asset = Asset(name="trainbench_breaches")
    schedule: Any = our_dag("metrics", read_settings(environ), "Metrics", "", "20 * * * *", asset=asset).schedule

    assert (schedule and schedule.timetable.expression) == cron
    assert cron is None or [each.name for each in schedule.asset_condition.objects] == [asset.name]


def test_the_name_that_airflow_shows_has_the_prefix_and_the_description_is_the_sentence_in_bold() -> None:
    settings = read_settings({"TRAINBENCH_DAG_PREFIX": "gpu_"})
    dag = our_dag("metrics", settings, "Metrics", "**What is\nsent?** All gauges.", None)

    assert (dag.dag_id, dag.dag_display_name, dag.description) == ("gpu_metrics", "gpu Metrics", "What is sent?")
