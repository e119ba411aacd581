"""Empty databases for the tests of the history: SQLite, and PostgreSQL where CI=true or a server is named."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from sqlalchemy import text

from tests.builders.postgres import NAMED_BY, NoPostgres, is_named, server
from trainbench.history.database import connect

DATABASES = ["sqlite", "postgres"]


def empty_database(kind: str, folder: Path) -> str:
    """Its URL. There is one PostgreSQL for all tests, which loses what it holds."""
    if kind == "sqlite":
        return f"sqlite:///{folder}/history.sqlite"
    is_ci = os.environ.get("CI") == "true"
    if not is_ci and not is_named():
        pytest.skip(f"PostgreSQL takes three times as long: set CI=true, or name an empty database with {NAMED_BY}")
    try:
        url = server()
    except NoPostgres as error:
        if is_ci:  # where the tests count they are never left out
            pytest.fail(str(error))
        pytest.skip(str(error))
    with connect(url).begin() as connection:
        connection.execute(text("DROP SCHEMA public CASCADE"))
        connection.execute(text("CREATE SCHEMA public"))
    return url
