"""Where the database lies, how it is opened and made, and what is refused."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import psycopg
import pytest
from sqlalchemy import text

from tests.builders import make_result
from tests.builders.recorded_nights import make_night, stored
from trainbench.history.database import HistoryError
from trainbench.history.history import History, existing_history, open_history
from trainbench.history.tables import campaigns, metadata, runs
from trainbench.results.artefacts import open_store

pytestmark = pytest.mark.both_databases


def test_opening_again_changes_nothing(history: History, url: str) -> None:
    history.record(make_night(1, make_result()))
    for again in (open_history(url), existing_history(url)):
        assert again
        assert len(stored(again, runs)) == 1


def test_readers_of_a_file_do_not_wait_for_its_writer(tmp_path: Path) -> None:
    with open_history(f"sqlite:///{tmp_path}/history.sqlite").engine.connect() as connection:
        assert connection.exec_driver_sql("PRAGMA journal_mode").scalar() == "wal"


@pytest.fixture
def tokyo() -> Iterator[None]:
    """The zone of this process's clock."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TZ", "Asia/Tokyo")
        time.tzset()
        yield
    time.tzset()


@pytest.mark.usefixtures("tokyo")
def test_times_are_read_as_written_whatever_the_machines_zone(history: History) -> None:
    campaign = make_night(1, make_result())
    history.record(campaign)
    (row,) = stored(history, campaigns)
    assert row["finished_at"] == campaign.finished_at


def test_a_row_of_every_table_can_be_told_from_all_others() -> None:
    assert [table.name for table in metadata.tables.values() if not table.primary_key.columns] == []


def test_a_history_whose_file_is_not_there_is_none_and_is_not_made(tmp_path: Path) -> None:
    assert existing_history(f"sqlite:///{tmp_path}/history.sqlite") is None
    assert list(tmp_path.iterdir()) == []


OPEN_AND_RECORD = """
import sys
from tests.builders import make_result
from tests.builders.recorded_nights import make_night
from trainbench.history.history import open_history
open_history(sys.argv[1]).record(make_night(int(sys.argv[2]), make_result()))
"""


def test_processes_that_open_a_fresh_database_at_once_do_not_disturb_each_other(fresh_url: str) -> None:
    """They start together, all find no schema, and each records a campaign of its own."""
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", OPEN_AND_RECORD, fresh_url, str(day)],
            env=environment,
            stderr=subprocess.PIPE,
            text=True,
        )
        for day in (1, 2, 3)
    ]
    for process in processes:
        _, output = process.communicate(timeout=1200)
        assert process.returncode == 0, output
    recorded = stored(open_history(fresh_url), runs)
    assert sorted(row["campaign_id"] for row in recorded) == ["night-1", "night-2", "night-3"]


def test_the_database_lies_in_the_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TRAINBENCH_HISTORY_URL", raising=False)
    monkeypatch.setenv("TRAINBENCH_STORE", str(tmp_path / "data" / "store"))
    open_history()
    assert (tmp_path / "data" / "store" / "history.sqlite").is_file()


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        ("nonsense", "allowed are sqlite:///FILE and postgresql"),
        ("mysql://user:secret@host/db", "'mysql': allowed are"),
        ("sqlite://", "keeps nothing"),
        ("sqlite:////proc/no/history.sqlite", "/proc/no"),
        ("postgresql+psycopg://user:secret@127.0.0.1:1/db", "TRAINBENCH_HISTORY_URL|psycopg"),
        ("postgresql+psycopg://user@127.0.0.1:1/db?password=secret", "postgresql://127.0.0.1:1/db: "),
        ("postgresql+psycopg://127.0.0.1:1/db?user=me&sslpassword=secret&nonsense=secret", "127.0.0.1:1/db: "),
        ("postgresql+psycopg://user:1/secret@127.0.0.1:1/db", "history postgresql://127.0.0.1:1/db: "),
        ("postgresql+psycopg://user:secret%40db.example/db", "kind 'postgresql.psycopg'"),
        ("postgresql+psycopg://user:p@secret@127.0.0.1:1/db", "holds @ twice: write it as %40"),
        ("sqlite+pysqlcipher://:secret@/file.sqlite", "'sqlite.pysqlcipher': allowed are"),
        ("user:secret@127.0.0.1:1/db", r"kind '\.\.\.'"),
        ("secret", r"kind '\.\.\.'"),
    ],
)
def test_a_database_that_cannot_be_used_is_one_sentence_without_the_password(bad: str, message: str) -> None:
    with pytest.raises(HistoryError, match=message) as caught:
        open_history(bad)
    assert "secret" not in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("name", ["history.sqlite", "history.sqlite-wal"])
@pytest.mark.parametrize("make", ["link", "fifo"])
def test_a_link_or_fifo_in_place_of_a_file_of_the_history_is_refused(name: str, make: str, tmp_path: Path) -> None:
    """SQLite would write into the file behind a link, and wait for ever for a FIFO's other end."""
    (victim := tmp_path / "victim").write_text("somebody's file")
    (file := tmp_path / "store" / name).parent.mkdir()
    if make == "link":
        file.symlink_to(victim)
    else:
        os.mkfifo(file)
    with pytest.raises(HistoryError, match=f"{name} is a link or no regular file: put the real file there"):
        open_history(f"sqlite:///{tmp_path}/store/history.sqlite")
    assert victim.read_text() == "somebody's file"


@pytest.mark.parametrize("name", ["100%25", "a?b=c", "a#b"])
def test_the_history_lies_in_a_store_of_any_name(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TRAINBENCH_HISTORY_URL", raising=False)
    open_history(store=open_store(str(tmp_path / name)))
    assert [path.name for path in tmp_path.iterdir()] == [name]
    assert (tmp_path / name / "history.sqlite").is_file()


def test_every_read_of_a_damaged_history_ends_in_one_sentence(tmp_path: Path) -> None:
    """SQLite holds a text in a column of times."""
    history = open_history(f"sqlite:///{tmp_path}/history.sqlite")
    history.record(make_night(1, make_result()))
    with history.engine.begin() as connection:
        connection.execute(text("UPDATE runs SET started_at = 'no time'"))
    with pytest.raises(HistoryError, match="holds a value that is not ours"):
        history.last_measured(datetime(2000, 1, 1, tzinfo=UTC))


@pytest.mark.parametrize(("option", "timeout_s"), [("", 15), ("?connect_timeout=60", 60)])
def test_a_server_that_does_not_answer_is_waited_for_in_seconds(
    option: str, timeout_s: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An overloaded server takes seconds, and TCP alone would wait for minutes. The address may set another time."""
    options: dict[str, object] = {}

    def never(*_: object, **given: object) -> None:
        options.update(given)
        raise psycopg.OperationalError("timeout expired")

    monkeypatch.setattr(psycopg, "connect", never)
    with pytest.raises(HistoryError, match="timeout expired; check TRAINBENCH_HISTORY_URL"):
        open_history(f"postgresql+psycopg://u:p@h/db{option}")
    assert int(str(options["connect_timeout"])) == timeout_s


def test_a_remote_store_needs_a_database_by_url(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TRAINBENCH_HISTORY_URL", raising=False)
    with pytest.raises(HistoryError, match="set TRAINBENCH_HISTORY_URL"):
        open_history(store=open_store("memory://bucket/store"))


@pytest.mark.parametrize("revision", ["0011", "9999"])
def test_a_history_of_another_version_is_refused_with_the_way_out(history: History, url: str, revision: str) -> None:
    with history.engine.begin() as connection:
        connection.execute(text("UPDATE alembic_version SET version_num = :revision"), {"revision": revision})
    with pytest.raises(HistoryError, match="was written by another version of trainbench") as refused:
        open_history(url)
    assert "an empty database, and `trainbench reindex` fills it" in str(refused.value)
    assert "\n" not in str(refused.value)


def test_a_file_that_is_no_database_is_refused(tmp_path: Path) -> None:
    (tmp_path / "history.sqlite").write_text("this is not a database, it is a text of some length")
    with pytest.raises(HistoryError, match="not a database"):
        open_history(f"sqlite:///{tmp_path}/history.sqlite")
