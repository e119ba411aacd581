"""One judgement: states with reasons, notices instead of breaches and warnings. Rows of 0.1.0 stay, in new words."""

# ruff: noqa: S608  # every part of the SQL is written in this file

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

import sqlalchemy as sa
from alembic import op

revision = "0002_one_judgement"
down_revision = "0001_history"

AWARE = sa.DateTime(timezone=True)
UNSURE = "CASE WHEN {reason} LIKE '%noise%' THEN 'noisy' ELSE 'nothing_to_compare' END"
# By the reason of each new state.
STATES = {
    "red": ("failed", "missing", "slow", "hot", "heavy"),
    "look": ("behind", "once", "unsteady", "absent", "changed"),
    "not_checked": ("noisy", "nothing_to_compare", "busy", "stale"),
}
STATE_OF = "CASE " + " ".join(
    f"WHEN {{why}} IN ({', '.join(map(repr, whys))}) THEN '{state}'" for state, whys in STATES.items()
) + " ELSE {why} END"  # fmt: skip
METRICS = {"samples_per_second": "slow", "memory_gb": "heavy", "temperature_c": "hot"}
KINDS = {
    "slow": "behind",
    "unsteady": "unsteady",
    "undecided": "noisy",
    "absent_node": "absent",
    "gone_node": "absent",
    "lost_gpus": "absent",
    "unmeasured_node": "absent",
}
ALARMS = ("no_figure", "part_failed", "computes_something_else", "drill_undetected")
JOINED = "joined with the other notice of this node"


def upgrade() -> None:
    _change_runs()
    _change_campaigns()
    _change_verdicts()
    _change_notices()


def _change_runs() -> None:
    op.drop_index("runs_by_node", "runs")
    op.add_column("runs", sa.Column("why", sa.String))
    op.execute(
        "UPDATE runs SET why = CASE WHEN state = 'breach' THEN 'slow' WHEN is_drill THEN 'drill' "
        "WHEN history_state = 'breach' AND state IN ('ok', 'notice') THEN 'behind' "
        "WHEN state = 'ok' THEN 'well' WHEN state = 'notice' THEN 'once' "
        "WHEN state IN ('failed', 'missing', 'busy') THEN state ELSE 'nothing_to_compare' END "
        "WHERE state IS NOT NULL"
    )
    op.execute(
        f"UPDATE runs SET state = CASE WHEN is_drill THEN 'drill' ELSE {STATE_OF.format(why='why')} END "
        "WHERE state IS NOT NULL"
    )
    op.drop_column("runs", "history_key")
    op.drop_column("runs", "history_state")
    op.create_index("runs_by_node", "runs", ["node", "started_at"])


def _change_campaigns() -> None:
    op.add_column("campaigns", sa.Column("past_limit_pct", sa.Float))
    op.add_column("campaigns", sa.Column("absent", sa.String, nullable=False, server_default="[]"))


def _change_verdicts() -> None:
    op.drop_index("node_verdicts_by_node", "node_verdicts")
    for name in ("why", "node_state", "node_why"):
        op.add_column("node_verdicts", sa.Column(name, sa.String, nullable=False, server_default="well"))
    for name in ("noise_pct", "level_deviation_pct", "level_expected"):
        op.add_column("node_verdicts", sa.Column(name, sa.Float))
    op.alter_column("node_verdicts", "own_median_samples_per_second", new_column_name="past_expected")
    op.alter_column("node_verdicts", "history_deviation_pct", new_column_name="past_deviation_pct")
    op.execute(
        "UPDATE node_verdicts SET why = CASE WHEN state = 'breach' THEN 'slow' WHEN is_drill THEN 'drill' "
        "WHEN is_watched OR (history_state = 'breach' AND state IN ('ok', 'notice')) THEN 'behind' "
        "WHEN state = 'ok' THEN 'well' WHEN state = 'notice' THEN 'once' "
        f"WHEN state IN ('failed', 'missing', 'busy') THEN state ELSE {UNSURE.format(reason='reason')} END, "
        "node_why = CASE WHEN condition = 'breach' THEN 'slow' WHEN condition = 'watched' THEN 'behind' "
        f"WHEN condition = 'undecided' THEN {UNSURE.format(reason='condition_reason')} "
        "WHEN condition = 'drill' AND state = 'breach' THEN 'slow' WHEN condition = 'acknowledged' THEN 'slow' "
        "ELSE condition END"
    )
    op.execute(
        f"UPDATE node_verdicts SET state = CASE WHEN is_drill THEN 'drill' ELSE {STATE_OF.format(why='why')} END, "
        f"node_state = CASE WHEN is_drill THEN 'drill' ELSE {STATE_OF.format(why='node_why')} END, "
        "reason = CASE WHEN why = 'well' THEN NULL ELSE coalesce(reason, condition_reason) END, "
        "confirmation = CASE confirmation WHEN 'not_confirmed' THEN 'cleared' WHEN 'inconclusive' THEN 'no_answer' "
        "ELSE confirmation END"
    )
    for name in ("condition", "condition_reason", "history_state", "is_watched"):
        op.drop_column("node_verdicts", name)
    on_the_map = ["node", "work_id", "node_state", "node_why", "deviation_pct"]
    op.create_index("node_verdicts_by_node", "node_verdicts", on_the_map)


def _change_notices() -> None:
    """The tables are small: they are read, dropped, and made anew."""
    connection = op.get_bind()
    breaches, warnings, seen, sent = (
        [dict(row) for row in connection.execute(sa.text(f"SELECT * FROM {table} ORDER BY 1")).mappings()]
        for table in ("breaches", "warnings", "acknowledgements", "notices")
    )
    for table in ("breaches", "warnings", "acknowledgements", "notices"):
        op.drop_table(table)
    notices, acknowledgements, messages, marks = _create_tables()
    after = max((row["id"] for row in breaches), default=0)  # the ids of breaches stay, since addresses have them
    rows = [
        *map(_of_breach, breaches),
        *(_of_warning(row, after) for row in warnings if row["kind"] in (*KINDS, *ALARMS)),
    ]
    _join(rows)
    of = {"breach": 0, "warning": after}
    known = {row["id"] for row in rows}
    _insert(connection, notices, rows)
    _insert(connection, marks, (_mark(row) for row in warnings if row["kind"] == "node_marked"))
    by_notice = {
        (row["breach_id"], row["node"]): {
            "notice_id": row["breach_id"],
            "state": "red",
            **{name: row[name] for name in ("id", "node", "who", "at", "reason")},
        }
        for row in seen
    }
    _insert(connection, acknowledgements, by_notice.values())
    moved = ({**row, "notice_id": row.pop("about_id") + of[row.pop("kind")]} for row in sent)
    _insert(connection, messages, (row for row in moved if row["notice_id"] in known))


def _of_breach(row: dict[str, Any]) -> dict[str, Any]:
    finding = json.loads(row["finding"])
    worst = next((each for each in finding.get("evidence", ()) if each["deviation"] is not None), None)
    why = row["state"] if row["state"] in ("failed", "missing") else METRICS[worst["metric"]] if worst else "slow"
    known = dict(row) | {
        "category": "",
        "state": "drill" if row["is_drill"] else "red",
        "why": why,
        "metric": worst["metric"] if worst else None,
        "against": "peers" if worst else None,
        "deviation": worst["deviation"] if worst else None,
        "finding": _finding(finding, why),
    }
    return known


def _of_warning(row: dict[str, Any], after: int) -> dict[str, Any]:
    finding = json.loads(row["finding"])
    why = KINDS.get(row["kind"])
    state = "red" if why is None else "not_checked" if why == "noisy" else "look"
    own = {name: row[name] for name in row.keys() - {"kind", "changes"}}
    nothing = dict.fromkeys(("metric", "against", "deviation", "group_id", "gpu_name", "model", "recipe", "strategy"))
    return own | nothing | {
        "id": row["id"] + after,
        "category": "" if why else row["kind"],
        "state": state,
        "why": why,
        "reason": "" if why is None else finding["summary"],
        "finding": _finding(finding, why),
        "is_drill": bool(finding.get("is_drill")),
        # A warning that a worse one replaced has no phrase.
        "ended": row["ended"] or (JOINED if row["closed_at"] else None),
    }  # fmt: skip


def _finding(old: dict[str, Any], why: str | None) -> str:
    """The finding in today's form. Its evidence has another form, and its figures stand in the notice."""
    return json.dumps({name: value for name, value in old.items() if name != "changes"} | {"evidence": [], "why": why})


def _join(rows: Iterable[dict[str, Any]]) -> None:
    """Leave one open notice of each node and DAG: of red ones the oldest, else the oldest."""
    first: dict[tuple[str, ...], dict[str, Any]] = {}
    for row in sorted(rows, key=lambda row: (row["state"] != "red", row["opened_at"])):
        if row["closed_at"] is None:
            one = first.setdefault((row["dag_id"], row["node"], row["category"]), row)
            if one is not row:
                row.update(closed_at=max(row["opened_at"], one["opened_at"]), ended=JOINED)


def _mark(row: Mapping[str, Any]) -> dict[str, Any]:
    kept = ("id", "node", "dag_id", "dag_run_id", "opened_at", "closed_at", "ended")
    return {name: row[name] for name in kept} | {"finding": _finding(json.loads(row["finding"]), None)}


def _insert(connection: sa.Connection, table: sa.Table, rows: Iterable[Mapping[str, Any]]) -> None:
    """Insert rows, whose times are as the database gave them: text in SQLite."""
    names = [column.name for column in table.columns]
    given = [{name: row.get(name) for name in names} for row in rows]
    if not given:
        return
    marks = ", ".join(f":{name}" for name in names)
    connection.execute(sa.text(f"INSERT INTO {table.name} ({', '.join(names)}) VALUES ({marks})"), given)
    if connection.dialect.name == "postgresql" and "id" in names:
        sequence = f"pg_get_serial_sequence('{table.name}', 'id')"
        connection.execute(sa.text(f"SELECT setval({sequence}, (SELECT max(id) FROM {table.name}))"))


def _create_tables() -> tuple[sa.Table, sa.Table, sa.Table, sa.Table]:
    notices = op.create_table(
        "notices",
        sa.Column("id", sa.Integer, primary_key=True),
        sa.Column("node", sa.String, nullable=False),
        sa.Column("category", sa.String, nullable=False),
        sa.Column("dag_id", sa.String, nullable=False),
        sa.Column("state", sa.String, nullable=False),
        sa.Column("why", sa.String),
        sa.Column("reason", sa.String, nullable=False),
        sa.Column("metric", sa.String),
        sa.Column("against", sa.String),
        sa.Column("deviation", sa.Float),
        sa.Column("finding", sa.String, nullable=False),
        sa.Column("group_id", sa.String),
        sa.Column("gpu_name", sa.String),
        sa.Column("model", sa.String),
        sa.Column("recipe", sa.String),
        sa.Column("strategy", sa.String),
        sa.Column("campaign_id", sa.String, nullable=False),
        sa.Column("dag_run_id", sa.String),
        sa.Column("opened_at", AWARE, nullable=False),
        sa.Column("worsened_at", AWARE),
        sa.Column("closed_at", AWARE),
        sa.Column("closed_by_campaign_id", sa.String),
        sa.Column("ended", sa.String),
        sa.Column("is_drill", sa.Boolean, nullable=False),
    )
    op.create_index("notices_by_node", "notices", ["node", "opened_at"])
    op.create_index("notices_by_end", "notices", ["closed_at"])
    is_open = sa.text("closed_at IS NULL")
    op.create_index(
        "notices_open",
        "notices",
        ["dag_id", "node", "category"],
        unique=True,
        sqlite_where=is_open,
        postgresql_where=is_open,
    )
    acknowledgements = op.create_table(
        "acknowledgements",
        sa.Column("id", sa.Integer, primary_key=True),
        sa.Column("notice_id", sa.Integer, nullable=False),
        sa.Column("node", sa.String, nullable=False),
        sa.Column("state", sa.String, nullable=False),
        sa.Column("who", sa.String, nullable=False),
        sa.Column("at", AWARE, nullable=False),
        sa.Column("reason", sa.String, nullable=False),
    )
    op.create_index(
        "acknowledgements_by_notice", "acknowledgements", ["notice_id", "node", "state"], unique=True
    )  # fmt: skip
    messages = op.create_table(
        "messages",
        sa.Column("notice_id", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("event", sa.String, primary_key=True),
        sa.Column("channel", sa.String, primary_key=True),
        sa.Column("node", sa.String, nullable=False),
        sa.Column("claimed_at", AWARE, nullable=False),
        sa.Column("sent_at", AWARE),
        sa.Column("problem", sa.String),
        sa.Column("num_tries", sa.Integer, nullable=False),
    )
    op.create_index("messages_by_time", "messages", ["claimed_at"])
    marks = op.create_table(
        "marks",
        sa.Column("id", sa.Integer, primary_key=True),
        sa.Column("node", sa.String, nullable=False),
        sa.Column("dag_id", sa.String, nullable=False),
        sa.Column("dag_run_id", sa.String),
        sa.Column("finding", sa.String, nullable=False),
        sa.Column("opened_at", AWARE, nullable=False),
        sa.Column("closed_at", AWARE),
        sa.Column("ended", sa.String),
    )
    op.create_index("marks_by_node", "marks", ["node", "opened_at"])
    return notices, acknowledgements, messages, marks
