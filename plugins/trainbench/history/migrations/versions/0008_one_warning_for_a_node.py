"""Warnings of one node and kind each, with the rates that they are over at."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0008"
down_revision = "0007"

AWARE = sa.DateTime(timezone=True)
TEXTS = ("dag_id", "node", "kind", "category", "subject", "summary", "resolution", "changes", "campaign_id")
TEXTS_BEFORE = ("dag_id", "node", "category", "summary", "resolution", "campaign_id")


def upgrade() -> None:
    """The next campaign opens anew what lasts: the old rows do not hold what would end them."""
    op.drop_table("warnings")
    _create(TEXTS, "kind", sa.Column("ended", sa.String))


def downgrade() -> None:
    op.drop_table("warnings")
    _create(TEXTS_BEFORE, "category")


def _create(texts: tuple[str, ...], kind: str, *more: sa.Column[str]) -> None:
    op.create_table(
        "warnings",
        sa.Column("id", sa.Integer, primary_key=True),
        *(sa.Column(name, sa.String, nullable=False) for name in texts),
        sa.Column("dag_run_id", sa.String),
        sa.Column("opened_at", AWARE, nullable=False),
        sa.Column("closed_at", AWARE),
        sa.Column("closed_by_campaign_id", sa.String),
        *more,
    )
    op.create_index("warnings_by_end", "warnings", ["closed_at"])
    is_open = sa.text("closed_at IS NULL")
    op.create_index(
        "warnings_open",
        "warnings",
        ["dag_id", "node", kind],
        unique=True,
        sqlite_where=is_open,
        postgresql_where=is_open,
    )
