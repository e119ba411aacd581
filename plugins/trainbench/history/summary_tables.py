"""Tables that the pages read beside `runs` and `breaches`: campaigns, their works and verdicts, acknowledgements.

A verdict refers to its work by a number, so that a million verdicts stay small. Filters read `works`, which has a few
rows for each campaign. The migration builds exactly these.
"""

from __future__ import annotations

from sqlalchemy import Boolean, Column, Float, Index, Integer, String, Table

from trainbench.figure_catalogue.run_figures import STORED
from trainbench.history.run_tables import RowId, UtcDateTime, metadata

campaigns = Table(
    "campaigns",
    metadata,
    Column("campaign_id", String, primary_key=True),
    Column("suite", String, nullable=False),  # the DAG's id
    Column("dag_run_id", String),  # null: not made by a DAG run
    Column("title", String, nullable=False),
    Column("campaign_kind", String, nullable=False),
    Column("started_at", UtcDateTime, nullable=False),
    Column("finished_at", UtcDateTime, nullable=False),
    Column("is_drill", Boolean, nullable=False),
    Column("num_runs", Integer, nullable=False),
    Column("num_failed", Integer, nullable=False),
    Column("num_nodes", Integer, nullable=False),  # judged
    Column("num_red", Integer, nullable=False),  # without those of a drill
    Column("samples_per_second_limit_pct", Float),  # this and the next two: from the peers; null: nothing was judged
    Column("memory_limit_pct", Float),
    Column("temperature_limit_c", Float),
    Index("campaigns_by_suite", "suite", "finished_at"),
    Index("campaigns_by_time", "finished_at"),
)

# One row for each campaign, group and GPU; a second one where the program chose other work in some runs.
works = Table(
    "works",
    metadata,
    Column("id", RowId, primary_key=True),
    Column("campaign_id", String, nullable=False),
    Column("suite", String, nullable=False),
    Column("at", UtcDateTime, nullable=False),  # the campaign's finished_at
    Column("day", String, nullable=False),  # of `at` in UTC, as 2026-11-21
    Column("group_id", String, nullable=False),
    Column("label", String),  # the work's name in the form
    Column("work_key", String),  # equal: the same work, but for strategy and number of GPUs; null: no run
    Column("gpu_name", String),
    Column("model", String),
    Column("recipe", String),
    Column("strategy", String),
    Column("preset", String),
    Column("world_size", Integer),
    Column("micro_batch_size", Integer),
    Column("seq_length", Integer),
    Column("num_runs", Integer, nullable=False),
    Column("num_valid", Integer, nullable=False),  # measured runs without drills; the medians are theirs
    Column("num_failed", Integer, nullable=False),
    *(Column(each.name, Float) for each in STORED),  # medians of the valid runs, or sums over all; null: none is known
    Column("num_unpriced", Integer, nullable=False),  # runs without a known cost
    Index("works_by_time", "at"),
    Index("works_by_campaign", "campaign_id"),
)

ON_THE_MAP = ("condition", "deviation_pct")

# Every node that ever had a verdict, so that a search need not read a million verdicts.
nodes = Table(
    "nodes",
    metadata,
    Column("node", String, primary_key=True),
    Column("suite", String, primary_key=True),
    Column("gpu_name", String, primary_key=True),  # "": unknown
)

node_verdicts = Table(
    "node_verdicts",
    metadata,
    Column("work_id", RowId, primary_key=True, autoincrement=False),
    Column("node", String, primary_key=True),
    Column("run_id", String),  # the run with the middle throughput, else the first; null: no run at all
    Column("num_runs", Integer, nullable=False),
    Column("state", String, nullable=False),
    Column("is_red", Boolean, nullable=False),  # red without a drill
    Column("history_state", String),  # null: not compared with its own past
    Column("condition", String, nullable=False),  # the node's, the same for all works of its campaign
    Column("condition_reason", String),
    Column("confirmation", String, nullable=False),
    Column("is_watched", Boolean, nullable=False),
    Column("is_drill", Boolean, nullable=False),
    Column("samples_per_second", Float),
    Column("deviation_pct", Float),  # of samples/s, from the peers
    Column("own_median_samples_per_second", Float),  # of its own past
    Column("history_deviation_pct", Float),
    Column("memory_deviation_pct", Float),
    Column("temperature_deviation_c", Float),
    Column("reason", String),  # null when the node is ok
    # The map reads a node's month from this index alone; in the table every night is on another disk page.
    Index("node_verdicts_by_node", "node", "work_id", *ON_THE_MAP),
)
_red = node_verdicts.c.is_red.is_(True)  # must match the queries' text, or SQLite does not use the index
Index("node_verdicts_red", node_verdicts.c.work_id, node_verdicts.c.node, sqlite_where=_red, postgresql_where=_red)

# `reindex` cannot rebuild these, since no file has them. The breach's identity is copied into the row.
acknowledgements = Table(
    "acknowledgements",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("breach_id", Integer, nullable=False),
    Column("node", String, nullable=False),
    Column("group_id", String, nullable=False),
    Column("who", String, nullable=False),
    Column("at", UtcDateTime, nullable=False),
    Column("reason", String, nullable=False),
    Index("acknowledgements_by_breach", "breach_id", "node", "group_id", unique=True),
)
