"""Prices and estimates as tables, for the terminal and for reports."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date
from typing import Any

from trainbench.core.formats import count, duration, figure, listing, usd
from trainbench.core.tables import Table, Tone, integer, make_table, text
from trainbench.cost.estimate import Estimate
from trainbench.figure_catalogue.run_figures import RUN_USD, USD_PER_1000_SAMPLES, USD_PER_GPU_HOUR
from trainbench.figure_catalogue.table_figures import EXAMPLE_TIME
from trainbench.prices.price_import import ImportedPrices
from trainbench.prices.price_tables import STALE_AFTER_DAYS, Price
from trainbench.prices.quote import Basis

MAX_OFFERS = 30  # of one table; --json has all


def prices_table(prices: Sequence[Price], today: date) -> Table:
    """The price table in its order: of rows that fit a GPU equally well the first counts. Notes list sources."""
    sources = {source: number for number, source in enumerate(dict.fromkeys(price.source for price in prices), 1)}
    num_stale = sum(price.is_stale(today) for price in prices)
    notes = ["USD per GPU-hour: the instance's price / its GPUs, before discounts and taxes."]
    if num_stale:
        notes.append(f"STALE: older than {STALE_AFTER_DAYS} days ({count(num_stale, 'price')}).")
    return make_table(
        prices,
        (
            text("GPU", lambda price: price.gpu),
            text("provider", lambda price: price.provider),
            text("instance", lambda price: price.instance),
            text("region", lambda price: price.region),
            integer("GPUs", lambda price: price.gpus_per_instance),
            USD_PER_GPU_HOUR.column(lambda price: price.usd_per_gpu_hour, "per GPU-h"),
            USD_PER_GPU_HOUR.column(lambda price: price.spot_usd_per_gpu_hour, "spot"),
            text("as of", lambda price: str(price.as_of or "given")),
            text("days", lambda price: str(price.age_days(today)), is_number=True),
            text("source", lambda price: f"[{sources[price.source]}]"),
            text(
                "", lambda p: " ".join(filter(None, ["yours" if p.own else "", "STALE" if p.is_stale(today) else ""]))
            ),
        ),
        tone=lambda price: Tone.WARN if price.is_stale(today) else Tone.PLAIN,
        notes=(*notes, *(f"[{number}] {source}" for source, number in sources.items())),
        title=count(len(prices), "price"),
    )


def price_row(price: Price, today: date) -> dict[str, Any]:
    """A row of the price table as JSON."""
    return price.model_dump(mode="json") | {
        "usd_per_gpu_hour": price.usd_per_gpu_hour,
        "spot_usd_per_gpu_hour": price.spot_usd_per_gpu_hour,
        "age_days": price.age_days(today),
        "stale": price.is_stale(today),
    }


def skipped_table(imported: ImportedPrices) -> Table:
    return make_table(
        imported.skipped,
        (
            integer("rows", lambda skip: skip.count),
            text("for example", lambda skip: f"line {listing(map(str, skip.rows))}"),
            text("why left out", lambda skip: skip.reason),
        ),
        title="Left out",
    )


def estimate_table(estimate: Estimate) -> Table:
    """One row for each price that fits the GPU, cheapest first."""
    more, gpus = len(estimate.offers) - MAX_OFFERS, count(estimate.num_gpus, "GPU")
    gpus += f" ({estimate.gpu})" if estimate.gpu else ""
    return make_table(
        estimate.offers[:MAX_OFFERS],
        (
            text("provider", lambda o: o.provider if o.basis is not Basis.SPOT else f"{o.provider}, spot"),
            text("instance", lambda o: o.instance if o.instances == 1 else f"{o.instances} x {o.instance}"),
            text("region", lambda offer: offer.region),
            integer("GPUs paid", lambda offer: offer.billed_gpus),
            USD_PER_GPU_HOUR.column(lambda offer: offer.usd_per_gpu_hour),
            EXAMPLE_TIME.column(lambda offer: None if offer.hours is None else offer.hours * 3600),
            RUN_USD.column(lambda offer: offer.usd),
            USD_PER_1000_SAMPLES.column(lambda offer: offer.usd_per_1000_samples),
            text("as of", lambda o: "given" if o.as_of is None else f"{o.as_of}{' STALE' if o.stale else ''}"),
        ),
        tone=lambda offer: Tone.WARN if offer.stale else Tone.PLAIN,
        notes=(f"{count(more, 'further price')}: --json has all.",) if more > 0 else (),
        title=f"{estimate.num_samples:,} samples of {estimate.work}, on {gpus}",
    )


def headline(estimate: Estimate) -> str:
    """ "30,000 samples take 1 h 31 min at 5.500 samples/s and cost $3.64 to $12.40."."""
    if estimate.hours is None or estimate.samples_per_s is None:
        return "Neither time nor cost is known."
    hours = [offer.hours for offer in estimate.offers if offer.hours is not None]  # interruptions included
    hours = hours or [estimate.hours]
    taken = (
        f"{estimate.num_samples:,} samples take {_to(duration(min(hours) * 3600), duration(max(hours) * 3600))} at "
        f"{figure(estimate.samples_per_s)} samples/s"
    )
    paid = [offer.usd for offer in estimate.offers if offer.usd is not None]
    if not paid:
        return f"{taken}; their cost is unknown."
    return f"{taken} and cost {_to(usd(min(paid)), usd(max(paid)))}."


def _to(low: str, high: str) -> str:
    return low if low == high else f"{low} to {high}"
