"""The table of runs. The migrations build exactly this."""

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
    Column("gpu_name", String),
    Column("driver", String),
    Column("image", String),
    Column("torch", String),
    Column("status", String, nullable=False),
    Column("state", String),  # this and the next: of its node at this work; null: it judges no node
    Column("why", String),
    Column("is_drill", Boolean, nullable=False),
    Column("is_baseline", Boolean, nullable=False),  # it counts in the past of its node
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
    Index("runs_by_node", "node", "started_at"),
    Index("runs_by_group", "group_id", "started_at"),
    Index("runs_by_time", "started_at"),
)

OURS = runs.c.suite != IMPORTED_SUITE  # what others measured is no state, past or cost of this installation
