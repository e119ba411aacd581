"""Empty histories and stores, and a process without settings."""

from __future__ import annotations

import os
import sqlite3
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Engine, event
from typer import testing

from tests.builders.databases import DATABASES, empty_database
from trainbench.history.history import History, open_history
from trainbench.results.artefacts import Store, open_store

testing._get_command = cache(testing._get_command)  # typer's runner makes the tree of all commands anew for each call


@event.listens_for(Engine, "connect")
def _without_waiting_for_the_disk(connection: Any, _record: Any) -> None:
    if isinstance(connection, sqlite3.Connection):
        connection.execute("PRAGMA synchronous=OFF")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Tests run on SQLite; those marked `both_databases`, where a difference could show, on PostgreSQL too."""
    if metafunc.definition.get_closest_marker("both_databases"):
        for fixture in {"url", "fresh_url", "recorded"} & set(metafunc.fixturenames):
            metafunc.parametrize(fixture, DATABASES, indirect=True)


@pytest.fixture
def fresh_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The URL of a database that has never held anything."""
    return empty_database(getattr(request, "param", "sqlite"), tmp_path)


@pytest.fixture
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The URL of a database without a row."""
    return empty_database(getattr(request, "param", "sqlite"), tmp_path, has_tables=True)


@pytest.fixture
def history(url: str) -> History:
    return open_history(url)


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return open_store(str(tmp_path / "store"))


@pytest.fixture
def no_plots(monkeypatch: pytest.MonkeyPatch) -> None:
    """Reports without plots, which take most of the time and have tests of their own."""
    monkeypatch.setattr("trainbench.reporting.plots.draw", lambda _: {})


@pytest.fixture
def no_settings(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The default store lies in the test's folder."""
    monkeypatch.setenv("AIRFLOW_HOME", str(tmp_path))
    for name in [name for name in os.environ if name.startswith("TRAINBENCH_")]:
        monkeypatch.delenv(name)


@pytest.fixture
def own_folder(no_settings: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty working folder with a store of its own."""
    monkeypatch.setenv("TRAINBENCH_STORE", str(tmp_path / "store"))
    monkeypatch.chdir(tmp_path)
    return tmp_path
