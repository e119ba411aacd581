"""Empty databases for the tests of the history: SQLite, and PostgreSQL where `tests.postgres` has a server."""

from __future__ import annotations

from pathlib import Path

import pytest
from sqlalchemy import text

from tests.builders.postgres import NoPostgres, server
from trainbench.history.database import connect

DATABASES = ["sqlite", "postgres"]


def empty_database(kind: str, folder: Path) -> str:
    """Its URL. There is one PostgreSQL for all tests, which loses what it holds."""
    if kind == "sqlite":
        return f"sqlite:///{folder}/history.sqlite"
    try:
        url = server()
    except NoPostgres as error:
        pytest.skip(str(error))
    with connect(url).begin() as connection:
        connection.execute(text("DROP SCHEMA public CASCADE"))
        connection.execute(text("CREATE SCHEMA public"))
    return url
