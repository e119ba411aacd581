"""Time and cost of a training job before it runs, at every price that fits its GPU.

estimate(work, gpu_name, num_gpus, rate, num_samples, epochs, prices, pricing, today, memory=None) -> Estimate
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from datetime import date
from enum import StrEnum

from bench_image.contract.frozen import Frozen
from trainbench.core.formats import count, figure, share, usd
from trainbench.core.number_checks import QuantityError, positive
from trainbench.cost.job_memory import MemoryFit
from trainbench.cost.job_throughput import Rate
from trainbench.prices.list_prices import list_price
from trainbench.prices.ownership import owned_usd_per_gpu_hour
from trainbench.prices.price_tables import Price, exact_prices, given_price
from trainbench.prices.run_cost import quote, usd_per_1000_samples
from trainbench.prices.spot import usd_per_useful_gpu_hour, useful_share, useful_time_share

HOURS_PER_YEAR = 8760.0


class Basis(StrEnum):
    ON_DEMAND = "on-demand"
    SPOT = "spot"
    OWNED = "owned"
    GIVEN = "given"


class Interruptions(Frozen):
    """Interruptions of a spot instance: their rate and the time that each costs. See spot.useful_share."""

    per_day: float
    checkpoint_every_minutes: float
    restart_minutes: float
    wait_minutes: float = 0.0  # minutes until a new instance, while the others are billed


class Ownership(Frozen):
    """An owned GPU. See ownership.owned_usd_per_gpu_hour. `purchase_usd` None: its list price, of the bare card."""

    purchase_usd: float | None = None
    life_years: float
    utilisation: float
    residual_share: float = 0.0
    opex_usd_per_gpu_hour: float = 0.0


class Pricing(Frozen):
    """The basis of the price, with its details. Raises QuantityError where a detail of the basis is missing."""

    basis: Basis = Basis.ON_DEMAND
    usd_per_gpu_hour: float | None = None  # of basis `given`
    interruptions: Interruptions | None = None
    ownership: Ownership | None = None


class TrainingJob(Frozen):
    """A training job. `gpu`: its NVML name; None: unknown. `num_samples`: of one epoch."""

    work: str
    gpu: str | None
    num_gpus: int
    num_samples: int
    epochs: float = 1.0


class Offer(Frozen):
    """The job at one price. `usd_per_gpu_hour` counts interruptions; `billed_gpus`: whole instances are billed."""

    provider: str
    instance: str
    region: str
    basis: Basis
    usd_per_gpu_hour: float
    instances: int
    billed_gpus: int
    hours: float | None
    usd: float | None
    usd_per_1000_samples: float | None
    as_of: date | None
    stale: bool
    source: str


class Estimate(Frozen):
    """The estimate. None: unknown, and `missing` names the data it needs. `num_samples`: over all epochs."""

    work: str
    gpu: str | None
    num_gpus: int
    num_samples: int
    samples_per_s: float | None
    rate_from: str | None
    hours: float | None
    memory: MemoryFit | None
    offers: tuple[Offer, ...]  # cheapest first
    assumptions: tuple[str, ...]
    missing: tuple[str, ...]


def estimate(
    job: TrainingJob,
    rate: Rate | None,
    prices: Sequence[Price],
    pricing: Pricing,
    today: date,
    memory: MemoryFit | None = None,
) -> Estimate:
    """Time and cost of the job at each price. Raises QuantityError for a bad number of samples, epochs or dollars."""
    positive(job.num_gpus, "number of GPUs")
    all_samples = round(positive(job.num_samples, "number of samples") * positive(job.epochs, "epochs"))
    rows = _rows(job.gpu, prices, pricing)
    offers = [_offer(price, pricing, job.num_gpus, rate, all_samples, today) for price in rows]
    return Estimate(
        work=job.work,
        gpu=job.gpu,
        num_gpus=job.num_gpus,
        num_samples=all_samples,
        samples_per_s=rate.samples_per_s if rate else None,
        rate_from=rate.source if rate else None,
        hours=all_samples / (rate.samples_per_s * 3600) if rate else None,
        memory=memory,
        offers=tuple(sorted(offers, key=lambda offer: offer.usd_per_gpu_hour * offer.billed_gpus)),
        assumptions=_assumptions(job, rate, pricing, offers),
        missing=_missing(job.gpu, rate, rows, pricing),
    )


def _rows(gpu_name: str | None, prices: Sequence[Price], pricing: Pricing) -> tuple[Price, ...]:
    match pricing.basis:
        case Basis.GIVEN:
            if pricing.usd_per_gpu_hour is None:
                raise QuantityError("basis given: give the price of a GPU-hour")
            return (given_price(positive(pricing.usd_per_gpu_hour, "USD per GPU-hour"), gpu_name),)
        case Basis.OWNED:
            return (
                given_price(_owned_usd(pricing.ownership, gpu_name), gpu_name).model_copy(
                    update={"source": "by the purchase price"}
                ),
            )
    rows = exact_prices(gpu_name, prices)
    return rows if pricing.basis is Basis.ON_DEMAND else tuple(price for price in rows if price.spot_usd_per_hour)


def _owned_usd(ownership: Ownership | None, gpu_name: str | None) -> float:
    if ownership is None:
        raise QuantityError("basis owned: give the purchase price of a GPU, its life and its utilisation")
    listed = list_price(gpu_name or "")
    purchase_usd = listed.usd if ownership.purchase_usd is None and listed else ownership.purchase_usd
    if purchase_usd is None:
        raise QuantityError(f"{gpu_name or 'a GPU without a name'} has no list price: give purchase_usd")
    return owned_usd_per_gpu_hour(
        purchase_usd,
        ownership.life_years * HOURS_PER_YEAR,
        ownership.utilisation,
        ownership.residual_share,
        ownership.opex_usd_per_gpu_hour,
    )


def _offer(price: Price, pricing: Pricing, num_gpus: int, rate: Rate | None, num_samples: int, today: date) -> Offer:
    """Cost and time of the job at one price; None for both without a rate."""
    # Whole instances are billed.
    instances = math.ceil(num_gpus / price.gpus_per_instance)
    billed = instances * price.gpus_per_instance
    usd_per_gpu_hour, useful_time = price.usd_per_gpu_hour, 1.0
    # Interruptions of spot instances cost paid hours without work.
    if pricing.basis is Basis.SPOT and price.spot_usd_per_gpu_hour is not None:
        useful, useful_time = _useful(pricing.interruptions, instances)
        usd_per_gpu_hour = usd_per_useful_gpu_hour(price.spot_usd_per_gpu_hour, useful)
    quoted = quote(num_samples, usd_per_gpu_hour, billed, rate.samples_per_s) if rate else None
    is_own = pricing.basis in (Basis.GIVEN, Basis.OWNED)
    return Offer(
        provider=price.provider,
        instance=pricing.basis.value if is_own else price.instance,
        region=price.region,
        basis=pricing.basis,
        usd_per_gpu_hour=usd_per_gpu_hour,
        instances=instances,
        billed_gpus=billed,
        hours=quoted.hours / useful_time if quoted else None,
        usd=quoted.usd if quoted else None,
        usd_per_1000_samples=usd_per_1000_samples(usd_per_gpu_hour, billed, rate.samples_per_s) if rate else None,
        as_of=price.as_of,
        stale=price.is_stale(today),
        source=price.source,
    )


def _useful(interruptions: Interruptions | None, instances: int) -> tuple[float, float]:
    """Useful shares of the paid hours and of the elapsed time."""
    if interruptions is None:
        return 1.0, 1.0
    cut = interruptions
    hours = (cut.checkpoint_every_minutes / 60, cut.restart_minutes / 60)
    of_all = (cut.per_day / 24, *hours, instances, cut.wait_minutes / 60)
    return useful_share(*of_all), useful_time_share(*of_all)


def _assumptions(job: TrainingJob, rate: Rate | None, pricing: Pricing, offers: Sequence[Offer]) -> tuple[str, ...]:
    notes = [f"{job.epochs:g} epochs of {job.num_samples:,} samples."] if job.epochs != 1 else []
    if rate:
        notes.append(
            f"Rate: {rate.source}. It holds for the whole job; start-up, evaluation and checkpoints come on top."
        )
    match pricing.basis:
        case Basis.SPOT if pricing.interruptions is None:
            notes.append("Spot: no interruption is counted.")
        case Basis.SPOT if pricing.interruptions:
            cut = pricing.interruptions
            notes.append(
                f"Spot: {figure(cut.per_day, 3)} interruptions a day and instance, a checkpoint every "
                f"{figure(cut.checkpoint_every_minutes, 3)} min, {figure(cut.restart_minutes, 3)} min to start again; "
                f"{figure(cut.wait_minutes, 3)} min to wait for a new instance; what they take is in the price and the "
                "time."
            )
            if any(offer.instances > 1 for offer in offers):
                notes.append("While one instance is waited for, the others stay billed.")
        case Basis.OWNED if pricing.ownership:
            own = pricing.ownership
            notes.append(
                f"Owned: {_purchase(own, job.gpu)}, {figure(own.life_years, 3)} years, at work "
                f"{share(100 * own.utilisation)} of the time, {share(100 * own.residual_share)} left at the end, "
                f"{usd(own.opex_usd_per_gpu_hour)} per hour of work to run."
            )
    if any(offer.instances > 1 for offer in offers):
        notes.append("Several instances: the rate holds only if the network between them is fast enough.")
    if any(offer.billed_gpus > job.num_gpus for offer in offers):
        notes.append(f"Whole instances are billed: some have more than the job's {count(job.num_gpus, 'GPU')}.")
    if pricing.basis in (Basis.ON_DEMAND, Basis.SPOT) and offers:
        notes.append("List prices, before discounts, taxes, disks and traffic.")
    return tuple(notes)


def _purchase(own: Ownership, gpu_name: str | None) -> str:
    """ "$3,500.00 a GPU"; of a list price also its date and source."""
    listed = list_price(gpu_name or "")
    if own.purchase_usd is not None or listed is None:
        return f"{usd(own.purchase_usd)} a GPU"
    return f"{usd(listed.usd)} a GPU (the bare card's list price of {listed.as_of}, {listed.source})"


def _missing(gpu_name: str | None, rate: Rate | None, rows: Sequence[Price], pricing: Pricing) -> tuple[str, ...]:
    notes = []
    if rate is None:
        notes.append(
            "No rate, so neither time nor cost: give measured results, samples/s, or the MFU that you expect and a GPU."
        )
    if not rows:
        kind = "spot price" if pricing.basis is Basis.SPOT else "price"
        of = f" of {gpu_name}" if gpu_name else ", because no GPU is named"
        notes.append(f"No {kind}{of}: add it to a table of TRAINBENCH_PRICES, or give the price of a GPU-hour.")
    return tuple(notes)
