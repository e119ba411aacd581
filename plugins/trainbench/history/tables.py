"""The tables of the history. A verdict refers to its work by a number, so that a million verdicts stay small; filters
read `works`, which has a few rows for each campaign.
"""

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

REVISION = "0005_decided"  # of these tables: give another one when they change, and let `upgrade` read this one


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
SETTING = ("gpu_name", "model", "recipe", "strategy")  # of a work, as notices name it


def _keys(*names: str) -> list[Column[str]]:
    return [Column(name, String, primary_key=True) for name in names]


def _texts(*names: str, nullable: bool = False) -> list[Column[str]]:
    return [Column(name, String, nullable=nullable) for name in names]


def _times(*names: str, nullable: bool = False) -> list[Column[datetime]]:
    return [Column(name, UtcDateTime, nullable=nullable) for name in names]


def _counts(*names: str) -> list[Column[int]]:
    return [Column(name, Integer, nullable=False) for name in names]


def _flags(*names: str) -> list[Column[bool]]:
    return [Column(name, Boolean, nullable=False) for name in names]


def _figures(*names: str) -> list[Column[float]]:
    return [Column(name, Float) for name in names]


revision = Table("alembic_version", metadata, Column("version_num", String(32), primary_key=True))  # 0.1.0's name

runs = Table(
    "runs",
    metadata,
    *_keys("campaign_id", "run_id"),
    *_texts("suite", "group_id", "node", "model", "recipe", "strategy", "preset", "fingerprint", "status"),
    *_texts("gpu_name", "driver", "image", "torch", "kernel", "vbios", "pod_template", "price_source", nullable=True),
    *_texts("state", "why", nullable=True),  # of its node at this work; null: it judges no node
    *_times("started_at", "finished_at"),
    *_flags("is_drill", "is_baseline"),  # the last: it counts in the past of its node
    *_counts("round", "world_size"),
    *(Column(name, Integer) for name in ("micro_batch_size", "seq_length")),  # null: not known, as of one's own job
    Column("peers", String, nullable=False),  # the other nodes of a gang, comma-separated; "" for none
    Column("gpu_uuids", String),  # comma-separated, ascending
    Column("libraries", String),  # JSON: name -> version
    *_figures(*(each.name for each in STORED)),  # of all its GPUs together, as the catalogue defines them
    Column("energy_j", Float),  # of the measured windows, all GPUs
    Column("power_limit_w", Float),  # the lowest of the GPUs'
    Column("judged_samples_per_second", Float),  # see `judged_rate`; the node's baseline is made from it
    Column("work_id", RowId),  # its row in `works`
    Index("runs_by_work", "fingerprint", "started_at"),
    Index("runs_by_work_id", "work_id", "node"),
    Index("runs_by_node", "node", "started_at"),
    Index("runs_by_group", "group_id", "started_at"),
    Index("runs_by_time", "started_at"),
)
# What tables of runs for people and programs tell of each, after its campaign and DAG; `suite` is the DAG's id.
OF_RUN = (
    "node", "peers", "round", "gpu_name", "model", "recipe", "strategy", "preset", "world_size", "micro_batch_size",
    "seq_length", "fingerprint", "status", "state", "why", "is_drill", "started_at", "finished_at", "driver", "image",
    "torch", *(each.name for each in STORED),
)  # fmt: skip
OURS = runs.c.suite != IMPORTED_SUITE  # what others measured is no state, past or cost of this installation

campaigns = Table(
    "campaigns",
    metadata,
    *_keys("campaign_id"),
    *_texts("suite", "title", "campaign_kind"),  # the first: the DAG's id
    Column("dag_run_id", String),  # null: not made by a DAG run
    *_times("started_at", "finished_at"),
    *_flags("is_drill"),
    *_counts("num_runs", "num_failed"),
    *_counts("num_nodes", "num_red"),  # judged; without those of a drill
    # Limits against the peers, and of samples/s against the own past; null: nothing was judged.
    *_figures("samples_per_second_limit_pct", "memory_limit_pct", "temperature_limit_c", "past_limit_pct"),
    Column("absent", String, nullable=False, server_default="[]"),  # JSON: nodes on which nothing could run
    Index("campaigns_by_suite", "suite", "finished_at"),
    Index("campaigns_by_time", "finished_at"),
)

# One row for each campaign, group and GPU; a second one where the program chose other work in some runs.
works = Table(
    "works",
    metadata,
    Column("id", RowId, primary_key=True),
    *_texts("campaign_id", "suite", "group_id"),
    *_times("at"),  # the campaign's finished_at
    *_texts("day"),  # of `at` in UTC, as 2026-11-21
    Column("label", String),  # the work's name in the form
    Column("work_key", String),  # equal: the same work, but for strategy and number of GPUs; null: no run
    *_texts(*SETTING, "preset", nullable=True),
    *(Column(name, Integer) for name in ("world_size", "micro_batch_size", "seq_length")),
    *_counts("num_runs", "num_failed"),
    *_counts("num_valid"),  # measured runs without drills; the medians are theirs
    *_counts("num_unpriced"),  # runs without a known cost
    *_figures(*(each.name for each in STORED)),  # medians of the valid runs, or sums over all; null: none is known
    Index("works_by_time", "at"),
    Index("works_by_campaign", "campaign_id"),
)

# Every node that ever had a verdict, so that a search need not read a million verdicts.
nodes = Table("nodes", metadata, *_keys("node", "suite", "gpu_name"))  # the last: "" where it is unknown

ON_THE_MAP = ("node_state", "node_why", "metric", "against", "deviation")
node_verdicts = Table(
    "node_verdicts",
    metadata,
    Column("work_id", RowId, primary_key=True, autoincrement=False),
    *_keys("node"),
    Column("run_id", String),  # the run with the middle throughput, else the first; null: no run at all
    *_counts("num_runs"),
    *_texts("state", "why"),  # at this work
    Column("reason", String),  # null when the node is well
    *_texts("node_state", "node_why"),  # of the node, the same for all works of its campaign
    *_flags("is_red", "is_drill"),  # the first: red without a drill
    *_texts("metric", "against", nullable=True),  # this and the next: of the comparison that decided; null: none did
    *_figures("deviation"),
    *_figures("samples_per_second"),
    *_figures("deviation_pct", "past_deviation_pct", "level_deviation_pct"),  # of samples/s
    *_figures("past_expected", "level_expected"),  # samples/s
    *_figures("memory_deviation_pct", "temperature_deviation_c"),  # from the peers, else from the own past
    # The map reads a node's month from this index alone; in the table every night is on another disk page.
    Index("node_verdicts_by_node", "node", "work_id", *ON_THE_MAP),
)
_red = node_verdicts.c.is_red.is_(True)  # must match the queries' text, or SQLite does not use the index
Index("node_verdicts_red", node_verdicts.c.work_id, node_verdicts.c.node, sqlite_where=_red, postgresql_where=_red)

# One row for each notice, from the campaign that opened it to the one that closed it: at most one open one for each
# node of a DAG, and for each kind of alarm. `Notice` describes the columns.
notices = Table(
    "notices",
    metadata,
    Column("id", Integer, primary_key=True),
    *_texts("node", "category", "dag_id", "state", "reason"),
    *_texts("why", "metric", "against", nullable=True),
    *_figures("deviation"),
    *_texts("finding", "campaign_id"),  # the first: JSON
    *_texts("group_id", *SETTING, "dag_run_id", "closed_by_campaign_id", "ended", nullable=True),
    *_times("opened_at"),
    *_times("worsened_at", "closed_at", nullable=True),
    *_flags("is_drill"),
    Index("notices_by_node", "node", "opened_at"),
    Index("notices_by_end", "closed_at"),
)
_of = (notices.c.dag_id, notices.c.node, notices.c.category)
_open = notices.c.closed_at.is_(None)
Index("notices_open", *_of, unique=True, sqlite_where=_open, postgresql_where=_open)

# `reindex` cannot rebuild this and `baselines`, since no file has them. A new database may repeat an id, so the node
# stands beside it. Who knew that a node asks for a look did not know that it turned red: each state is acknowledged by
# itself.
acknowledgements = Table(
    "acknowledgements",
    metadata,
    Column("id", Integer, primary_key=True),
    *_counts("notice_id"),
    *_texts("node", "state", "who", "reason"),
    *_times("at"),
    Index("acknowledgements_by_notice", "notice_id", "node", "state", unique=True),
)
baselines = Table(
    "baselines",
    metadata,
    Column("id", Integer, primary_key=True),
    *_texts("node", "fingerprint", "revoked_by", nullable=True),
    *_texts("who", "why"),
    *_times("since", "accepted_at"),
    *_times("revoked_at", nullable=True),
    Column("other_names", String, nullable=False, server_default="[]"),  # JSON
)

# One row for each notice, event and channel. It is written before the message is sent: a sender that dies in between
# leaves a row without an end, and the message is not sent a second time.
messages = Table(
    "messages",
    metadata,
    Column("notice_id", Integer, primary_key=True, autoincrement=False),
    *_keys("event", "channel"),  # the first: opened, worsened, closed
    *_texts("node"),
    *_times("claimed_at"),
    *_times("sent_at", nullable=True),
    Column("problem", String),  # why the last try failed; null: no try failed, or the outcome is unknown
    *_counts("num_tries"),
    Index("messages_by_time", "claimed_at"),
)

# Nodes that this installation keeps other work away from, as far as its runs and commands know.
marks = Table(
    "marks",
    metadata,
    Column("id", Integer, primary_key=True),
    *_texts("node", "dag_id", "finding"),  # the last: JSON
    *_texts("dag_run_id", "ended", nullable=True),
    *_times("opened_at"),
    *_times("closed_at", nullable=True),
    Index("marks_by_node", "node", "opened_at"),
)
