"""Empty databases for the tests of the history: SQLite, and PostgreSQL where TRAINBENCH_TEST_POSTGRES_URL names one."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from sqlalchemy import text

from bench_control.past.history_database import connect

POSTGRES_URL = os.environ.get("TRAINBENCH_TEST_POSTGRES_URL")
NEEDS_POSTGRES = pytest.mark.skipif(not POSTGRES_URL, reason="needs TRAINBENCH_TEST_POSTGRES_URL")
DATABASES = ["sqlite", pytest.param("postgres", marks=NEEDS_POSTGRES)]


def empty_database(kind: str, folder: Path) -> str:
    """Its URL. There is one PostgreSQL for all tests, which loses what it holds."""
    if kind == "sqlite":
        return f"sqlite:///{folder}/history.sqlite"
    assert POSTGRES_URL
    with connect(POSTGRES_URL).begin() as connection:
        connection.execute(text("DROP SCHEMA public CASCADE"))
        connection.execute(text("CREATE SCHEMA public"))
    return POSTGRES_URL
