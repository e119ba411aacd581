"""Empty databases for the tests of the history: SQLite, and PostgreSQL where CI=true or a server is named."""

from __future__ import annotations

import os
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from sqlalchemy import Engine, text
from sqlalchemy.exc import ProgrammingError

from tests.builders.needed import missing
from tests.builders.postgres import NAMED_BY, NoPostgres, is_named, server
from trainbench.history.database import connect, migrate
from trainbench.history.tables import REVISION, metadata, revision

DATABASES = ["sqlite", "postgres"]
_made: set[str] = set()  # URLs of PostgreSQL with the history's tables


def empty_database(kind: str, folder: Path, *, has_tables: bool = False) -> str:
    """Its URL. There is one PostgreSQL for all tests, which loses what it holds; but with `has_tables` the history's
    tables stay, without a row: it takes ten times as long to make them.
    """
    if kind == "sqlite":
        file = folder / "history.sqlite"
        if has_tables:
            file.write_bytes(_empty_sqlite())
        return f"sqlite:///{file}"
    is_ci = os.environ.get("CI") == "true"
    if not is_ci and not is_named():
        pytest.skip(f"PostgreSQL takes three times as long: set CI=true, or name an empty database with {NAMED_BY}")
    try:
        url = server()
    except NoPostgres as error:
        missing(str(error))
    engine = connect(url)
    if not (has_tables and url in _made and _has_emptied_tables(engine)):
        _made.discard(url)
        with engine.begin() as connection:
            connection.execute(text("DROP SCHEMA public CASCADE"))
            connection.execute(text("CREATE SCHEMA public"))
        if has_tables:
            migrate(engine)
            _made.add(url)
    return url


@cache
def _empty_sqlite() -> bytes:
    """The file of a history without a row."""
    with TemporaryDirectory() as folder:
        url = empty_database("sqlite", Path(folder))
        migrate(connect(url))
        return Path(folder, "history.sqlite").read_bytes()


def _has_emptied_tables(engine: Engine) -> bool:
    """Whether all were there, whatever the last test did to them."""
    sequences = "SELECT setval(oid, 1, false) FROM pg_class WHERE relkind = 'S'"
    try:
        with engine.begin() as connection:
            for table in reversed(metadata.sorted_tables):
                connection.execute(table.delete())
            connection.execute(revision.insert().values(version_num=REVISION))
            connection.execute(text(sequences))
    except ProgrammingError:
        return False
    return True
