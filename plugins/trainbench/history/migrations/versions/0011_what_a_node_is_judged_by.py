"""The rate that a node is judged by, beside that of the whole run: of independent GPUs the slowest one's."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0011"
down_revision = "0010"


def upgrade() -> None:
    """What is there was judged by. Of independent GPUs the rate of all together comes with `trainbench reindex`."""
    op.add_column("runs", sa.Column("judged_samples_per_second", sa.Float))
    op.execute("UPDATE runs SET judged_samples_per_second = samples_per_second")


def downgrade() -> None:
    """The older schema keeps what a node is judged by."""
    op.execute("UPDATE runs SET samples_per_second = judged_samples_per_second")
    op.drop_column("runs", "judged_samples_per_second")
