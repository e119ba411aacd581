"""Tables that the pages read beside `runs` and `notices`: campaigns, their works and verdicts.

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
    Column("past_limit_pct", Float),  # of samples/s, from the own past
    Column("absent", String, nullable=False, server_default="[]"),  # JSON: nodes on which nothing could run
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

ON_THE_MAP = ("node_state", "node_why", "deviation_pct")

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
    Column("state", String, nullable=False),  # at this work
    Column("why", String, nullable=False),
    Column("reason", String),  # null when the node is well
    Column("node_state", String, nullable=False),  # of the node, the same for all works of its campaign
    Column("node_why", String, nullable=False),
    Column("is_red", Boolean, nullable=False),  # red without a drill
    Column("is_drill", Boolean, nullable=False),
    Column("confirmation", String, nullable=False),
    Column("samples_per_second", Float),
    Column("noise_pct", Float),
    Column("deviation_pct", Float),  # of samples/s, from the peers
    Column("past_deviation_pct", Float),
    Column("past_expected", Float),  # samples/s
    Column("level_deviation_pct", Float),
    Column("level_expected", Float),  # samples/s
    Column("memory_deviation_pct", Float),  # this and the next: from the peers, else from the own past
    Column("temperature_deviation_c", Float),
    # The map reads a node's month from this index alone; in the table every night is on another disk page.
    Index("node_verdicts_by_node", "node", "work_id", *ON_THE_MAP),
)
_red = node_verdicts.c.is_red.is_(True)  # must match the queries' text, or SQLite does not use the index
Index("node_verdicts_red", node_verdicts.c.work_id, node_verdicts.c.node, sqlite_where=_red, postgresql_where=_red)
