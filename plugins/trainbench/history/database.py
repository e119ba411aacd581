"""The history's database: its address, connections and schema."""

from __future__ import annotations

import re
import sqlite3
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from sqlalchemy import (
    URL,
    Connection,
    Engine,
    NullPool,
    create_engine,
    delete,
    event,
    insert,
    inspect,
    make_url,
    select,
    text,
)
from sqlalchemy.exc import ArgumentError, NoSuchModuleError, OperationalError, SQLAlchemyError

from trainbench.core.user_error import UserError
from trainbench.history import upgrade
from trainbench.history.tables import REVISION, metadata, revision
from trainbench.results.artefacts import Store, open_store
from trainbench.results.store_files import StoreError
from trainbench.settings.environment import read_settings

HISTORY_ENV = "TRAINBENCH_HISTORY_URL"
HISTORY_FILE = "history.sqlite"
LOCK_TIMEOUT_S = 60
# A database under load takes seconds to answer; pages, whose reader waits, set a shorter time.
CONNECT_TIMEOUT_S = 15
POSTGRES_LOCK = 7_265_103  # any number, the same in every process: the key of the advisory lock
SQLITE_FILES = ("", "-wal", "-shm", "-journal")
# What a damaged database makes drivers and our own code raise.
DAMAGED = (ValueError, TypeError, AttributeError, LookupError, ArithmeticError, AssertionError)


class HistoryError(StoreError):
    """The history cannot be opened, read or written; the message has the database, the cause and the remedy."""

    @classmethod
    def of(cls, url: URL, error: Exception) -> HistoryError:
        if isinstance(error, DAMAGED):
            return cls(
                f"history {without_secrets(url)} holds a value that is not ours ({type(error).__name__}): check the "
                "disk, restore a backup, or fill an empty database by `trainbench reindex`"
            )
        reason = cause_of(url, error)
        return cls(f"history {without_secrets(url)}: {reason}; check {HISTORY_ENV}, free disk space and permissions")


def cause_of(url: URL, error: Exception) -> str:
    """The database's own words, without SQL, and without the user, password and options that they may quote."""
    reason = " ".join(str(getattr(error, "orig", None) or error).split())
    options = [value for values in url.normalized_query.values() for value in values]
    for secret in (url.password, url.username, *options):
        if secret and secret not in (url.host, url.database):
            reason = re.sub(rf"(?<!\w){re.escape(secret)}(?!\w)", "...", reason)
    return reason[:400]


def without_secrets(url: URL) -> str:
    """The address without secrets: kind, host, port and database. A password with a "/" or without its "@" would be
    read as host or database, so any text that cannot be one of these becomes "...".
    """
    kind, port = url.get_backend_name(), f":{url.port}" if url.port else ""
    if kind == "sqlite":
        return f"sqlite:///{url.database}"
    return f"{kind}://{_plain(url.host)}{port}/{_plain(url.database)}"


def connect(url: str | None = None, store: Store | None = None, timeout_s: int = CONNECT_TIMEOUT_S) -> Engine:
    """An engine without a pool: tasks and commands are short, and a forked process must not share a connection.

    `timeout_s`: of one connection to PostgreSQL, where the address sets no `connect_timeout`.
    """
    url = url or read_settings().history_url
    if not url:
        store = store or open_store()
        if not store.is_local:
            raise HistoryError(
                f"the store {store.root} is not on this machine: set {HISTORY_ENV}, e.g. to postgresql://..."
            )
        return _sqlite(URL.create("sqlite", database=str(Path(store.root.path) / HISTORY_FILE)))
    parsed = _parsed(url)
    if parsed.get_backend_name() == "sqlite":
        return _sqlite(parsed)
    takes_timeout = parsed.get_driver_name() in ("psycopg", "psycopg2") and "connect_timeout" not in parsed.query
    try:
        arguments = {"connect_timeout": timeout_s} if takes_timeout else {}
        engine = create_engine(parsed, poolclass=NullPool, connect_args=arguments)
    except ImportError as error:
        raise HistoryError(f"history {without_secrets(parsed)}: {error}; install its driver, e.g. psycopg") from None

    @event.listens_for(engine, "begin")
    def _begin(connection: Connection) -> None:
        # One writer at a time, as with SQLite: else two senders claim one notice, or two recorders open one notice.
        if connection.get_execution_options().get("is_write"):
            connection.execute(text("SELECT set_config('lock_timeout', :wait, true)"), {"wait": f"{LOCK_TIMEOUT_S}s"})
            connection.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": POSTGRES_LOCK})

    return engine


def migrate(engine: Engine) -> None:
    """Make the tables where the database has none; copy what 0.1.0 wrote into them. Safe to run in many processes at
    once. Raises HistoryError.
    """
    try:
        if engine.dialect.name == "sqlite":
            Path(str(engine.url.database)).parent.mkdir(parents=True, exist_ok=True)
        with engine.connect() as connection:
            if revision_of(connection) == REVISION:
                return
            if engine.dialect.name == "sqlite":  # readers must not wait for the writer
                with suppress(OperationalError):  # busy: another process does it
                    connection.exec_driver_sql("ROLLBACK")  # of the read: the mode is not changed within a transaction
                    connection.exec_driver_sql("PRAGMA journal_mode=WAL")
        with engine.execution_options(is_write=True).begin() as connection:
            known = revision_of(connection)  # another process may have been faster
            if known == REVISION:
                return
            if known not in (None, upgrade.READS, upgrade.READS_ALSO):
                raise HistoryError(
                    f"history {without_secrets(engine.url)} was written by another version of trainbench (revision "
                    f"{known}): set {HISTORY_ENV} to an empty database, and `trainbench reindex` fills it from the "
                    "artefacts"
                )
            if known is None:
                metadata.create_all(connection)
            elif known == upgrade.READS_ALSO:
                upgrade.add_what_decided(connection)
            else:
                upgrade.upgrade(connection)
            connection.execute(delete(revision))
            connection.execute(insert(revision).values(version_num=REVISION))
    except HistoryError:
        raise
    except (OSError, SQLAlchemyError, sqlite3.Error, *DAMAGED) as error:
        raise HistoryError.of(engine.url, error) from None


def revision_of(connection: Connection) -> str | None:
    """The revision of the database's tables; None: it has none."""
    if not inspect(connection).has_table(revision.name):
        return None
    found: str | None = connection.execute(select(revision.c.version_num)).scalar()
    return found


@contextmanager
def transaction(engine: Engine, write: bool = False) -> Iterator[Connection]:
    """Raises HistoryError, in a read also for a value that is not ours; in a write such a value may be the caller's."""
    try:
        with engine.execution_options(is_write=write).begin() as connection:
            yield connection
    except SQLAlchemyError as error:
        raise HistoryError.of(engine.url, error) from None
    except DAMAGED as error:
        if write or isinstance(error, UserError):
            raise
        raise HistoryError.of(engine.url, error) from error


def _plain(name: str | None) -> str:
    return "..." if name and not re.fullmatch(r"[\w.:-]{1,253}", name) else name or ""


def _parsed(url: str) -> URL:
    try:
        parsed = make_url(url)
        backend = parsed.get_backend_name()
        parsed.get_dialect()
    except (ArgumentError, NoSuchModuleError, ValueError):  # ValueError: the port is not a number
        backend = ""
    except ImportError:
        backend = parsed.get_backend_name()  # a known database without its driver: connecting reports that
    if backend not in ("sqlite", "postgresql") or (backend == "sqlite" and "+" in parsed.drivername):
        scheme = re.match(r"[a-z0-9+]{1,40}(?=://)", url)  # the rest may hold a password
        kind = scheme[0] if scheme else "..."
        raise HistoryError(
            f"history URL of kind '{kind}': allowed are sqlite:///FILE and postgresql://...; set {HISTORY_ENV}"
        )
    if backend == "postgresql" and url.count("@") > 1:  # else a part of the password would be read as the host
        raise HistoryError(f"history URL of kind '{backend}' holds @ twice: write it as %40 in a user or password")
    return parsed


def _sqlite(url: URL) -> Engine:
    if not url.database or url.database == ":memory:":
        raise HistoryError(
            f"history URL '{without_secrets(url)}' keeps nothing: name a file, e.g. sqlite:////var/lib/trainbench.sqlite"
        )
    engine = create_engine(url, poolclass=NullPool, connect_args={"timeout": LOCK_TIMEOUT_S})

    @event.listens_for(engine, "do_connect")
    def _refuse_links(*_: Any) -> None:
        """SQLite follows links and waits at FIFOs, and others may write into a store."""
        for file in (Path(f"{url.database}{suffix}") for suffix in SQLITE_FILES):
            with suppress(OSError):  # it is not there
                if not stat.S_ISREG(file.lstat().st_mode):
                    raise HistoryError(f"history file {file} is a link or no regular file: put the real file there")

    @event.listens_for(engine, "connect")
    def _no_implicit_begin(connection: Any, _record: Any) -> None:
        connection.isolation_level = None  # pysqlite's own BEGIN comes too late: DDL would run outside of it

    @event.listens_for(engine, "begin")
    def _begin(connection: Connection) -> None:
        # IMMEDIATE waits for other writers; a plain BEGIN that writes later fails at once with "database is locked".
        connection.exec_driver_sql("BEGIN IMMEDIATE" if connection.get_execution_options().get("is_write") else "BEGIN")

    return engine
