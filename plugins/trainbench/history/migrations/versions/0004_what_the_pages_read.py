"""What the pages read: campaigns, their works and verdicts; whose a breach is, why, what to do; acknowledgements."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"

AWARE = sa.DateTime(timezone=True)
ROW_ID = sa.BigInteger().with_variant(sa.Integer, "sqlite")
OF_BREACHES = ("dag_id", "dag_run_id", "gpu_name", "model", "recipe", "strategy", "cause", "resolution")


def upgrade() -> None:
    """Campaigns of before have no summaries until `trainbench reindex` makes them; breaches get their DAG at once, so
    that nobody loses sight of one.
    """
    _create_campaigns()
    _create_works()
    _create_verdicts()
    _create_acknowledgements()
    op.add_column("runs", sa.Column("work_id", ROW_ID))
    op.create_index("runs_by_work_id", "runs", ["work_id", "node"])
    for name in OF_BREACHES:
        op.add_column("breaches", sa.Column(name, sa.String))
    op.create_index("breaches_by_end", "breaches", ["closed_at"])
    op.execute(
        "UPDATE breaches SET dag_id = (SELECT MIN(suite) FROM runs WHERE runs.campaign_id = breaches.campaign_id)"
    )


def _create_campaigns() -> None:
    op.create_table(
        "campaigns",
        sa.Column("campaign_id", sa.String, primary_key=True),
        sa.Column("suite", sa.String, nullable=False),
        sa.Column("dag_run_id", sa.String),
        sa.Column("title", sa.String, nullable=False),
        sa.Column("question", sa.String, nullable=False),
        sa.Column("started_at", AWARE, nullable=False),
        sa.Column("finished_at", AWARE, nullable=False),
        sa.Column("is_drill", sa.Boolean, nullable=False),
        sa.Column("num_runs", sa.Integer, nullable=False),
        sa.Column("num_failed", sa.Integer, nullable=False),
        sa.Column("num_nodes", sa.Integer, nullable=False),
        sa.Column("num_red", sa.Integer, nullable=False),
    )
    op.create_index("campaigns_by_suite", "campaigns", ["suite", "finished_at"])
    op.create_index("campaigns_by_time", "campaigns", ["finished_at"])


def _create_works() -> None:
    op.create_table(
        "works",
        sa.Column("id", ROW_ID, primary_key=True),
        sa.Column("campaign_id", sa.String, nullable=False),
        sa.Column("suite", sa.String, nullable=False),
        sa.Column("at", AWARE, nullable=False),
        sa.Column("day", sa.String, nullable=False),
        sa.Column("group_id", sa.String, nullable=False),
        *(sa.Column(name, sa.String) for name in ("label", "work_key", "gpu_name", "model", "recipe", "strategy")),
        sa.Column("preset", sa.String),
        *(sa.Column(name, sa.Integer) for name in ("world_size", "micro_batch_size", "seq_length")),
        *(sa.Column(name, sa.Integer, nullable=False) for name in ("num_runs", "num_valid", "num_failed")),
        *(sa.Column(name, sa.Float) for name in ("samples_per_second", "tokens_per_second", "memory_gb", "mfu_pct")),
        *(sa.Column(name, sa.Float) for name in ("efficiency_pct", "usd_per_1000_samples", "usd_per_1m_tokens")),
        *(sa.Column(name, sa.Float) for name in ("gpu_hours", "run_usd")),
        sa.Column("num_unpriced", sa.Integer, nullable=False),
    )
    op.create_index("works_by_time", "works", ["at"])
    op.create_index("works_by_campaign", "works", ["campaign_id"])


def _create_verdicts() -> None:
    op.create_table("nodes", *(sa.Column(name, sa.String, primary_key=True) for name in ("node", "suite", "gpu_name")))
    op.create_table(
        "node_verdicts",
        sa.Column("work_id", ROW_ID, primary_key=True, autoincrement=False),
        sa.Column("node", sa.String, primary_key=True),
        sa.Column("run_id", sa.String),
        sa.Column("num_runs", sa.Integer, nullable=False),
        sa.Column("state", sa.String, nullable=False),
        sa.Column("is_red", sa.Boolean, nullable=False),
        sa.Column("history_state", sa.String),
        sa.Column("condition", sa.String, nullable=False),
        sa.Column("condition_reason", sa.String),
        sa.Column("confirmation", sa.String, nullable=False),
        sa.Column("is_watched", sa.Boolean, nullable=False),
        sa.Column("is_drill", sa.Boolean, nullable=False),
        *(sa.Column(name, sa.Float) for name in ("samples_per_second", "deviation_pct")),
        *(sa.Column(name, sa.Float) for name in ("own_median_samples_per_second", "history_deviation_pct")),
        *(sa.Column(name, sa.Float) for name in ("memory_deviation_pct", "temperature_deviation_c")),
        sa.Column("reason", sa.String),
    )
    on_the_map = ["condition", "deviation_pct"]
    op.create_index("node_verdicts_by_node", "node_verdicts", ["node", "work_id", *on_the_map])
    op.create_index(
        "node_verdicts_red",
        "node_verdicts",
        ["work_id", "node"],
        sqlite_where=sa.text("is_red IS 1"),
        postgresql_where=sa.text("is_red IS true"),
    )


def _create_acknowledgements() -> None:
    op.create_table(
        "acknowledgements",
        sa.Column("id", sa.Integer, primary_key=True),
        sa.Column("breach_id", sa.Integer, nullable=False),
        sa.Column("node", sa.String, nullable=False),
        sa.Column("group_id", sa.String, nullable=False),
        sa.Column("who", sa.String, nullable=False),
        sa.Column("at", AWARE, nullable=False),
        sa.Column("reason", sa.String, nullable=False),
    )
    op.create_index("acknowledgements_by_breach", "acknowledgements", ["breach_id", "node", "group_id"], unique=True)


def downgrade() -> None:
    op.drop_index("breaches_by_end", "breaches")
    op.drop_index("runs_by_work_id", "runs")
    op.drop_column("runs", "work_id")
    for name in OF_BREACHES:
        op.drop_column("breaches", name)
    for table in ("acknowledgements", "node_verdicts", "nodes", "works", "campaigns"):
        op.drop_table(table)
