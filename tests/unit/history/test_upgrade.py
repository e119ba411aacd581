"""A database of 0.1.0 in today's tables: breaches and warnings are notices, with what people entered and were told."""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import MetaData, Table, insert, select

from tests.builders.nights import night
from tests.builders.played_nights import EVERYTHING
from tests.builders.recorded_nights import stored
from trainbench.alerting.notice_text import Event
from trainbench.alerting.outbox import Outbox
from trainbench.core.verdicts import Why
from trainbench.history.database import connect
from trainbench.history.history import History, open_history
from trainbench.history.tables import messages, node_verdicts, runs

pytestmark = pytest.mark.both_databases

KEPT = Path(__file__).resolve().parents[2] / "kept" / "0.1.0" / "history.sql"
AT = [datetime(2026, 11, day, 3, tzinfo=UTC) for day in range(1, 8)]
FINDING = {
    "level": "error", "category": "thermal_throttling", "nodes": ["node-1"], "item": None, "group_id": "g",
    "measured": "hot", "expected": "cool", "summary": "is in breach", "cause": None, "clues": [],
    "resolution": "look at the fans", "is_drill": False,
    "changes": [{"node": "node-1", "fingerprint": "f", "before": 10.0, "after": 9.0, "limit_pct": 1.5}],
    "evidence": [{
        "metric": "samples_per_second", "state": "breach", "value": 9.0, "reference": 10.0, "deviation": -10.0,
        "limit": 5.0, "noise": None, "side": "slow", "reason": "slow", "gpu": None,
    }],
}  # fmt: skip
COMMON = {"finding": json.dumps(FINDING), "campaign_id": "night-1", "dag_id": "dag"}


def breach(number: int, node: str, **fields: Any) -> dict[str, Any]:
    of = {"id": number, "node": node, "group_id": "g", "state": "breach", "reason": "it is slow", "is_drill": False}
    return of | COMMON | {"opened_at": AT[number]} | fields


def warning(number: int, node: str, kind: str, **fields: Any) -> dict[str, Any]:
    return {"id": number, "node": node, "kind": kind, "changes": "[]", "opened_at": AT[number]} | COMMON | fields


def verdict(node: str, state: str, condition: str, **fields: Any) -> dict[str, Any]:
    of = {"work_id": 1000, "node": node, "num_runs": 2, "state": state, "is_red": state == "breach"}
    rest = {"condition": condition, "confirmation": "not_needed", "is_watched": False, "is_drill": False}
    return of | rest | {"own_median_samples_per_second": 10.0, "history_deviation_pct": -2.0} | fields


ROWS: dict[str, list[dict[str, Any]]] = {
    "alembic_version": [{"version_num": "0001_history"}],
    "breaches": [
        breach(1, "node-1"),
        breach(2, "node-1", group_id="h"),  # the same node at another work
        breach(3, "node-2", state="failed", closed_at=AT[4], ended="well again"),
        breach(4, "node-3", is_drill=True, closed_at=AT[4], ended="over with its run"),
    ],
    "warnings": [
        warning(1, "node-1", "undecided"),
        warning(2, "node-4", "slow"),
        warning(3, "", "no_figure"),
        warning(4, "node-5", "node_marked"),
        warning(5, "node-6", "node_not_marked"),
    ],
    "acknowledgements": [
        {"id": 1, "breach_id": 1, "node": "node-1", "group_id": "g", "who": "ada", "at": AT[2], "reason": "known"}
    ],
    "notices": [
        {"kind": kind, "about_id": number, "event": "opened", "channel": "mail", "node": node, "claimed_at": AT[2],
         "sent_at": AT[2], "num_tries": 1}
        for kind, number, node in (("breach", 1, "node-1"), ("warning", 2, "node-4"))
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


def test_breaches_and_warnings_are_notices(fresh_url: str) -> None:
    history = upgraded(fresh_url)
    opened = {notice.node: notice for notice in history.open_notices()}

    assert {node: notice.word for node, notice in opened.items()} == {
        "node-1": "red: slow",
        "node-4": "look: behind",
        "": "red: alarm",
    }
    slow = opened["node-1"]
    assert (slow.id, slow.opened_at, slow.deviation, slow.finding.why) == (1, AT[1], -10.0, Why.SLOW)
    assert slow.acknowledgement is not None
    assert (slow.acknowledgement.who, slow.acknowledgement.at) == ("ada", AT[2])


def test_a_message_that_was_sent_is_not_sent_again(fresh_url: str) -> None:
    history = upgraded(fresh_url)
    told = {row["notice_id"] for row in stored(history, messages)}

    assert told == {notice.id for notice in history.open_notices() if notice.node}


def test_a_joined_notice_is_told_neither_as_closed_nor_as_opened(
    fresh_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """node-1 is still red; its second notice was told. node-2 has an open drill beside its open red notice."""
    told = [row | {"channel": EVERYTHING.name} for row in (*ROWS["notices"], ROWS["notices"][0] | {"about_id": 2})]
    open_twice = [breach(5, "node-2", is_drill=True), breach(6, "node-2")]
    monkeypatch.setitem(ROWS, "notices", told)
    monkeypatch.setitem(ROWS, "breaches", [*ROWS["breaches"], *open_twice])
    due = Outbox(upgraded(fresh_url).engine).take("dag", EVERYTHING, AT[6])

    assert {(each.notice.node, each.event, each.notice.is_drill) for each in due} == {
        ("", Event.OPENED, False),
        ("node-2", Event.OPENED, False),
        ("node-3", Event.OPENED, True),
    }


def test_verdicts_and_marks_are_kept(fresh_url: str) -> None:
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
    assert rows["node-1"]["confirmation"] == "cleared"
    with history.engine.connect() as connection:
        marked = connection.exec_driver_sql("SELECT node FROM marks WHERE closed_at IS NULL").scalars().all()
        assert marked == ["node-5"]
        assert connection.execute(select(runs)).all() == []


def test_new_notices_have_new_ids(fresh_url: str) -> None:
    """PostgreSQL numbers rows by itself, and does not know of those that were inserted with their ids."""
    history = upgraded(fresh_url)
    history.record(night(20, {"node-1": 9.0}, {"node-1": Why.SLOW}, suite="another"))
    assert len({notice.id for notice in history.open_notices()}) == 4
