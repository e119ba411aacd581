"""Copies runs, verdicts and baselines of a database of 0.1.0 into today's tables, in today's words: its nine states are
six with a reason. What it told people of stays beside, in tables named old_...: the next nights open today's notices.
"""

from __future__ import annotations

from typing import Any

from sqlalchemy import (
    ColumnElement,
    Connection,
    MetaData,
    Table,
    and_,
    case,
    insert,
    inspect,
    null,
    or_,
    select,
    update,
)
from sqlalchemy import text as sql

from trainbench.core.states import TRAITS
from trainbench.core.verdicts import Why
from trainbench.history.tables import metadata, node_verdicts, runs
from trainbench.results.campaign import WHY

READS = "0001_history"  # the revision of 0.1.0
READS_ALSO = "0004_own_jobs"  # that of 0.2.0
COPIED = ("runs", "node_verdicts", "baselines", "campaigns", "nodes", "works")
OLD = (*COPIED, "acknowledgements", "breaches", "notices", "warnings")
CONDITIONS = {"breach": "slow", "acknowledged": "slow", "watched": "behind", "undecided": "noisy"}


def add_what_decided(connection: Connection) -> None:
    """The tables of 0.2.0: of its nights the map shows the figure beside the peers, until `reindex` reads them anew."""
    connection.execute(sql("DROP INDEX node_verdicts_by_node"))
    for change in ("ADD metric VARCHAR", "ADD against VARCHAR", "ADD deviation FLOAT"):
        connection.execute(sql(f"ALTER TABLE node_verdicts {change}"))
    for gone in ("confirmation", "noise_pct"):  # nobody read them
        connection.execute(sql(f"ALTER TABLE node_verdicts DROP COLUMN {gone}"))
    by_peers = {"metric": "samples_per_second", "against": "peers", "deviation": node_verdicts.c.deviation_pct}
    has_peers = node_verdicts.c.deviation_pct.is_not(None)
    connection.execute(update(node_verdicts).where(has_peers).values(by_peers))
    next(index for index in node_verdicts.indexes if index.name == "node_verdicts_by_node").create(connection)


def upgrade(connection: Connection) -> None:
    inspector = inspect(connection)
    for name in OLD:  # an index keeps its name, which the new table's takes
        for index in inspector.get_indexes(name):
            connection.execute(sql(f"DROP INDEX {index['name']}"))
        connection.execute(sql(f"ALTER TABLE {name} RENAME TO old_{name}"))
    metadata.create_all(connection)
    old = {name: Table(f"old_{name}", MetaData(), autoload_with=connection) for name in COPIED}
    for name in COPIED[2:]:
        _copy(connection, old[name], metadata.tables[name])
    _copy_judged(connection, old["runs"], old["node_verdicts"])
    for table in old.values():
        table.drop(connection)
    if connection.dialect.name == "postgresql":  # it numbers rows by itself, and does not know of those with their ids
        for name in ("baselines", "works"):
            last = f"(SELECT coalesce(max(id), 0) + 1 FROM {name})"  # noqa: S608 - our own names
            connection.execute(sql(f"SELECT setval(pg_get_serial_sequence('{name}', 'id'), {last}, false)"))


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
    why, has_peers = why_of(old, old.c.is_watched), old.c.deviation_pct.is_not(None)
    node_why = case(
        (and_(old.c.condition == "drill", old.c.state == "breach"), "slow"),
        else_=case(CONDITIONS, value=old.c.condition, else_=old.c.condition),
    )
    _copy(
        connection,
        old,
        node_verdicts,
        why=why,
        state=state_of(why, old),
        reason=case((why != "well", case((old.c.reason.is_(None), old.c.condition_reason), else_=old.c.reason))),
        node_why=node_why,
        node_state=state_of(node_why, old),
        metric=case((has_peers, "samples_per_second")),
        against=case((has_peers, "peers")),
        deviation=old.c.deviation_pct,
        past_expected=old.c.own_median_samples_per_second,
        past_deviation_pct=old.c.history_deviation_pct,
    )
