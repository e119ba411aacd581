"""An empty history, no database, headers, assets, and how Airflow loads the plugin."""

from __future__ import annotations

import os
import re
import runpy
import sqlite3
import subprocess
import sys
from contextlib import closing
from importlib.metadata import PackageNotFoundError
from pathlib import Path
from typing import Any

import pytest
from airflow.jobs.job import Job

from tests.builders import make_result
from tests.dag.conftest import ROOT
from tests.dag.pages.site import PAGES, a_run, get, use
from trainbench.exchange.reindex import imported_campaign
from trainbench.history.history import open_history
from trainbench.pages.web.plugin import ImportsBeforeForks


def test_before_the_first_run_the_page_says_what_to_do(
    client: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    use(tmp_path, monkeypatch)

    assert "No benchmark has run yet" in get(client, "").text
    assert "No benchmark of this DAG yet" in get(client, "dags/page_nodes").text
    assert "No report yet" in get(client, "dags/page_nodes/runs/r").text
    for path in ("strategies", "costs", "runs"):
        assert get(client, path).status_code == 200

    imported = imported_campaign([make_result("node-1", 20.0, campaign_id="imported-h200-12345678")])
    open_history(f"sqlite:///{tmp_path / 'history.db'}").record(imported)
    assert "No benchmark has run yet" in get(client, "").text


@pytest.mark.parametrize("path", ["", "runs", "nodes/node-1", "notices/1", "dags/page_nodes"])
def test_without_the_database_a_page_says_so_and_airflow_goes_on(
    client: Any, pages: Path, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TRAINBENCH_HISTORY_URL", "sqlite:////dev/null/history.db")
    reply = get(client, path)

    assert reply.status_code == 503
    assert "Airflow itself is not affected" in reply.text
    assert client.get("/api/v2/version").status_code == 200


CSV = [f"?table={name}&format=csv" for name in ("heat", "nodes")]
CSV += [f"{page}?format=csv" for page in ("runs", "strategies", "costs", "nodes/node-3")]


@pytest.mark.parametrize("path", ["", "runs", "strategies", "costs", "nodes/node-3", *CSV])
def test_a_damaged_history_is_an_error_and_no_empty_table(client: Any, own_pages: Path, path: str) -> None:
    with closing(sqlite3.connect(own_pages / "history.db")) as connection:
        for table in ("runs", "works", "node_verdicts", "notices"):
            connection.execute(f"DROP TABLE {table}")

    reply = get(client, path)
    assert reply.status_code == 503
    assert "no such table" in reply.text


def test_nothing_but_our_own_files_may_run_or_be_loaded(client: Any, pages: Path) -> None:
    for path in (*PAGES, "nowhere", "?days=7", "?days=8"):
        reply = get(client, path.format(run=a_run(pages)))
        if path.startswith("results"):
            continue
        policy = dict(part.split(" ", 1) for part in reply.headers["content-security-policy"].split("; "))
        assert policy["default-src"] == "'none'"
        assert policy["script-src"] == policy["connect-src"] == policy["frame-ancestors"] == "'self'"
        assert policy["base-uri"] == "'none'"
        assert "'unsafe-inline'" not in policy["script-src"]
        assert reply.headers["x-content-type-options"] == "nosniff"
        assert reply.headers["cache-control"] == "no-store"
        assert not re.search(r'(?:src|href)="(?:https?:)?//', reply.text)
        assert not re.search(r"<script(?! src=)|\son\w+=|\sstyle=", reply.text), path


def test_the_plugin_loads_nothing_heavy_in_scheduler_and_workers() -> None:
    """Every process of Airflow loads the plugin's module, and before it the provider's metadata where the package is
    installed; what they add to Airflow's own modules is themselves.
    """
    program = (
        "import sys, airflow.plugins_manager; before = set(sys.modules); import trainbench.pages.web.plugin as plugin;"
        "view = plugin.TrainbenchPlugin.external_views;"
        "ours = {name for name in sys.modules if name.partition('.')[0] == 'trainbench'};"
        "of_provider = {'trainbench.settings', 'trainbench.settings.provider_info'};"
        "print(*sorted((set(sys.modules) - before | ours) - of_provider))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, cwd=ROOT / "plugins"
    )

    assert done.stdout.split() == [
        "trainbench",
        "trainbench.pages",
        "trainbench.pages.web",
        "trainbench.pages.web.plugin",
    ]


def test_scheduler_and_dag_processor_import_our_dags_once_and_a_task_of_anybody_does_not() -> None:
    program = (
        "import sys\n"
        "from airflow.listeners.listener import get_listener_manager\n"
        "from airflow.jobs.job import Job\n"
        "from airflow.sdk.execution_time.task_runner import TaskRunnerMarker\n"
        "get_listener_manager().hook.on_starting(component=TaskRunnerMarker())\n"
        "print('trainbench.orchestration.dag_factory' in sys.modules)\n"
        "Job()\n"
        "print('trainbench.orchestration.dag_factory' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, cwd=ROOT)

    assert done.stdout.split()[-2:] == ["False", "True"]


def test_code_that_cannot_be_imported_stops_no_other_listener(monkeypatch: pytest.MonkeyPatch) -> None:
    """A DAG file shows it as its import error."""
    monkeypatch.setitem(sys.modules, "trainbench.orchestration.dag_factory", None)
    ImportsBeforeForks().on_starting(Job())


@pytest.mark.parametrize("folder", ["plugins", "none"])
def test_airflow_has_the_plugin_once_from_a_folder_and_from_an_installed_package(folder: str, tmp_path: Path) -> None:
    """Twice would be an import error on Airflow's pages. Airflow is started in the checkout: what lies there counts."""
    program = (
        "from airflow import plugins_manager;"
        "plugins, errors = plugins_manager._get_plugins();"
        "print([plugin.name for plugin in plugins].count('trainbench'), errors)"
    )
    environment = {**os.environ, "AIRFLOW_HOME": str(tmp_path), "AIRFLOW__CORE__PLUGINS_FOLDER": str(ROOT / folder)}
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, cwd=ROOT, env=environment
    )

    assert done.stdout.splitlines()[-1] == "1 {}"


def test_a_folder_brings_the_plugin_where_nothing_is_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    def absent(_: str) -> None:
        raise PackageNotFoundError

    monkeypatch.setattr("importlib.metadata.distribution", absent)
    assert "TrainbenchPlugin" in runpy.run_path(str(ROOT / "plugins" / "trainbench_plugin.py"))
