"""Empty histories, and a process without settings."""

from __future__ import annotations

import os
from functools import cache
from pathlib import Path

import pytest
from typer import testing

from tests.builders.databases import DATABASES, empty_database
from trainbench.history.history import History, open_history

testing._get_command = cache(testing._get_command)  # typer's runner makes the tree of all commands anew for each call


@pytest.fixture(params=DATABASES)
def fresh_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The URL of a database that has never held anything."""
    return empty_database(request.param, tmp_path)


@pytest.fixture(params=DATABASES)
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The URL of a database without a row."""
    return empty_database(request.param, tmp_path, has_tables=True)


@pytest.fixture
def history(url: str) -> History:
    return open_history(url)


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
