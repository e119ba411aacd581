"""The runs of some months as one table: their cost, the change of each work, and what it would cost elsewhere.

Cost of 1K samples = price x u, where u = GPUs x 1000 / (samples/s x 3600) is GPU-hours for 1K samples. With both
means of two months, (p1 - p0) x (u0 + u1) / 2 + (u1 - u0) x (p0 + p1) / 2 = p1 x u1 - p0 x u0: the parts add up, and do
not depend on their order.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import date, datetime
from typing import TYPE_CHECKING, Any

from sqlalchemy import Connection, select

from bench_image.contract.frozen import Frozen
from bench_image.contract.result import Status
from trainbench.core.formats import MINUS, NA, count, usd
from trainbench.history.database import transaction
from trainbench.history.history import History
from trainbench.history.spending import IMPORTED, MONTH, Spend, spend, unpriced
from trainbench.history.tables import OURS, runs, works
from trainbench.params.cost_params import SpendParams, start_of
from trainbench.prices.price_tables import Price
from trainbench.prices.quote import Basis, Quote, quotes, usd_per_1m_tokens, usd_per_1000_samples, where_known

if TYPE_CHECKING:
    from pandas import DataFrame


NAMES = (
    "campaign_id", "run_id", "work", "fingerprint", "gpu_name", "num_gpus", "is_measured", "month", "price_source",
)  # fmt: skip
AMOUNTS = ["samples_per_s", "tokens_per_s", "gpu_hours", "run_usd", "usd_per_gpu_hour", "energy_j"]
RECORDED = (
    "campaign_id", "run_id", "model", "recipe", "strategy", "preset", "fingerprint", "gpu_name", "status", "is_drill",
    "gpu_hours", "run_usd", "micro_batch_size", "seq_length", "usd_per_gpu_hour", "price_source", "energy_j",
)  # fmt: skip


def paid_runs(history: History, since: datetime, until: datetime) -> DataFrame:
    """Runs of campaigns that ended in [since, until), oldest first, with drills and failed runs, which cost money too.

    A night belongs to the month of its end, on the Costs page too. Raises HistoryError.
    """
    query = (
        select(
            *(runs.c[name] for name in RECORDED),
            runs.c.world_size.label("num_gpus"),
            runs.c.samples_per_second.label("samples_per_s"),
            runs.c.tokens_per_second.label("tokens_per_s"),
            MONTH.label("month"),
        )
        .select_from(runs.join(works, works.c.id == runs.c.work_id))
        .where(OURS, (works.c.at >= since) & (works.c.at < until))
        .order_by(works.c.at, runs.c.started_at, runs.c.campaign_id, runs.c.run_id)
    )
    with transaction(history.engine) as connection:
        rows = [dict(row) for row in connection.execute(query).mappings()]
    for row in rows:
        is_own = row["seq_length"] is None  # a command of the user's own
        samples = row["micro_batch_size"]
        size = f"{count(samples or 0, 'sample')} a step" if is_own else f"batch {samples} x {row['seq_length']} tokens"
        batch = f", {size}" if samples else ""
        gpus = count(row["num_gpus"], "GPU" if row["gpu_name"] else "process")
        ours = f"{row['model']} {row['recipe']}{batch}, {row['strategy']} on {gpus}, {row['preset']}"
        row["work"] = f"{row['model']}{batch}, on {gpus}" if is_own else ours
        row["is_measured"] = row["status"] == Status.OK.value and not row["is_drill"]
    return run_table(rows)


def run_table(rows: Sequence[Mapping[str, Any]]) -> DataFrame:
    """One row for each run; `month`: of its campaign's end, in UTC. NaN: the amount is unknown, negative or infinite.

    `work`: "mistral-7b qlora, batch 8 x 512 tokens, single on 1 GPU, tuned"; `gpu_name`: None on a CPU or where the run
    never reported one; `is_measured`: it ended well and was no drill, so its throughput counts.
    """
    import numpy as np
    import pandas as pd

    table = pd.DataFrame(rows, columns=[*NAMES, *AMOUNTS], dtype=object)
    amounts = table[AMOUNTS].astype(float)
    table[AMOUNTS] = amounts.where((amounts >= 0) & np.isfinite(amounts))
    table["is_measured"] = table.is_measured.astype(bool) & (table.samples_per_s > 0)
    return table


class WorkMonth(Frozen):
    """The valid runs of one work on one kind of GPU in one month: medians, and the costs that follow from them."""

    month: str
    num_runs: int
    samples_per_s: float
    tokens_per_s: float | None
    usd_per_gpu_hour: float | None
    price_sources: tuple[str, ...]
    usd_per_1000_samples: float | None
    usd_per_1m_tokens: float | None
    last_run: str  # "campaign/run", the address of an example's raw result


class CostChange(Frozen):
    """The change of the cost of 1K samples; `usd` = `by_price_usd` + `by_throughput_usd`."""

    usd: float
    pct: float
    by_price_usd: float
    by_throughput_usd: float


class WorkCost(Frozen):
    """The cost of one work in both months. `why`: why the change is unknown, else empty."""

    work: str
    fingerprint: str
    gpu_name: str | None
    num_gpus: int
    this: WorkMonth | None
    last: WorkMonth | None
    change: CostChange | None
    why: str


def work_costs(runs: DataFrame, month: str, before: str) -> tuple[WorkCost, ...]:
    """The costs of each work on each kind of GPU that ran in either month, by name, without drills and failed runs."""
    valid = runs[runs.is_measured & runs.month.isin((month, before))]
    costs = []
    for _, of in valid.groupby(["fingerprint", "gpu_name"], dropna=False):
        this, last = (_work_month(name, of[of.month == name]) for name in (month, before))
        about = of.iloc[-1][["work", "fingerprint", "gpu_name", "num_gpus"]].to_dict()
        costs.append(WorkCost(**about, this=this, last=last, change=change(this, last), why=why_unknown(this, last)))
    return tuple(sorted(costs, key=lambda cost: (cost.work, cost.gpu_name or "", cost.fingerprint)))


def change(this: WorkMonth | None, last: WorkMonth | None) -> CostChange | None:
    """The change between both months; None unless both have a price and a throughput."""
    if not (this and last and this.usd_per_1000_samples and last.usd_per_1000_samples):
        return None
    new_price, old_price = this.usd_per_gpu_hour or 0.0, last.usd_per_gpu_hour or 0.0
    new_use, old_use = this.usd_per_1000_samples / new_price, last.usd_per_1000_samples / old_price
    apart = this.usd_per_1000_samples - last.usd_per_1000_samples
    return CostChange(
        usd=apart,
        pct=100 * apart / last.usd_per_1000_samples,
        by_price_usd=(new_price - old_price) * (old_use + new_use) / 2,
        by_throughput_usd=(new_use - old_use) * (old_price + new_price) / 2,
    )


def why_unknown(this: WorkMonth | None, last: WorkMonth | None) -> str:
    """Why there is no change between both months; empty where there is one."""
    if this is None or last is None:
        return f"not run {'this' if this is None else 'last'} month"
    months = [part.month for part in (last, this) if part.usd_per_gpu_hour is None]
    return f"no price in {' and '.join(months)}" if months else ""


def signed_usd(value: float | None) -> str:
    if value is None:
        return NA
    sign = MINUS if value < 0 else "+" if value > 0 else ""
    return f"{sign}{usd(abs(value))}"


def _work_month(month: str, runs: DataFrame) -> WorkMonth | None:
    """The medians and costs of a month's `runs` of one work on one kind of GPU."""
    if runs.empty:
        return None
    known = ["samples_per_s", "tokens_per_s", "usd_per_gpu_hour"]
    rate, tokens, price = (None if value != value else float(value) for value in runs[known].median())
    assert rate is not None  # the runs are measured
    latest = runs.iloc[-1]
    return WorkMonth(
        month=month,
        num_runs=len(runs),
        samples_per_s=rate,
        tokens_per_s=tokens,
        usd_per_gpu_hour=price,
        price_sources=tuple(sorted(runs.price_source.dropna().unique())),
        usd_per_1000_samples=where_known(usd_per_1000_samples, price or None, latest.num_gpus, rate),
        usd_per_1m_tokens=where_known(usd_per_1m_tokens, price or None, latest.num_gpus, tokens),
        last_run=f"{latest.campaign_id}/{latest.run_id}",
    )


class MonthSpend(Frozen):
    """`unknown`: why the cost of some runs is not known, as "3 runs on NVIDIA B300, which has no price"."""

    month: str
    total: Spend
    by_dag: tuple[Spend, ...]
    unknown: tuple[str, ...] = ()


def by_month(history: History, months: Sequence[str]) -> tuple[MonthSpend, ...]:
    """The cost of each of `months`, empty ones included. Raises HistoryError."""
    with transaction(history.engine) as connection:
        return tuple(_month(connection, month) for month in months)


def _month(connection: Connection, month: str) -> MonthSpend:
    ours = ~IMPORTED & (works.c.at >= start_of(month)) & (works.c.at < start_of(month, after=1))
    return MonthSpend(
        month=month,
        total=spend(connection, ours)[0],
        by_dag=spend(connection, ours, works.c.suite),
        unknown=tuple(of.text for of in unpriced(connection, ours)),
    )


class OtherPrice(Quote):
    """The quote of a month's GPU-hours on one kind of GPU: `usd` is their cost at this price, the paid price the mean
    of what the runs paid. The cost of each of its works changes by the same share.
    """

    gpu_name: str | None
    against_paid_pct: float | None

    @property
    def label(self) -> str:
        return {Basis.GIVEN: "your own price", Basis.OWNED: "owned"}.get(self.basis, self.offer)


def other_prices(
    works: Sequence[WorkCost], runs: DataFrame, table: Sequence[Price], params: SpendParams, today: date
) -> tuple[OtherPrice, ...]:
    """Other prices for each kind of GPU with a valid run this month, cheapest first. `runs`: this month's."""
    made: list[OtherPrice] = []
    for gpu in dict.fromkeys(work.gpu_name for work in works if work.this):
        of_gpu = runs[runs.gpu_name.isna() if gpu is None else runs.gpu_name == gpu]
        hours, priced = float(of_gpu.gpu_hours.sum()), of_gpu[(of_gpu.run_usd > 0) & (of_gpu.gpu_hours > 0)]
        paid = float(priced.run_usd.sum() / priced.gpu_hours.sum()) if len(priced) else None
        tried = []
        for quote in (each for pricing in params.pricings for each in quotes(gpu, table, pricing, today)):
            usd = quote.usd_per_gpu_hour
            costs = {
                "usd": usd * hours if hours else None,
                "against_paid_pct": 100 * (usd / paid - 1) if paid else None,
            }
            tried.append(OtherPrice(**dict(quote) | costs, gpu_name=gpu))
        made += sorted(tried, key=lambda price: (price.usd_per_gpu_hour, price.label))
    return tuple(made)
