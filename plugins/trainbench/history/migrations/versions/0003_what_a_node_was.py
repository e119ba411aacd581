"""What a node was when it ran: kernel, VBIOS, power limit, libraries, GPUs, clock; so that a change can be dated."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"

ADDED = (
    ("kernel", sa.String),
    ("vbios", sa.String),
    ("power_limit_w", sa.Float),
    ("sm_clock_mhz", sa.Float),
    ("gpu_uuids", sa.String),
    ("libraries", sa.String),
)


def upgrade() -> None:
    """All stay null in rows of before: `trainbench reindex` fills them from the artefacts."""
    for name, type_ in ADDED:
        op.add_column("runs", sa.Column(name, type_))
    op.create_index("runs_by_work", "runs", ["fingerprint", "started_at"])


def downgrade() -> None:
    op.drop_index("runs_by_work", "runs")
    for name, _ in ADDED:
        op.drop_column("runs", name)
