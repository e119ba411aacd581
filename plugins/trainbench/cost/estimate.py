"""Time and cost of a training job before it runs, at every price that fits its GPU.

estimate(work, gpu_name, num_gpus, rate, num_samples, epochs, prices, pricing, today, memory=None) -> Estimate
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date

from bench_image.contract.frozen import Frozen
from trainbench.core.formats import count, figure, share, usd
from trainbench.core.number_checks import positive
from trainbench.cost.job_memory import MemoryFit
from trainbench.cost.job_throughput import Rate
from trainbench.prices.list_prices import list_price
from trainbench.prices.price_tables import Price
from trainbench.prices.quote import Basis, Ownership, Pricing, Quote, quotes, work_hours


class TrainingJob(Frozen):
    """A training job. `gpu`: its NVML name; None: unknown. `num_samples`: of one epoch."""

    work: str
    gpu: str | None
    num_gpus: int
    num_samples: int
    epochs: float = 1.0


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
    offers: tuple[Quote, ...]  # cheapest first
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
    samples_per_s = rate.samples_per_s if rate else None
    offers = quotes(job.gpu, prices, pricing, today, job.num_gpus, samples_per_s, all_samples)
    notes = []
    if rate is None:
        notes.append(
            "No rate, so neither time nor cost: give measured results, samples/s, or the MFU that you expect and a GPU."
        )
    if not offers:
        kind = "spot price" if pricing.basis is Basis.SPOT else "price"
        of = f" of {job.gpu}" if job.gpu else ", because no GPU is named"
        notes.append(f"No {kind}{of}: add it to a table of TRAINBENCH_PRICES, or give the price of a GPU-hour.")
    return Estimate(
        work=job.work,
        gpu=job.gpu,
        num_gpus=job.num_gpus,
        num_samples=all_samples,
        samples_per_s=samples_per_s,
        rate_from=rate.source if rate else None,
        hours=work_hours(all_samples, samples_per_s) if samples_per_s else None,
        memory=memory,
        offers=offers,
        assumptions=_assumptions(job, rate, pricing, offers),
        missing=tuple(notes),
    )


def _assumptions(job: TrainingJob, rate: Rate | None, pricing: Pricing, offers: Sequence[Quote]) -> tuple[str, ...]:
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
