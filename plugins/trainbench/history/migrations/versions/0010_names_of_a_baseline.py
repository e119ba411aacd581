"""The other names that a node's GPUs have had when its baseline was accepted: their past is put aside as well."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0010"
down_revision = "0009"


def upgrade() -> None:
    op.add_column("baselines", sa.Column("other_names", sa.String, nullable=False, server_default="[]"))


def downgrade() -> None:
    op.drop_column("baselines", "other_names")
