"""The paid runs of a span of time, from the history, as one table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

from sqlalchemy import select

from bench_image.contract.result import Status
from trainbench.history.database import transaction
from trainbench.history.history import History
from trainbench.history.run_tables import OURS, runs

if TYPE_CHECKING:
    from pandas import DataFrame

NAMES = (
    "campaign_id", "run_id", "suite", "nodes", "work", "fingerprint", "gpu_name", "num_gpus", "is_measured",
    "started_at", "price_source",
)  # fmt: skip
AMOUNTS = [
    "samples_per_s", "tokens_per_s", "gpu_hours", "run_usd", "usd_per_gpu_hour", "energy_j", "energy_per_sample_j"
]  # fmt: skip
RECORDED = (
    "campaign_id", "run_id", "suite", "node", "peers", "model", "recipe", "strategy", "preset", "fingerprint",
    "gpu_name", "status", "is_drill", "started_at", "gpu_hours", "run_usd", "micro_batch_size", "seq_length",
    "usd_per_gpu_hour", "price_source", "energy_j", "energy_per_sample_j",
)  # fmt: skip


def paid_runs(history: History, since: datetime, until: datetime) -> DataFrame:
    """Runs that began in [since, until), oldest first, with drills and failed runs, which cost money too.

    Raises HistoryError.
    """
    query = (
        select(
            *(runs.c[name] for name in RECORDED),
            runs.c.world_size.label("num_gpus"),
            runs.c.samples_per_second.label("samples_per_s"),
            runs.c.tokens_per_second.label("tokens_per_s"),
        )
        .where(OURS, (runs.c.started_at >= since) & (runs.c.started_at < until))
        .order_by(runs.c.started_at, runs.c.campaign_id, runs.c.run_id)
    )
    with transaction(history.engine) as connection:
        rows = connection.execute(query).mappings().all()
    return run_table([_named(row) for row in rows])


def run_table(rows: Sequence[Mapping[str, Any]]) -> DataFrame:
    """One row for each run, its `month` in UTC. NaN: the amount is unknown, negative or infinite.

    `nodes`: all of the gang; `work`: "mistral-7b qlora, batch 8 x 512 tokens, single on 1 GPU, tuned"; `gpu_name`: None
    on a CPU or where the run never reported one; `is_measured`: it ended well and was no drill, so its throughput
    counts.
    """
    import numpy as np
    import pandas as pd

    table = pd.DataFrame(rows, columns=[*NAMES, *AMOUNTS], dtype=object)
    amounts = table[AMOUNTS].astype(float)
    table[AMOUNTS] = amounts.where((amounts >= 0) & np.isfinite(amounts))
    table["is_measured"] = table.is_measured.astype(bool) & (table.samples_per_s > 0)
    table["month"] = [f"{started_at:%Y-%m}" for started_at in table.started_at]
    return table


def _named(row: Mapping[Any, Any]) -> dict[str, Any]:
    batch = f", batch {row['micro_batch_size']} x {row['seq_length']} tokens" if row["micro_batch_size"] else ""
    gpus = f"{row['num_gpus']} GPU{'' if row['num_gpus'] == 1 else 's'}"
    return {
        **row,
        "nodes": (row["node"], *filter(None, row["peers"].split(","))),
        "work": f"{row['model']} {row['recipe']}{batch}, {row['strategy']} on {gpus}, {row['preset']}",
        "is_measured": row["status"] == Status.OK.value and not row["is_drill"],
    }
