"""Rows of the cost report's table of runs: name only what your test is about."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

A10 = "NVIDIA A10"
NOVEMBER = datetime(2026, 11, 5, 2, 0, tzinfo=UTC)
OCTOBER = datetime(2026, 10, 5, 2, 0, tzinfo=UTC)


def paid_run(
    samples_per_s: float | None = 1.46, usd_per_gpu_hour: float | None = 0.60, **fields: Any
) -> dict[str, Any]:
    """Six minutes on one A10: 0.1 GPU-hours, $0.06."""
    gpus = fields.get("num_gpus", 1)
    hours = fields.get("gpu_hours", 0.1 * (gpus or 1))
    values: dict[str, Any] = {
        "campaign_id": "night-1",
        "run_id": "run-1",
        "suite": "node_consistency",
        "nodes": ("node-1",),
        "work": "mistral-7b qlora, batch 8 x 512 tokens, single on 1 GPU, as_users_run",
        "fingerprint": "29378ecb1986",
        "gpu_name": A10,
        "num_gpus": gpus,
        "is_measured": samples_per_s is not None,
        "started_at": NOVEMBER,
        "samples_per_s": samples_per_s,
        "tokens_per_s": samples_per_s and samples_per_s * 512,
        "gpu_hours": hours,
        "run_usd": hours * usd_per_gpu_hour if hours is not None and usd_per_gpu_hour is not None else None,
        "usd_per_gpu_hour": usd_per_gpu_hour,
        "price_source": "OCI price page" if usd_per_gpu_hour else None,
        "energy_j": 27_000.0,
    }
    return values | fields
