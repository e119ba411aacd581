"""Empty histories, and a process without settings."""

from __future__ import annotations

import os
import shutil
from functools import cache
from pathlib import Path

import pytest
from sqlalchemy import Engine
from typer import testing

from tests.builders.databases import DATABASES, empty_database
from trainbench.history import history as history_module
from trainbench.history.database import connect, migrate
from trainbench.history.history import History, open_history

testing._get_command = cache(testing._get_command)  # typer's runner makes the tree of all commands anew for each call


@pytest.fixture(scope="session")
def migrated(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An SQLite file with the history's schema and nothing in it."""
    file = tmp_path_factory.mktemp("migrated") / "history.sqlite"
    migrate(connect(f"sqlite:///{file}"))
    return file


@pytest.fixture(autouse=True)
def _schema_from_a_copy(migrated: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """New SQLite histories begin as a copy, which takes a third of a migration's time; it then runs as ever."""

    def from_a_copy(engine: Engine) -> None:
        file = Path(str(engine.url.database))
        if engine.dialect.name == "sqlite" and file.parent.is_dir() and not file.exists():
            shutil.copy(migrated, file)
        migrate(engine)

    monkeypatch.setattr(history_module, "migrate", from_a_copy)


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
