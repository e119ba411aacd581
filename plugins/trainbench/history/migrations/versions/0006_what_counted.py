"""The limits that a campaign judged its nodes with, so that a chart can show which deviation counted that night."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"

ADDED = ("samples_per_second_limit_pct", "memory_limit_pct", "temperature_limit_c")


def upgrade() -> None:
    """All stay null in rows of before: `trainbench reindex` fills them from the artefacts."""
    for name in ADDED:
        op.add_column("campaigns", sa.Column(name, sa.Float))


def downgrade() -> None:
    for name in ADDED:
        op.drop_column("campaigns", name)
