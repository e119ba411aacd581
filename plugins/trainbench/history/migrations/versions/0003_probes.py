"""The rates that a GPU's probes measure, of each run and of each work."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0003_probes"
down_revision = "0002_one_judgement"

RATES = (
    "h2d_gb_per_s", "d2h_gb_per_s", "memory_gb_per_s", "peer_gb_per_s", "matmul_bf16_tflops", "matmul_fp8_tflops",
)  # fmt: skip


def upgrade() -> None:
    for table in ("runs", "works"):
        for rate in RATES:
            op.add_column(table, sa.Column(rate, sa.Float))
