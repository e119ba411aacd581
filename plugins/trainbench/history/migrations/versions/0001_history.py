"""The schema of the history as 0.1.0 made it: every table and index."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0001_history"
down_revision = None

AWARE = sa.DateTime(timezone=True)
ROW_ID = sa.BigInteger().with_variant(sa.Integer, "sqlite")  # SQLite numbers rows by itself in INTEGER columns only


def upgrade() -> None:
    _create_runs()
    _create_breaches()
    _create_campaigns()
    _create_works()
    _create_nodes()
    _create_node_verdicts()
    _create_acknowledgements()
    _create_warnings()
    _create_notices()
    _create_baselines()


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
        sa.Column("peak_memory_gb", sa.Float),
        sa.Column("mfu_pct", sa.Float),
        sa.Column("matmul_tflops", sa.Float),
        sa.Column("temperature_mean_c", sa.Float),
        sa.Column("sm_clock_mean_mhz", sa.Float),
        sa.Column("energy_per_sample_j", sa.Float),
        sa.Column("usd_per_gpu_hour", sa.Float),
        sa.Column("gpu_hours", sa.Float),
        sa.Column("run_usd", sa.Float),
        sa.Column("usd_per_1000_samples", sa.Float),
        sa.Column("usd_per_1m_tokens", sa.Float),
        sa.Column("scaling_efficiency_pct", sa.Float),
        sa.Column("peers", sa.String, nullable=False),
        sa.Column("world_size", sa.Integer, nullable=False),
        sa.Column("micro_batch_size", sa.Integer),
        sa.Column("seq_length", sa.Integer, nullable=False),
        sa.Column("price_source", sa.String),
        sa.Column("energy_j", sa.Float),
        sa.Column("kernel", sa.String),
        sa.Column("vbios", sa.String),
        sa.Column("power_limit_w", sa.Float),
        sa.Column("gpu_uuids", sa.String),
        sa.Column("libraries", sa.String),
        sa.Column("pod_template", sa.String),
        sa.Column("work_id", ROW_ID),
        sa.Column("judged_samples_per_second", sa.Float),
    )
    op.create_index("runs_by_group", "runs", ["group_id", "started_at"])
    op.create_index("runs_by_node", "runs", ["node", "history_key", "started_at"])
    op.create_index("runs_by_time", "runs", ["started_at"])
    op.create_index("runs_by_work", "runs", ["fingerprint", "started_at"])
    op.create_index("runs_by_work_id", "runs", ["work_id", "node"])


def _create_breaches() -> None:
    op.create_table(
        "breaches",
        sa.Column("id", sa.Integer, primary_key=True),
        sa.Column("node", sa.String, nullable=False),
        sa.Column("group_id", sa.String, nullable=False),
        sa.Column("campaign_id", sa.String, nullable=False),
        sa.Column("state", sa.String, nullable=False),
        sa.Column("reason", sa.String, nullable=False),
        sa.Column("is_drill", sa.Boolean, nullable=False),
        sa.Column("opened_at", AWARE, nullable=False),
        sa.Column("closed_at", AWARE),
        sa.Column("closed_by_campaign_id", sa.String),
        sa.Column("dag_id", sa.String, nullable=False),
        sa.Column("dag_run_id", sa.String),
        sa.Column("gpu_name", sa.String),
        sa.Column("model", sa.String),
        sa.Column("recipe", sa.String),
        sa.Column("strategy", sa.String),
        sa.Column("finding", sa.String, nullable=False),
        sa.Column("ended", sa.String),
    )
    op.create_index("breaches_by_end", "breaches", ["closed_at"])
    op.create_index("breaches_by_node", "breaches", ["node", "group_id", "opened_at"])
    op.create_index(
        "breaches_open",
        "breaches",
        ["node", "group_id", "is_drill"],
        unique=True,
        sqlite_where=sa.text("closed_at IS NULL"),
        postgresql_where=sa.text("closed_at IS NULL"),
    )


def _create_campaigns() -> None:
    op.create_table(
        "campaigns",
        sa.Column("campaign_id", sa.String, primary_key=True),
        sa.Column("suite", sa.String, nullable=False),
        sa.Column("dag_run_id", sa.String),
        sa.Column("title", sa.String, nullable=False),
        sa.Column("campaign_kind", sa.String, nullable=False),
        sa.Column("started_at", AWARE, nullable=False),
        sa.Column("finished_at", AWARE, nullable=False),
        sa.Column("is_drill", sa.Boolean, nullable=False),
        sa.Column("num_runs", sa.Integer, nullable=False),
        sa.Column("num_failed", sa.Integer, nullable=False),
        sa.Column("num_nodes", sa.Integer, nullable=False),
        sa.Column("num_red", sa.Integer, nullable=False),
        sa.Column("samples_per_second_limit_pct", sa.Float),
        sa.Column("memory_limit_pct", sa.Float),
        sa.Column("temperature_limit_c", sa.Float),
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
        sa.Column("label", sa.String),
        sa.Column("work_key", sa.String),
        sa.Column("gpu_name", sa.String),
        sa.Column("model", sa.String),
        sa.Column("recipe", sa.String),
        sa.Column("strategy", sa.String),
        sa.Column("preset", sa.String),
        sa.Column("world_size", sa.Integer),
        sa.Column("micro_batch_size", sa.Integer),
        sa.Column("seq_length", sa.Integer),
        sa.Column("num_runs", sa.Integer, nullable=False),
        sa.Column("num_valid", sa.Integer, nullable=False),
        sa.Column("num_failed", sa.Integer, nullable=False),
        sa.Column("samples_per_second", sa.Float),
        sa.Column("tokens_per_second", sa.Float),
        sa.Column("peak_memory_gb", sa.Float),
        sa.Column("mfu_pct", sa.Float),
        sa.Column("matmul_tflops", sa.Float),
        sa.Column("temperature_mean_c", sa.Float),
        sa.Column("sm_clock_mean_mhz", sa.Float),
        sa.Column("energy_per_sample_j", sa.Float),
        sa.Column("usd_per_gpu_hour", sa.Float),
        sa.Column("gpu_hours", sa.Float),
        sa.Column("run_usd", sa.Float),
        sa.Column("usd_per_1000_samples", sa.Float),
        sa.Column("usd_per_1m_tokens", sa.Float),
        sa.Column("scaling_efficiency_pct", sa.Float),
        sa.Column("num_unpriced", sa.Integer, nullable=False),
    )
    op.create_index("works_by_campaign", "works", ["campaign_id"])
    op.create_index("works_by_time", "works", ["at"])


def _create_nodes() -> None:
    op.create_table(
        "nodes",
        sa.Column("node", sa.String, primary_key=True),
        sa.Column("suite", sa.String, primary_key=True),
        sa.Column("gpu_name", sa.String, primary_key=True),
    )


def _create_node_verdicts() -> None:
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
        sa.Column("samples_per_second", sa.Float),
        sa.Column("deviation_pct", sa.Float),
        sa.Column("own_median_samples_per_second", sa.Float),
        sa.Column("history_deviation_pct", sa.Float),
        sa.Column("memory_deviation_pct", sa.Float),
        sa.Column("temperature_deviation_c", sa.Float),
        sa.Column("reason", sa.String),
    )
    op.create_index("node_verdicts_by_node", "node_verdicts", ["node", "work_id", "condition", "deviation_pct"])
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


def _create_warnings() -> None:
    op.create_table(
        "warnings",
        sa.Column("id", sa.Integer, primary_key=True),
        sa.Column("dag_id", sa.String, nullable=False),
        sa.Column("node", sa.String, nullable=False),
        sa.Column("kind", sa.String, nullable=False),
        sa.Column("finding", sa.String, nullable=False),
        sa.Column("changes", sa.String, nullable=False),
        sa.Column("campaign_id", sa.String, nullable=False),
        sa.Column("dag_run_id", sa.String),
        sa.Column("opened_at", AWARE, nullable=False),
        sa.Column("closed_at", AWARE),
        sa.Column("closed_by_campaign_id", sa.String),
        sa.Column("ended", sa.String),
    )
    op.create_index("warnings_by_end", "warnings", ["closed_at"])
    op.create_index(
        "warnings_open",
        "warnings",
        ["dag_id", "node", "kind"],
        unique=True,
        sqlite_where=sa.text("closed_at IS NULL"),
        postgresql_where=sa.text("closed_at IS NULL"),
    )


def _create_notices() -> None:
    op.create_table(
        "notices",
        sa.Column("kind", sa.String, primary_key=True),
        sa.Column("about_id", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("event", sa.String, primary_key=True),
        sa.Column("channel", sa.String, primary_key=True),
        sa.Column("node", sa.String, nullable=False),
        sa.Column("claimed_at", AWARE, nullable=False),
        sa.Column("sent_at", AWARE),
        sa.Column("problem", sa.String),
        sa.Column("num_tries", sa.Integer, nullable=False),
    )
    op.create_index("notices_by_time", "notices", ["claimed_at"])


def _create_baselines() -> None:
    op.create_table(
        "baselines",
        sa.Column("id", sa.Integer, primary_key=True),
        sa.Column("node", sa.String),
        sa.Column("fingerprint", sa.String),
        sa.Column("since", AWARE, nullable=False),
        sa.Column("who", sa.String, nullable=False),
        sa.Column("why", sa.String, nullable=False),
        sa.Column("accepted_at", AWARE, nullable=False),
        sa.Column("revoked_at", AWARE),
        sa.Column("revoked_by", sa.String),
        sa.Column("other_names", sa.String, nullable=False, server_default="[]"),
    )
