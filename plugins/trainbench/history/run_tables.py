"""The tables of the history: one row for each run, one for each breach. The migration builds exactly these."""

from __future__ import annotations

from datetime import UTC, datetime

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    DateTime,
    Dialect,
    Float,
    Index,
    Integer,
    MetaData,
    String,
    Table,
    TypeDecorator,
)

from trainbench.figure_catalogue.run_figures import STORED
from trainbench.results.campaign import IMPORTED_SUITE


class UtcDateTime(TypeDecorator[datetime]):
    """A column of aware datetimes, returned in UTC; SQLite itself keeps no time zone."""

    impl = DateTime(timezone=True)
    cache_ok = True

    def process_bind_param(self, value: datetime | None, dialect: Dialect) -> datetime | None:
        return None if value is None else value.astimezone(UTC)

    def process_result_value(self, value: datetime | None, dialect: Dialect) -> datetime | None:
        if value is None:
            return None
        return value.replace(tzinfo=UTC) if value.tzinfo is None else value.astimezone(UTC)


metadata = MetaData()

RowId = BigInteger().with_variant(Integer, "sqlite")  # SQLite numbers rows by itself in a column of type INTEGER only

runs = Table(
    "runs",
    metadata,
    Column("campaign_id", String, primary_key=True),
    Column("run_id", String, primary_key=True),
    Column("suite", String, nullable=False),
    Column("group_id", String, nullable=False),
    Column("node", String, nullable=False),
    Column("round", Integer, nullable=False),
    Column("model", String, nullable=False),
    Column("recipe", String, nullable=False),
    Column("strategy", String, nullable=False),
    Column("preset", String, nullable=False),
    Column("fingerprint", String, nullable=False),
    Column("history_key", String),
    Column("gpu_name", String),
    Column("driver", String),
    Column("image", String),
    Column("torch", String),
    Column("status", String, nullable=False),
    Column("state", String),
    Column("history_state", String),
    Column("is_drill", Boolean, nullable=False),
    Column("is_baseline", Boolean, nullable=False),
    Column("started_at", UtcDateTime, nullable=False),
    Column("finished_at", UtcDateTime, nullable=False),
    *(Column(each.name, Float) for each in STORED),  # figures of all its GPUs together, as the catalogue defines them
    Column("peers", String, nullable=False),  # the other nodes of a gang, comma-separated; "" for none
    Column("world_size", Integer, nullable=False),
    Column("micro_batch_size", Integer),
    Column("seq_length", Integer, nullable=False),
    Column("price_source", String),
    Column("energy_j", Float),  # of the measured windows, all GPUs
    Column("kernel", String),
    Column("vbios", String),
    Column("power_limit_w", Float),  # the lowest of the GPUs'
    Column("gpu_uuids", String),  # comma-separated, ascending
    Column("libraries", String),  # JSON: name -> version
    Column("pod_template", String),  # its digest; "none": without one
    Column("work_id", RowId),  # its row in `works`
    Column("judged_samples_per_second", Float),  # see `judged_rate`; the node's baseline is made from it
    Index("runs_by_work", "fingerprint", "started_at"),
    Index("runs_by_work_id", "work_id", "node"),
    Index("runs_by_node", "node", "history_key", "started_at"),
    Index("runs_by_group", "group_id", "started_at"),
    Index("runs_by_time", "started_at"),
)

OURS = runs.c.suite != IMPORTED_SUITE  # what others measured is no state, past or cost of this installation

breaches = Table(
    "breaches",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("node", String, nullable=False),
    Column("group_id", String, nullable=False),
    Column("campaign_id", String, nullable=False),
    Column("state", String, nullable=False),
    Column("reason", String, nullable=False),
    Column("is_drill", Boolean, nullable=False),
    Column("opened_at", UtcDateTime, nullable=False),
    Column("closed_at", UtcDateTime),
    Column("closed_by_campaign_id", String),
    Column("dag_id", String, nullable=False),  # the suite of the campaign that opened it, as in `runs`
    Column("dag_run_id", String),
    Column("gpu_name", String),
    Column("model", String),
    Column("recipe", String),
    Column("strategy", String),
    Column("finding", String, nullable=False),  # JSON: a Finding, as the judgement made it
    Column("ended", String),  # its end as a phrase; null while it is open
    Index("breaches_by_node", "node", "group_id", "opened_at"),
    Index("breaches_by_end", "closed_at"),
)

# At most one open breach of a kind: a drill does not hide a real one.
_open = breaches.c.closed_at.is_(None)
Index(
    "breaches_open",
    breaches.c.node,
    breaches.c.group_id,
    breaches.c.is_drill,
    unique=True,
    sqlite_where=_open,
    postgresql_where=_open,
)
