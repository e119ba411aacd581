"""Runs and breaches."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None

# Column types as they were at this revision: later changes of the tables must not change this file.
AWARE = sa.DateTime(timezone=True)


def upgrade() -> None:
    _create_runs()
    _create_breaches()


def _create_runs() -> None:
    op.create_table(
        "runs",
        sa.Column("campaign_id", sa.String, primary_key=True),
        sa.Column("run_id", sa.String, primary_key=True),
        sa.Column("suite", sa.String, nullable=False),
        sa.Column("group_id", sa.String, nullable=False),
        sa.Column("node", sa.String, nullable=False),
        sa.Column("round", sa.Integer, nullable=False),
        sa.Column("model", sa.String, nullable=False),
        sa.Column("recipe", sa.String, nullable=False),
        sa.Column("strategy", sa.String, nullable=False),
        sa.Column("preset", sa.String, nullable=False),
        sa.Column("fingerprint", sa.String, nullable=False),
        sa.Column("history_key", sa.String),
        sa.Column("gpu_name", sa.String),
        sa.Column("driver", sa.String),
        sa.Column("image", sa.String),
        sa.Column("torch", sa.String),
        sa.Column("status", sa.String, nullable=False),
        sa.Column("state", sa.String),
        sa.Column("history_state", sa.String),
        sa.Column("is_drill", sa.Boolean, nullable=False),
        sa.Column("is_baseline", sa.Boolean, nullable=False),
        sa.Column("started_at", AWARE, nullable=False),
        sa.Column("finished_at", AWARE, nullable=False),
        sa.Column("samples_per_second", sa.Float),
        sa.Column("tokens_per_second", sa.Float),
        sa.Column("memory_gb", sa.Float),
        sa.Column("temperature_c", sa.Float),
        sa.Column("mfu_pct", sa.Float),
        sa.Column("gpu_hours", sa.Float),
        sa.Column("run_usd", sa.Float),
        sa.Column("usd_per_1000_samples", sa.Float),
    )
    op.create_index("runs_by_node", "runs", ["node", "history_key", "started_at"])
    op.create_index("runs_by_group", "runs", ["group_id", "started_at"])
    op.create_index("runs_by_time", "runs", ["started_at"])


def _create_breaches() -> None:
    op.create_table(
        "breaches",
        sa.Column("id", sa.Integer, primary_key=True),
        sa.Column("node", sa.String, nullable=False),
        sa.Column("group_id", sa.String, nullable=False),
        sa.Column("campaign_id", sa.String, nullable=False),
        sa.Column("state", sa.String, nullable=False),
        sa.Column("metric", sa.String),
        sa.Column("deviation", sa.Float),
        sa.Column("reason", sa.String, nullable=False),
        sa.Column("is_drill", sa.Boolean, nullable=False),
        sa.Column("opened_at", AWARE, nullable=False),
        sa.Column("closed_at", AWARE),
        sa.Column("closed_by_campaign_id", sa.String),
    )
    op.create_index("breaches_by_node", "breaches", ["node", "group_id", "opened_at"])
    is_open = sa.text("closed_at IS NULL")
    op.create_index(
        "breaches_open",
        "breaches",
        ["node", "group_id", "is_drill"],
        unique=True,
        sqlite_where=is_open,
        postgresql_where=is_open,
    )


def downgrade() -> None:
    op.drop_table("breaches")
    op.drop_table("runs")
