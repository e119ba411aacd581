"""Content of a cost report, from the table of paid runs: figures, findings and summary sentences."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING

from pydantic import AwareDatetime

from bench_image.contract.frozen import Frozen
from trainbench.core.formats import count, figure, listing, percent, usd
from trainbench.core.verdicts import Finding
from trainbench.cost.cost_trend import WorkCost, signed_usd, work_costs
from trainbench.cost.monthly_cost import MonthSpend, Spend, by_month, by_node
from trainbench.cost.other_prices import OtherPrice, WhatIf, other_prices, what_if
from trainbench.params.cost_params import PriceBasis, SpendParams, months_until
from trainbench.prices.price_tables import Price
from trainbench.prices.quote import JOULES_PER_KWH, energy_usd

if TYPE_CHECKING:
    from pandas import DataFrame

MAX_MOVERS = 3
MOVED_PCT = 0.5  # percent of the cost of 1K samples; smaller changes get no sentence


class Energy(Frozen):
    """Energy of the measured windows, from GPUs with a counter; `usd` None: no tariff."""

    kwh: float
    usd: float | None
    num_runs: int
    num_unknown: int


class SpendReport(Frozen):
    report_id: str
    made_at: AwareDatetime
    month: str
    before: str
    is_over: bool  # the month
    params: SpendParams
    spend: tuple[MonthSpend, ...]  # oldest first; the last one is `month`
    nodes: tuple[Spend, ...]  # of `month`
    works: tuple[WorkCost, ...]
    prices: tuple[OtherPrice, ...]
    what_if: tuple[WhatIf, ...]
    energy: Energy | None
    findings: tuple[Finding, ...]
    summary: tuple[str, ...]


def make_report(
    runs: DataFrame,
    params: SpendParams,
    month: str,
    *,
    report_id: str,
    made_at: datetime,
    table: Sequence[Price],
    findings: Sequence[Finding] = (),
) -> SpendReport:
    """`runs`: the table of all the months that the report covers, see `paid_runs`."""
    months = months_until(month, params.months)
    of_month = runs[runs.month == month]
    works = work_costs(runs, month, months[-2])
    prices = other_prices(works, of_month, table, params, made_at.date())
    draft = SpendReport(
        report_id=report_id,
        made_at=made_at,
        month=month,
        before=months[-2],
        is_over=f"{made_at:%Y-%m}" > month,
        params=params,
        spend=by_month(runs, months),
        nodes=by_node(of_month),
        works=works,
        prices=prices,
        what_if=what_if(works, prices),
        energy=_energy(of_month, params),
        findings=tuple(findings),
        summary=(),
    )
    return draft.model_copy(update={"summary": tuple(_summary(draft))})


def _energy(runs: DataFrame, params: SpendParams) -> Energy | None:
    joules = runs.energy_j.dropna()
    if joules.empty:
        return None
    total = float(joules.sum())
    return Energy(
        kwh=total / JOULES_PER_KWH,
        usd=energy_usd(total, params.usd_per_kwh, params.pue) if params.usd_per_kwh else None,
        num_runs=len(joules),
        num_unknown=len(runs) - len(joules),
    )


def _summary(report: SpendReport) -> list[str]:
    this, last = report.spend[-1].total, report.spend[-2].total
    if not any(of.total.num_runs for of in report.spend):
        first = report.spend[0].month
        return [
            f"No run was recorded from {first} to {report.month}: there is nothing to report yet. A run is recorded "
            "when its benchmark publishes; trainbench reindex records the campaigns of the store."
        ]
    sentences = [_spent(report, this, last)]
    if this.unknown:
        sentences.append(f"Not included: {listing(this.unknown)}.")
    sentences += _moves(report)
    sentences += _tried(report)
    if report.energy:
        sentences.append(_energy_sentence(report, report.energy))
    return sentences


def _spent(report: SpendReport, this: Spend, last: Spend) -> str:
    so_far = "" if report.is_over else " so far"
    runs = count(this.num_runs, "run")
    if not this.num_runs:
        return f"No run was recorded in {report.month}{so_far}."
    hours = f", {figure(this.gpu_hours, 3)} GPU-hours" if this.gpu_hours is not None else ""
    if this.usd is None:
        return f"The cost of benchmarking in {report.month}{so_far} is unknown: no run has a price ({runs}{hours})."
    against = ""
    if last.usd:
        against = f"; in {report.before} it was {usd(last.usd)} ({count(last.num_runs, 'run')})"
    return f"Benchmarking cost {usd(this.usd)} in {report.month}{so_far}: {runs}{hours}{against}."


def _moves(report: SpendReport) -> list[str]:
    """Sentences on works whose cost of 1K samples changed, the largest change first, with reasons."""
    moved = [(work.change.pct, work) for work in report.works if work.change and abs(work.change.pct) >= MOVED_PCT]
    compared = sum(work.change is not None for work in report.works)
    if not compared:
        return [f"No work has a price in both {report.before} and {report.month}: no trend yet."]
    if not moved:
        return [f"{count(compared, 'work')} cost the same per sample as in {report.before}, within {MOVED_PCT:g} %."]
    moved.sort(key=lambda pair: -abs(pair[0]))
    sentences = [f"{len(moved)} of {count(compared, 'work')} changed in cost per sample since {report.before}."]
    sentences += [f"{named(work)}: {percent(pct)} – {work.why}." for pct, work in moved[:MAX_MOVERS]]
    return sentences


def _tried(report: SpendReport) -> list[str]:
    """Sentences on the month's cost at the given or owned price and at the table's cheapest, and on GPUs without such a
    price.
    """
    sentences = []
    priced, params = {price.gpu_name for price in report.prices if price.basis}, report.params
    gpus = dict.fromkeys(work.gpu_name for work in report.works if work.this and work.gpu_name)
    if unpriced := [gpu for gpu in gpus if gpu not in priced]:
        of = f" of {params.provider}" if params.provider else ""
        sentences.append(f"The price table has no {params.price_basis} price{of} for {listing(unpriced)}.")
    for gpu in dict.fromkeys(price.gpu_name for price in report.prices):
        of_gpu = [price for price in report.prices if price.gpu_name == gpu and price.month_usd is not None]
        own = [price for price in of_gpu if price.basis in (None, PriceBasis.OWNED)]
        table = [price for price in of_gpu if price.basis in (PriceBasis.ON_DEMAND, PriceBasis.SPOT)]
        for price in [*own, *table[:1]]:
            cheapest = f" (the cheapest {price.basis} price of the table)" if price in table else ""
            sentences.append(
                f"{gpu or 'CPU'} at {usd(price.usd_per_gpu_hour)} per GPU-hour, {price.label}{cheapest}: the month's "
                f"GPU-hours would have cost {usd(price.month_usd)}."
            )
    return sentences


def _energy_sentence(report: SpendReport, energy: Energy) -> str:
    missing = f"; {count(energy.num_unknown, 'run')} did not report it" if energy.num_unknown else ""
    cost = f", {usd(energy.usd)} of electricity" if energy.usd is not None else ""
    return (
        f"The GPUs took {figure(energy.kwh, 3)} kWh within the measured windows{cost} "
        f"({count(energy.num_runs, 'run')}{missing})."
    )


def named(work: WorkCost) -> str:
    return f"{work.work}, {work.gpu_name or 'CPU'}"


def change_texts(work: WorkCost) -> tuple[str, str, str]:
    """Change in percent, its part by price, its part by throughput."""
    if work.change is None:
        return "n/a", "n/a", "n/a"
    return percent(work.change.pct), signed_usd(work.change.by_price_usd), signed_usd(work.change.by_throughput_usd)
