"""What the history says of money: one row for each run that began within a span of time."""

from __future__ import annotations

import math
from datetime import datetime
from typing import Any

from sqlalchemy import select
from sqlalchemy.exc import SQLAlchemyError

from bench_image.contract.result import Status
from trainbench.core.formats import count
from trainbench.cost.monthly_cost import PaidRun
from trainbench.history.database import HistoryError
from trainbench.history.history import History
from trainbench.history.run_tables import runs

COLUMNS = (
    "campaign_id", "run_id", "suite", "node", "peers", "model", "recipe", "strategy", "preset", "fingerprint",
    "gpu_name", "status", "is_drill", "started_at", "samples_per_second", "tokens_per_second", "gpu_hours", "run_usd",
    "world_size", "micro_batch_size", "seq_length", "usd_per_gpu_hour", "price_source", "energy_j",
    "energy_per_sample_j",
)  # fmt: skip


def paid_runs(history: History, since: datetime, until: datetime) -> tuple[PaidRun, ...]:
    """Those that began in [since, until), oldest first. Raises HistoryError."""
    query = (
        select(*(runs.c[name] for name in COLUMNS))
        .where((runs.c.started_at >= since) & (runs.c.started_at < until))
        .order_by(runs.c.started_at, runs.c.campaign_id, runs.c.run_id)
    )
    try:
        with history.engine.begin() as connection:
            return tuple(_paid_run(row) for row in connection.execute(query))
    except SQLAlchemyError as error:
        raise HistoryError.of(history.engine.url, error) from None


def _paid_run(row: Any) -> PaidRun:
    hours, usd = _number(row.gpu_hours), _number(row.run_usd)
    return PaidRun(
        campaign_id=row.campaign_id,
        run_id=row.run_id,
        suite=row.suite,
        nodes=(row.node, *filter(None, row.peers.split(","))),
        work=_work(row),
        fingerprint=row.fingerprint,
        gpu_name=row.gpu_name,
        num_gpus=row.world_size,
        is_measured=row.status == Status.OK.value and not row.is_drill and bool(_number(row.samples_per_second)),
        started_at=row.started_at,
        samples_per_s=_number(row.samples_per_second),
        tokens_per_s=_number(row.tokens_per_second),
        gpu_hours=hours,
        run_usd=usd,
        usd_per_gpu_hour=_number(row.usd_per_gpu_hour),
        price_source=row.price_source,
        energy_j=_number(row.energy_j),
        energy_per_sample_j=_number(row.energy_per_sample_j),
    )


def _work(row: Any) -> str:
    batch = f", batch {row.micro_batch_size} x {row.seq_length} tokens" if row.micro_batch_size else ""
    gpus = f" on {count(row.world_size, 'GPU')}"
    return f"{row.model} {row.recipe}{batch}, {row.strategy}{gpus}, {row.preset}"


def _number(value: float | None) -> float | None:
    """What is neither finite nor at least 0 is no amount of anything: taken as unknown."""
    return value if value is not None and math.isfinite(value) and value >= 0 else None
