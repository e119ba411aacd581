"""Which breaches ended because their node was taken out of the cluster, and not because it was well again."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision = "0006"


def upgrade() -> None:
    """Null in rows of before: until then no breach ended so."""
    op.add_column("breaches", sa.Column("was_removed", sa.Boolean))


def downgrade() -> None:
    op.drop_column("breaches", "was_removed")
