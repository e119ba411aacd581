"""Cost of a work this month against last month, its change split exactly into price and throughput.

Cost of 1K samples = price x u, where u = GPUs x 1000 / (samples/s x 3600) is GPU-hours for 1K samples. With both
months' means, (p1 - p0) x (u0 + u1) / 2 + (u1 - u0) x (p0 + p1) / 2 = p1 x u1 - p0 x u0: the parts add up, and do not
depend on their order.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import TYPE_CHECKING

from bench_image.contract.frozen import Frozen
from trainbench.core.formats import MINUS, figure, percent, usd
from trainbench.prices.quote import usd_per_1m_tokens, usd_per_1000_samples

if TYPE_CHECKING:
    from pandas import DataFrame

UNCHANGED_PCT = 0.05  # a smaller change rounds to 0.0 %
COVERAGE = 0.95  # of the interval of a month's median, at least


class WorkMonth(Frozen):
    """The valid runs of one work on one kind of GPU in one month: medians, and the costs that follow from them."""

    month: str
    num_runs: int
    samples_per_s: float
    samples_per_s_interval: tuple[float, float] | None  # of the median, at least 95 %; None for fewer than 6 runs
    tokens_per_s: float | None
    usd_per_gpu_hour: float | None
    price_sources: tuple[str, ...]
    usd_per_1000_samples: float | None
    usd_per_1m_tokens: float | None
    joules_per_sample: float | None
    last_run: str  # "campaign/run", the address of an example's raw result


class CostChange(Frozen):
    """The change of the cost of 1K samples; `usd` = `by_price_usd` + `by_throughput_usd`."""

    usd: float
    pct: float
    by_price_usd: float
    by_throughput_usd: float


class WorkCost(Frozen):
    """The cost of one work in both months. `why`: the change against last month, or why it is unknown."""

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
        latest = of.iloc[-1]
        costs.append(
            WorkCost(
                work=latest.work,
                fingerprint=latest.fingerprint,
                gpu_name=latest.gpu_name,
                num_gpus=latest.num_gpus,
                this=this,
                last=last,
                change=change(this, last),
                why=why(this, last),
            )
        )
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


def why(this: WorkMonth | None, last: WorkMonth | None) -> str:
    """ "price from $0.600 to $0.900: +$0.0558; samples/s from 1.460 to 1.518 (+4.0 %): -$0.00549"."""
    if this is None:
        return "not run this month"
    if last is None:
        return "not run last month"
    rate = _rate_change(this, last)
    split = change(this, last)
    if split is None:
        months = [part.month for part in (last, this) if part.usd_per_gpu_hour is None]
        return f"no price in {' and '.join(months)}; {rate or 'samples/s unchanged'}"
    parts = []
    if not math.isclose(this.usd_per_gpu_hour or 0.0, last.usd_per_gpu_hour or 0.0):
        prices = f"from {usd(last.usd_per_gpu_hour)} to {usd(this.usd_per_gpu_hour)}"
        parts.append(f"price {prices}: {signed_usd(split.by_price_usd)}")
    if rate:
        parts.append(f"{rate}: {signed_usd(split.by_throughput_usd)}")
    return "; ".join(parts) or "unchanged"


def signed_usd(value: float) -> str:
    sign = MINUS if value < 0 else "+" if value > 0 else ""
    return f"{sign}{usd(abs(value))}"


def _rate_change(this: WorkMonth, last: WorkMonth) -> str:
    pct = 100 * (this.samples_per_s / last.samples_per_s - 1)
    if abs(pct) < UNCHANGED_PCT:
        return ""
    within = ", the months' 95 % intervals overlap" if _overlap(this, last) else ""
    return f"samples/s from {figure(last.samples_per_s)} to {figure(this.samples_per_s)} ({percent(pct)}{within})"


def _overlap(this: WorkMonth, last: WorkMonth) -> bool:
    """Whether the intervals overlap; False where a month has too few runs for one."""
    if not (this.samples_per_s_interval and last.samples_per_s_interval):
        return False
    (low, high), (its_low, its_high) = this.samples_per_s_interval, last.samples_per_s_interval
    return low <= its_high and its_low <= high


def _work_month(month: str, runs: DataFrame) -> WorkMonth | None:
    """The medians and costs of a month's `runs` of one work on one kind of GPU."""
    if runs.empty:
        return None
    medians = runs[["samples_per_s", "tokens_per_s", "usd_per_gpu_hour", "energy_per_sample_j"]].median()
    rate, tokens, price, joules = (None if value != value else float(value) for value in medians)  # NaN: unknown
    assert rate is not None  # the runs are measured
    latest = runs.iloc[-1]
    return WorkMonth(
        month=month,
        num_runs=len(runs),
        samples_per_s=rate,
        samples_per_s_interval=median_interval(runs.samples_per_s),
        tokens_per_s=tokens,
        usd_per_gpu_hour=price,
        price_sources=tuple(sorted(runs.price_source.dropna().unique())),
        usd_per_1000_samples=usd_per_1000_samples(price, latest.num_gpus, rate) if price else None,
        usd_per_1m_tokens=usd_per_1m_tokens(price, latest.num_gpus, tokens) if price and tokens else None,
        joules_per_sample=joules,
        last_run=f"{latest.campaign_id}/{latest.run_id}",
    )


def median_interval(values: Iterable[float]) -> tuple[float, float] | None:
    """The interval from the k-th smallest to the k-th largest value, which holds the true median with at least 95 %
    probability for any distribution. None for fewer than 6 values: even their full range reaches 93.75 % only.

    The median lies below the k-th smallest of n independent values when fewer than k of them lie below it, and each
    does with a chance of 1/2: coverage = 1 - 2 P(Binomial(n, 1/2) < k), k the largest that keeps it at 95 % or above
    (David and Nagaraja, Order Statistics, 2003, section 7.1).
    """
    import numpy as np
    from scipy.special import bdtr  # P(Binomial(n, p) <= k), of (k, n, p)

    ordered = sorted(values)
    n = len(ordered)
    k = int(np.count_nonzero(2 * bdtr(np.arange((n + 1) // 2), n, 0.5) <= 1 - COVERAGE))
    return (ordered[k - 1], ordered[n - k]) if k else None
