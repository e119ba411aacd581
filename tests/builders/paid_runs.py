"""Rows of the cost report's table of runs, and their sums by month: name only what your test is about."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from trainbench.cost.monthly_cost import MonthSpend
from trainbench.history.spending import Spend, Unpriced

A10 = "NVIDIA A10"
NOVEMBER, OCTOBER = "2026-11", "2026-10"


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
        "work": "mistral-7b qlora, batch 8 x 512 tokens, single on 1 GPU, as_users_run",
        "fingerprint": "29378ecb1986",
        "gpu_name": A10,
        "num_gpus": gpus,
        "is_measured": samples_per_s is not None,
        "month": NOVEMBER,
        "samples_per_s": samples_per_s,
        "tokens_per_s": samples_per_s and samples_per_s * 512,
        "gpu_hours": hours,
        "run_usd": hours * usd_per_gpu_hour if hours is not None and usd_per_gpu_hour is not None else None,
        "usd_per_gpu_hour": usd_per_gpu_hour,
        "price_source": "OCI price page" if usd_per_gpu_hour else None,
        "energy_j": 27_000.0,
    }
    return values | fields


def spent(runs: Sequence[Mapping[str, Any]], months: Sequence[str]) -> list[MonthSpend]:
    """What the history says of these runs in these months."""
    made = []
    for month in months:
        of = [run for run in runs if run["month"] == month]
        dags = [_sum(dag, [run for run in of if run["suite"] == dag]) for dag in {run["suite"]: None for run in of}]
        unknown = Counter(run["gpu_name"] for run in of if run["run_usd"] is None)
        texts = (Unpriced(is_failed=False, gpu_name=gpu, num_runs=n).text for gpu, n in unknown.items())
        by_dag = tuple(sorted(dags, key=lambda dag: -(dag.usd or 0.0)))
        made.append(MonthSpend(month=month, total=_sum("", of), by_dag=by_dag, unknown=tuple(texts)))
    return made


def _sum(what: str, runs: Sequence[Mapping[str, Any]]) -> Spend:
    usd, hours = ([run[name] for run in runs if run[name] is not None] for name in ("run_usd", "gpu_hours"))
    return Spend(
        what=what,
        usd=sum(usd) if usd else None,
        gpu_hours=sum(hours) if hours else None,
        num_runs=len(runs),
        num_unknown=len(runs) - len(usd),
    )
