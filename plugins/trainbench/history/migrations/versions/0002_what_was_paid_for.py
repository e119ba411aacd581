"""What a run was paid for: its size, the price of a GPU-hour and the energy, so that costs can be told over time."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"

ADDED = (
    ("peers", sa.String),
    ("world_size", sa.Integer),
    ("micro_batch_size", sa.Integer),
    ("seq_length", sa.Integer),
    ("usd_per_gpu_hour", sa.Float),
    ("price_source", sa.String),
    ("energy_j", sa.Float),
    ("energy_per_sample_j", sa.Float),
)


def upgrade() -> None:
    """All stay null in rows of before: `trainbench reindex` fills them from the artefacts."""
    for name, type_ in ADDED:
        op.add_column("runs", sa.Column(name, type_))


def downgrade() -> None:
    for name, _ in ADDED:
        op.drop_column("runs", name)
