"""Prices and estimates as tables: plain words, for the terminal and for reports."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date
from typing import Any

from trainbench.core.formats import NA, count, duration, figure, listing, usd
from trainbench.core.tables import Row, Table, Tone
from trainbench.cost.estimate import Basis, Estimate, Offer
from trainbench.prices.price_import import Imported
from trainbench.prices.price_tables import STALE_AFTER_DAYS, Price

MAX_OFFERS = 30  # of one table; --json has all


def prices_table(prices: Sequence[Price], today: date) -> Table:
    """In the table's order: of rows that fit a GPU equally well the first one counts. Sources are numbered below."""
    sources = {source: number for number, source in enumerate(dict.fromkeys(price.source for price in prices), 1)}
    rows = tuple(
        Row(
            cells=(
                price.gpu,
                price.provider,
                price.instance,
                price.region,
                str(price.gpus_per_instance),
                usd(price.usd_per_gpu_hour),
                usd(price.spot_usd_per_gpu_hour),
                str(price.as_of or "given"),
                str(price.age_days(today)),
                f"[{sources[price.source]}]",
                " ".join((["yours"] if price.own else []) + (["STALE"] if price.is_stale(today) else [])),
            ),
            tone=Tone.WARN if price.is_stale(today) else Tone.PLAIN,
        )
        for price in prices
    )
    num_stale = sum(price.is_stale(today) for price in prices)
    notes = ["USD per GPU-hour: the instance's price / its GPUs, before discounts and taxes."]
    if num_stale:
        notes.append(f"STALE: older than {STALE_AFTER_DAYS} days ({count(num_stale, 'price')}).")
    return Table(
        columns=("GPU", "provider", "instance", "region", "GPUs", "per GPU-h", "spot", "as of", "days", "source", ""),
        rows=rows,
        numeric=frozenset({"GPUs", "per GPU-h", "spot", "days"}),
        notes=(*notes, *(f"[{number}] {source}" for source, number in sources.items())),
        title=count(len(prices), "price"),
    )


def price_row(price: Price, today: date) -> dict[str, Any]:
    """For scripts."""
    return price.model_dump(mode="json") | {
        "usd_per_gpu_hour": price.usd_per_gpu_hour,
        "spot_usd_per_gpu_hour": price.spot_usd_per_gpu_hour,
        "age_days": price.age_days(today),
        "stale": price.is_stale(today),
    }


def skipped_table(imported: Imported) -> Table:
    return Table(
        columns=("rows", "for example", "why left out"),
        rows=tuple(
            Row(cells=(f"{skip.count:,}", f"line {listing(map(str, skip.rows))}", skip.reason))
            for skip in imported.skipped
        ),
        numeric=frozenset({"rows"}),
        title="Left out",
    )


def estimate_table(found: Estimate) -> Table:
    """One row for each price that fits the GPU, cheapest first."""
    rows = tuple(Row(cells=_cells(offer), tone=Tone.WARN if offer.stale else Tone.PLAIN) for offer in found.offers)
    more = len(rows) - MAX_OFFERS
    return Table(
        columns=(
            "provider",
            "instance",
            "region",
            "GPUs paid",
            "per GPU-hour",
            "time",
            "cost",
            "per 1K samples",
            "as of",
        ),
        rows=rows[:MAX_OFFERS],
        numeric=frozenset({"GPUs paid", "per GPU-hour", "time", "cost", "per 1K samples"}),
        notes=(f"{count(more, 'further price')}: --json has all.",) if more > 0 else (),
        title=f"{found.num_samples:,} samples of {found.work}, on {count(found.num_gpus, 'GPU')}{_of(found.gpu)}",
    )


def headline(found: Estimate) -> str:
    """ "30,000 samples take 1 h 31 min at 5.500 samples/s and cost $3.64 to $12.40."."""
    if found.hours is None or found.samples_per_s is None:
        return "Neither time nor cost is known."
    hours = [offer.hours for offer in found.offers if offer.hours is not None] or [found.hours]  # interruptions are in
    taken = (
        f"{found.num_samples:,} samples take {_to(duration(min(hours) * 3600), duration(max(hours) * 3600))} at "
        f"{figure(found.samples_per_s)} samples/s"
    )
    paid = [offer.usd for offer in found.offers if offer.usd is not None]
    if not paid:
        return f"{taken}; what they cost is not known."
    return f"{taken} and cost {_to(usd(min(paid)), usd(max(paid)))}."


def _to(low: str, high: str) -> str:
    return low if low == high else f"{low} to {high}"


def _cells(offer: Offer) -> tuple[str, ...]:
    as_of = "" if offer.as_of is None else f"{offer.as_of}{' STALE' if offer.stale else ''}"
    return (
        offer.provider if offer.basis is not Basis.SPOT else f"{offer.provider}, spot",
        offer.instance if offer.instances == 1 else f"{offer.instances} x {offer.instance}",
        offer.region,
        str(offer.billed_gpus),
        usd(offer.usd_per_gpu_hour),
        NA if offer.hours is None else duration(offer.hours * 3600),
        usd(offer.usd),
        usd(offer.usd_per_1000_samples),
        as_of or "given",
    )


def _of(gpu: str | None) -> str:
    return f" ({gpu})" if gpu else ""
