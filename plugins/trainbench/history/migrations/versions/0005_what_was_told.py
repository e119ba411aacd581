"""What is worth a look without being red, and which notices of it and of breaches were sent where."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"

AWARE = sa.DateTime(timezone=True)


def upgrade() -> None:
    op.create_table(
        "warnings",
        sa.Column("id", sa.Integer, primary_key=True),
        *(sa.Column(name, sa.String, nullable=False) for name in ("dag_id", "node", "category", "summary")),
        sa.Column("resolution", sa.String, nullable=False),
        sa.Column("campaign_id", sa.String, nullable=False),
        sa.Column("dag_run_id", sa.String),
        sa.Column("opened_at", AWARE, nullable=False),
        sa.Column("closed_at", AWARE),
        sa.Column("closed_by_campaign_id", sa.String),
    )
    op.create_index("warnings_by_end", "warnings", ["closed_at"])
    is_open = sa.text("closed_at IS NULL")
    op.create_index(
        "warnings_open",
        "warnings",
        ["dag_id", "node", "category"],
        unique=True,
        sqlite_where=is_open,
        postgresql_where=is_open,
    )
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


def downgrade() -> None:
    for table in ("notices", "warnings"):
        op.drop_table(table)
