"""Levels that somebody accepted as the new normal: whose, since when, by whom, why, and until when it held."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0009"
down_revision = "0008"

AWARE = sa.DateTime(timezone=True)


def upgrade() -> None:
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
    )


def downgrade() -> None:
    op.drop_table("baselines")
