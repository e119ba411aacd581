"""Cost of the measured work at other prices of the same GPU. GPUs without a measurement are left out."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date
from typing import TYPE_CHECKING

from bench_image.contract.frozen import Frozen
from trainbench.cost.cost_trend import WorkCost
from trainbench.params.cost_params import PriceBasis, SpendParams
from trainbench.prices.price_tables import Price
from trainbench.prices.quote import Basis, Pricing, quotes, usd_per_1m_tokens, usd_per_1000_samples

if TYPE_CHECKING:
    from pandas import DataFrame


class OtherPrice(Frozen):
    """Another price of a kind of GPU, with the cost of the month's GPU-hours at it. The paid price is their mean."""

    gpu_name: str | None
    label: str
    basis: PriceBasis | None  # None: given by hand
    as_of: str | None
    usd_per_gpu_hour: float
    against_paid_pct: float | None
    month_usd: float | None


class WhatIf(Frozen):
    """One work at one other price."""

    work: str
    fingerprint: str
    gpu_name: str | None
    label: str
    usd_per_gpu_hour: float
    usd_per_1000_samples: float
    usd_per_1m_tokens: float | None


def other_prices(
    works: Sequence[WorkCost], runs: DataFrame, table: Sequence[Price], params: SpendParams, today: date
) -> tuple[OtherPrice, ...]:
    """Other prices for each kind of GPU with a valid run this month, cheapest first. `runs`: this month's."""
    prices = []
    for gpu in dict.fromkeys(work.gpu_name for work in works if work.this):
        of_gpu = runs[runs.gpu_name.isna() if gpu is None else runs.gpu_name == gpu]
        hours, paid = float(of_gpu.gpu_hours.sum()), _paid(of_gpu)
        tried = [
            OtherPrice(
                gpu_name=gpu,
                label=label,
                basis=basis,
                as_of=as_of,
                usd_per_gpu_hour=usd,
                against_paid_pct=100 * (usd / paid - 1) if paid else None,
                month_usd=usd * hours if hours else None,
            )
            for label, basis, as_of, usd in _candidates(gpu, table, params, today)
        ]
        prices += sorted(tried, key=lambda price: (price.usd_per_gpu_hour, price.label))
    return tuple(prices)


def what_if(works: Sequence[WorkCost], prices: Sequence[OtherPrice]) -> tuple[WhatIf, ...]:
    """The cost of each of this month's works at each price of its kind of GPU."""
    return tuple(
        WhatIf(
            work=work.work,
            fingerprint=work.fingerprint,
            gpu_name=work.gpu_name,
            label=price.label,
            usd_per_gpu_hour=price.usd_per_gpu_hour,
            usd_per_1000_samples=usd_per_1000_samples(price.usd_per_gpu_hour, work.num_gpus, work.this.samples_per_s),
            usd_per_1m_tokens=usd_per_1m_tokens(price.usd_per_gpu_hour, work.num_gpus, work.this.tokens_per_s)
            if work.this.tokens_per_s
            else None,
        )
        for work in works
        if work.this
        for price in prices
        if price.gpu_name == work.gpu_name
    )


Candidate = tuple[str, PriceBasis | None, str | None, float]  # label, basis, as of, USD per GPU-hour


def _candidates(gpu_name: str | None, table: Sequence[Price], params: SpendParams, today: date) -> list[Candidate]:
    candidates: list[Candidate] = []
    if params.usd_per_gpu_hour is not None:
        candidates.append(("your own price", None, None, params.usd_per_gpu_hour))
    if params.price_basis is PriceBasis.OWNED:
        owned = params.owned_usd_per_gpu_hour
        return [*candidates, ("owned", PriceBasis.OWNED, None, owned)] if owned else candidates
    pricing = Pricing(basis=Basis(params.price_basis), useful_share=params.spot_useful_share)
    wanted = (params.provider or "").lower()
    candidates += [
        (quote.offer, params.price_basis, quote.as_of.isoformat() if quote.as_of else None, quote.usd_per_gpu_hour)
        for quote in quotes(gpu_name, table, pricing, today)
        if wanted in quote.provider.lower()
    ]
    return candidates


def _paid(runs: DataFrame) -> float | None:
    """Mean USD per GPU-hour of the runs with a known cost, weighted by GPU-hours."""
    priced = runs[(runs.run_usd > 0) & (runs.gpu_hours > 0)]
    return float(priced.run_usd.sum() / priced.gpu_hours.sum()) if len(priced) else None
