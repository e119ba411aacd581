"""A database of 0.1.0 in today's tables."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import MetaData, Table, insert

from tests.builders.nights import night
from tests.builders.recorded_nights import stored
from trainbench.core.verdicts import Why
from trainbench.history.database import connect
from trainbench.history.history import History, open_history
from trainbench.history.tables import node_verdicts

pytestmark = pytest.mark.both_databases

KEPT = Path(__file__).resolve().parents[2] / "kept" / "0.1.0" / "history.sql"
AT = datetime(2026, 11, 1, 3, tzinfo=UTC)


def verdict(node: str, state: str, condition: str, **fields: Any) -> dict[str, Any]:
    of = {"work_id": 1000, "node": node, "num_runs": 2, "state": state, "is_red": state == "breach"}
    rest = {"condition": condition, "confirmation": "not_needed", "is_watched": False, "is_drill": False}
    return of | rest | {"own_median_samples_per_second": 10.0, "history_deviation_pct": -2.0} | fields


ROWS: dict[str, list[dict[str, Any]]] = {
    "alembic_version": [{"version_num": "0001_history"}],
    "baselines": [
        {"id": 7, "node": "node-1", "since": AT, "who": "ada", "why": "new driver", "accepted_at": AT},
    ],
    "node_verdicts": [
        verdict("node-1", "breach", "breach", confirmation="not_confirmed"),
        verdict("node-2", "ok", "behind", history_state="breach"),
        verdict("node-3", "breach", "drill", is_drill=True, is_red=False),
        verdict("node-4", "insufficient", "undecided", reason="noise 7 %", condition_reason="noise 7 %"),
        verdict("node-5", "ok", "well"),
    ],
}  # fmt: skip


def upgraded(url: str) -> History:
    """The tables of 0.1.0 with ROWS, opened by this version."""
    engine = connect(url)
    with engine.begin() as connection:
        for statement in re.findall(r"^CREATE .*?;$", KEPT.read_text(), re.DOTALL | re.MULTILINE):
            if engine.dialect.name == "postgresql":
                statement = statement.replace("DATETIME", "TIMESTAMPTZ").replace("IS 1", "IS true")
            connection.exec_driver_sql(statement)
        for name, rows in ROWS.items():
            table = Table(name, MetaData(), autoload_with=connection)
            for row in rows:
                connection.execute(insert(table).values(row))
    return open_history(url)


def test_verdicts_are_kept_in_today_s_words(fresh_url: str) -> None:
    history = upgraded(fresh_url)
    rows = {row["node"]: row for row in stored(history, node_verdicts)}

    assert {node: (row["state"], row["why"], row["node_state"], row["node_why"]) for node, row in rows.items()} == {
        "node-1": ("red", "slow", "red", "slow"),
        "node-2": ("look", "behind", "look", "behind"),
        "node-3": ("drill", "slow", "drill", "slow"),
        "node-4": ("not_checked", "noisy", "not_checked", "noisy"),
        "node-5": ("well", "well", "well", "well"),
    }
    assert {(row["past_expected"], row["past_deviation_pct"]) for row in rows.values()} == {(10.0, -2.0)}


def test_what_people_entered_is_kept_and_the_next_night_opens_notices(fresh_url: str) -> None:
    """PostgreSQL numbers rows by itself, and does not know of those that were inserted with their ids."""
    history = upgraded(fresh_url)
    history.record(night(20, {"node-1": 9.0}, {"node-1": Why.SLOW}))
    again = history.accept_baseline(None, "bob", "a new image", AT, since=AT)

    assert [notice.word for notice in history.open_notices()] == ["red: slow"]
    assert [(each.node, each.who) for each in history.baselines()] == [("node-1", "ada"), (None, "bob")]
    assert again.id == 8
    with history.engine.connect() as connection:
        assert connection.exec_driver_sql("SELECT count(*) FROM old_breaches").scalar() == 0
