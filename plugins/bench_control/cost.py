"""What a run costs: prices in, US dollars out. Unknown prices give None, never 0."""

from __future__ import annotations

from bench_image.contract import Frozen


class RunCost(Frozen):
    """Cost of one run at one price; every GPU of the gang is paid for."""

    run_id: str
    usd_per_gpu_hour: float | None
    price_source: str | None
    price_as_of: str | None
    gpu_hours: float | None  # process start to result, all GPUs
    run_usd: float | None
    usd_per_1000_samples: float | None
    usd_per_1m_tokens: float | None
    reason: str | None  # why the figures are missing
