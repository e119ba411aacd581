"""Copies the rows of a database of 0.1.0 into today's tables, in today's words: its nine states are six with a reason,
its breaches and warnings are notices.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from sqlalchemy import (
    ColumnElement,
    Connection,
    DateTime,
    MetaData,
    Table,
    and_,
    case,
    insert,
    inspect,
    null,
    or_,
    select,
    type_coerce,
)
from sqlalchemy import text as sql

from trainbench.core.states import TRAITS
from trainbench.core.verdicts import ALARMS, State, Why
from trainbench.history.notices import JOINED
from trainbench.history.tables import (
    UtcDateTime,
    acknowledgements,
    marks,
    messages,
    metadata,
    node_verdicts,
    notices,
    runs,
)
from trainbench.results.campaign import CONFIRMATION, OF_METRIC, WHY, finding_of_today

READS = "0001_history"  # the revision of 0.1.0
GONE = ("breaches", "warnings")
KINDS = {
    "slow": Why.BEHIND,
    "unsteady": Why.UNSTEADY,
    "undecided": Why.NOISY,
    **dict.fromkeys(("absent_node", "gone_node", "lost_gpus", "unmeasured_node"), Why.ABSENT),
}
CONDITIONS = {"breach": "slow", "acknowledged": "slow", "watched": "behind", "undecided": "noisy"}
Row = dict[str, Any]


def upgrade(connection: Connection) -> None:
    inspector = inspect(connection)
    known = set(inspector.get_table_names()) & {*metadata.tables, *GONE}
    for name in known:  # an index keeps its name, which the new table's takes
        for index in inspector.get_indexes(name):
            connection.execute(sql(f"DROP INDEX {index['name']}"))
        connection.execute(sql(f"ALTER TABLE {name} RENAME TO old_{name}"))
    metadata.create_all(connection)
    old = {name: Table(f"old_{name}", MetaData(), autoload_with=connection) for name in known}
    for name in ("baselines", "campaigns", "nodes", "works"):
        _copy(connection, old[name], metadata.tables[name])
    _copy_judged(connection, old["runs"], old["node_verdicts"])
    _copy_notices(connection, {name: _rows(connection, old[name]) for name in (*GONE, "acknowledgements", "notices")})
    for table in old.values():
        table.drop(connection)
    if connection.dialect.name == "postgresql":  # it numbers rows by itself, and does not know of those with their ids
        for table in metadata.sorted_tables:
            if "id" in table.c:
                last = f"(SELECT coalesce(max(id), 0) + 1 FROM {table.name})"  # noqa: S608 - our own names
                connection.execute(sql(f"SELECT setval(pg_get_serial_sequence('{table.name}', 'id'), {last}, false)"))


def _copy(connection: Connection, old: Table, new: Table, **changed: ColumnElement[Any]) -> None:
    values = {column.name: old.c[column.name] for column in new.c if column.name in old.c} | changed
    connection.execute(insert(new).from_select(list(values), select(*values.values())))


def _copy_judged(connection: Connection, old_runs: Table, old: Table) -> None:
    def why_of(judged: Table, *watched: ColumnElement[bool]) -> ColumnElement[str]:
        is_behind = or_(and_(judged.c.history_state == "breach", judged.c.state.in_(("ok", "notice"))), *watched)
        return case(
            (judged.c.state.is_(None), null()),
            (judged.c.state == "breach", "slow"),
            (judged.c.is_drill, "drill"),
            (is_behind, "behind"),
            else_=case({state: why.value for state, why in WHY.items()}, value=judged.c.state),
        )

    def state_of(why: ColumnElement[str], judged: Table) -> ColumnElement[str]:
        states = {each.value: TRAITS[each].state.value for each in Why}
        return case((why.is_(None), null()), (judged.c.is_drill, "drill"), else_=case(states, value=why))

    why = why_of(old_runs)
    _copy(connection, old_runs, runs, why=why, state=state_of(why, old_runs))
    why = why_of(old, old.c.is_watched)
    node_why = case(
        (and_(old.c.condition == "drill", old.c.state == "breach"), "slow"),
        else_=case(CONDITIONS, value=old.c.condition, else_=old.c.condition),
    )
    said = {before: after.value for before, after in CONFIRMATION.items()}
    _copy(
        connection,
        old,
        node_verdicts,
        why=why,
        state=state_of(why, old),
        reason=case((why != "well", case((old.c.reason.is_(None), old.c.condition_reason), else_=old.c.reason))),
        node_why=node_why,
        node_state=state_of(node_why, old),
        confirmation=case(said, value=old.c.confirmation, else_=old.c.confirmation),
        past_expected=old.c.own_median_samples_per_second,
        past_deviation_pct=old.c.history_deviation_pct,
    )


def _rows(connection: Connection, old: Table) -> list[Row]:
    times = (
        type_coerce(each, UtcDateTime).label(each.name) if isinstance(each.type, DateTime) else each for each in old.c
    )
    return [row._asdict() for row in connection.execute(select(*times))]


def _copy_notices(connection: Connection, old: Mapping[str, list[Row]]) -> None:
    after = max((row["id"] for row in old["breaches"]), default=0)  # breaches keep their ids, since addresses have them
    kept = [row for row in old["warnings"] if row["kind"] in {*KINDS, *ALARMS}]
    rows = [*map(_of_breach, old["breaches"]), *(_of_warning(row, after) for row in kept)]
    # One open notice of each node and DAG stays: of red ones the oldest, else the oldest.
    first: dict[tuple[str, ...], Row] = {}
    for row in sorted(rows, key=lambda row: (row["state"] != State.RED, row["opened_at"])):
        one = first.setdefault((row["dag_id"], row["node"], row["category"]), row) if row["closed_at"] is None else row
        if one is not row:
            row |= {"closed_at": max(row["opened_at"], one["opened_at"]), "ended": JOINED}
    _insert(connection, notices, rows)
    marked = [row for row in old["warnings"] if row["kind"] == "node_marked"]
    _insert(connection, marks, [row | {"finding": json.dumps(_finding(row))} for row in marked])
    by_notice = {(row["breach_id"], row["node"]): row for row in old["acknowledgements"]}
    seen = [row | {"notice_id": row["breach_id"], "state": State.RED.value} for row in by_notice.values()]
    _insert(connection, acknowledgements, seen)
    ids = {row["id"] for row in rows}
    sent = [row | {"notice_id": row["about_id"] + (after if row["kind"] == "warning" else 0)} for row in old["notices"]]
    _insert(connection, messages, [row for row in sent if row["notice_id"] in ids])


def _of_breach(row: Row) -> Row:
    finding = _finding(row)
    worst: Row = next(iter(finding["evidence"]), {"metric": None, "against": None, "deviation": None})
    is_slow = row["state"] not in ("failed", "missing")
    why = OF_METRIC.get(worst["metric"], Why.SLOW).value if is_slow else row["state"]
    return row | {
        "category": "",
        "state": (State.DRILL if row["is_drill"] else State.RED).value,
        "why": why,
        "finding": json.dumps(finding | {"why": why}),
        **{name: worst[name] for name in ("metric", "against", "deviation")},
    }


def _of_warning(row: Row, after: int) -> Row:
    finding, why = _finding(row), KINDS.get(row["kind"])
    return row | {
        "id": row["id"] + after,
        "category": "" if why else row["kind"],
        "state": (TRAITS[why].state if why else State.RED).value,
        "why": why.value if why else None,
        "reason": finding["summary"] if why else "",
        "finding": json.dumps(finding | {"why": why}),
        "is_drill": finding["is_drill"],
        "ended": row["ended"] or (JOINED if row["closed_at"] else None),  # one that a worse one replaced has no phrase
    }


def _finding(row: Row) -> Row:
    return finding_of_today(json.loads(row["finding"]))


def _insert(connection: Connection, table: Table, rows: list[Row]) -> None:
    if rows:
        connection.execute(insert(table), [{each.name: row.get(each.name) for each in table.c} for row in rows])
