"""Time, memory and cost of a training job before it runs, at every price of its GPU: by measurement or formula."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from typing import Any

from pydantic import Field, ValidationError

from bench_image.contract.flops import flops_per_token, tokens_per_sample
from bench_image.contract.frozen import Frozen
from bench_image.contract.gpu_specs import PEAK_TFLOPS, name_parts, names_gpu, peak_tflops
from bench_image.contract.memory_estimate import (
    GPU_MEMORY_GIB,
    USABLE_SHARE,
    Candidate,
    all_gradients_bytes,
    memory_need_bytes,
    predicted,
    smallest_gpu,
)
from bench_image.contract.options import Strategy
from bench_image.contract.parse import explain
from bench_image.contract.spec import RunSpec
from trainbench.core.formats import count, duration, figure, listing, share, usd
from trainbench.core.number_checks import QuantityError, positive, used_share
from trainbench.core.tables import Table, Tone, integer, make_table, text
from trainbench.core.user_error import UserError
from trainbench.exchange.result_files import ComparisonRow
from trainbench.figure_catalogue.run_figures import PEAK_MEMORY_GB, RUN_USD, USD_PER_1000_SAMPLES, USD_PER_GPU_HOUR
from trainbench.figure_catalogue.table_figures import EXAMPLE, PRICE_OF_TIME
from trainbench.params.campaign_params import parse_params
from trainbench.params.model_reference import with_configuration
from trainbench.params.refusals import ParamsError
from trainbench.planning.plan import impossible_reason, spec_of
from trainbench.prices.price_import import ImportedPrices
from trainbench.prices.price_tables import STALE_AFTER_DAYS, Price, list_price
from trainbench.prices.quote import (
    PRICE_OF,
    UNIT_HOURS,
    Basis,
    Interruptions,
    Ownership,
    Pricing,
    Quote,
    price_of_time,
    quotes,
    work_hours,
)
from trainbench.results.readings import ON_CPU

SHOWN_FROM_GB = 0.1  # less is not worth a clause


class MemoryFit(Frozen):
    """The memory need against a GPU, in GB of 1e9 bytes. `fits` None: the GPU's memory is unknown."""

    need_gb: float
    paged_gb: float = 0.0  # of the need: states of the paged optimizer, which the driver may move to the host
    gpu_gb: float | None
    fits: bool | None
    smallest_gpu: str | None
    sentence: str


def memory_fit(spec: RunSpec, gpu_name: str | None, memory: int | None = None) -> MemoryFit:
    """The need on one GPU against USABLE_SHARE of its memory, by the formula of docs/internals/sizing.md. `memory`: its
    bytes where the node tells them, else by its name.

    'auto' takes what there is: it counts as what the run chooses by formula, and without a known GPU as the least.
    """
    memory = memory or gpu_memory_bytes(gpu_name)
    chosen = predicted(spec, memory) if memory else Candidate(spec, memory_need_bytes(spec).total)
    paged = memory_need_bytes(chosen.spec, memory).paged
    need_gb, paged_gb = (chosen.need + paged) / 1e9, paged / 1e9
    smallest = smallest_gpu(spec)
    least = (
        f"the smallest GPU of our list that holds it is the {smallest}" if smallest else "no GPU of our list holds it"
    )
    sentence = f"By formula the job needs {figure(need_gb, 3)} GB on each GPU"
    if paged_gb >= SHOWN_FROM_GB:
        sentence += f", {figure(paged_gb, 3)} GB of it for the paged optimizer"
    gpu_gb = fits = None
    if memory is None:
        unknown = f"; the memory of {gpu_name} is not known" if gpu_name else ""
        sentence += f"{unknown}; {least}."
    else:
        gpu_gb, usable_gb = memory / 1e9, memory * USABLE_SHARE / 1e9
        fits = need_gb <= usable_gb
        usable = f"{figure(usable_gb, 3)} GB of the {figure(gpu_gb, 3)} GB of {gpu_name} are usable"
        if fits:
            sentence += f": it fits, {usable}."
        else:
            sentence += f": it does not fit, {usable}; {least}."
            if need_gb - paged_gb <= usable_gb:
                sentence += (
                    " It runs only while the driver moves states of the optimizer to the host, which costs time."
                )
            sentence += " Choose a smaller micro-batch, checkpointing, a strategy that shards or a leaner recipe."
    return MemoryFit(
        need_gb=need_gb, paged_gb=paged_gb, gpu_gb=gpu_gb, fits=fits, smallest_gpu=smallest, sentence=sentence
    )


def gpu_memory_bytes(gpu_name: str | None) -> int | None:
    """Memory of a GPU in bytes by its NVML name, from data sheets; None for an unknown GPU, also for a MIG slice and
    for another form of a known one, such as the H100 NVL, which has 94 GB.
    """
    fitting = {name: gib for name, gib in GPU_MEMORY_GIB.items() if names_gpu(name, gpu_name or "")}
    known = [(len(name_parts(name)), gib) for name, gib in fitting.items()]
    return max(known)[1] * 2**30 if known else None


def rate_by_mfu(spec: RunSpec, gpu_name: str, mfu_pct: float) -> tuple[float, str]:
    """Samples/s of all GPUs by formula, MFU x peak x GPUs / (model FLOPs per token x tokens per sample), and where they
    are from. Raises QuantityError, also where the GPU's peak is unknown.
    """
    # The FLOP/s that the job reaches, over the FLOPs of a sample.
    mfu = used_share(mfu_pct / 100, "MFU / 100")
    peak = peak_tflops(gpu_name, spec.work.precision)
    if peak is None:
        known = ", ".join(PEAK_TFLOPS)
        raise QuantityError(
            f"the peak of '{gpu_name}' in {spec.work.precision} is not known: name the GPU as NVML does, with words "
            f"such as {known}; or give samples/s"
        )
    flops = flops_per_token(
        spec.work.shape,
        spec.work.recipe,
        spec.work.seq_length,
        spec.work.lora,
        spec.work.gradient_checkpointing is True,
    )
    if flops is None:
        raise QuantityError(
            f"no formula gives the FLOPs of a model of type '{spec.work.shape.kind}': give samples/s, not MFU"
        )
    per_sample = flops.model * tokens_per_sample(spec.work.shape, spec.work.seq_length)
    return mfu * peak * 1e12 * spec.placement.world_size / per_sample, (
        f"by formula, not measured: the given MFU of {share(mfu_pct)} of {figure(peak, 3)} TFLOP/s "
        f"({spec.work.precision}, dense) and {figure(per_sample / 1e12, 3)} TFLOP per sample"
    )


class TrainingJob(Frozen):
    """A training job. `gpu`: its NVML name. `num_samples`: of one epoch. `samples_per_s`: of all GPUs together, with
    its source as a phrase. None: unknown.
    """

    work: str
    gpu: str | None
    num_gpus: int
    num_samples: int
    epochs: float = 1.0
    samples_per_s: float | None = None
    rate_from: str | None = None
    memory: MemoryFit | None = None


class Estimate(TrainingJob):
    """The estimate. None: unknown, and `missing` names the data it needs. `num_samples`: over all epochs."""

    epochs: float = Field(1.0, exclude=True)
    hours: float | None
    offers: tuple[Quote, ...]  # cheapest first
    assumptions: tuple[str, ...]
    missing: tuple[str, ...]

    @property
    def job(self) -> str:
        noun = "process" if self.gpu == ON_CPU else "GPU"
        return f"{self.work}, on {count(self.num_gpus, noun)}" + (f" ({self.gpu})" if self.gpu else "")


def estimate(job: TrainingJob, prices: Sequence[Price], pricing: Pricing, today: date) -> Estimate:
    """Time and cost of the job at each price. Raises QuantityError for a bad number of samples, epochs or dollars."""
    all_samples = round(positive(job.num_samples, "number of samples") * positive(job.epochs, "epochs"))
    offers = quotes(job.gpu, prices, pricing, today, job.num_gpus, job.samples_per_s, all_samples)
    missing = []
    if job.samples_per_s is None:
        missing.append(
            "No rate, so neither time nor cost: give measured results, samples/s, or the MFU that you expect and a GPU."
        )
    if not offers:
        kind = "price" if pricing.basis in (Basis.ALL, Basis.ON_DEMAND) else f"{pricing.basis} price"
        of = f" of {job.gpu}" if job.gpu else ", because no GPU is named"
        missing.append(f"No {kind}{of}: add it to a table of TRAINBENCH_PRICES, or give the price of a GPU-hour.")
    return Estimate(
        **dict(job) | {"num_samples": all_samples},
        hours=work_hours(all_samples, job.samples_per_s) if job.samples_per_s else None,
        offers=offers,
        assumptions=_assumptions(job, pricing, offers),
        missing=tuple(missing),
    )


def _assumptions(job: TrainingJob, pricing: Pricing, offers: Sequence[Quote]) -> tuple[str, ...]:
    kinds = {offer.basis for offer in offers}
    whole = [basis for basis in UNIT_HOURS if basis in kinds]
    notes = (
        (job.epochs != 1, f"{job.epochs:g} epochs of {job.num_samples:,} samples."),
        (
            job.rate_from,
            f"Rate: {job.rate_from}. It holds for the whole job; start-up, evaluation and checkpoints come on top.",
        ),
        (Basis.SPOT in kinds, _spot_note(pricing.interruptions)),
        (Basis.RESERVED in kinds, "Reserved: the hours of the job only; the commitment is paid for as a whole."),
        (whole, f"By the {listing(whole)}: a begun one is paid for as a whole."),
        (Basis.OWNED in kinds, _owned_note(pricing.ownership, job.gpu)),
        (
            any(offer.instances > 1 for offer in offers),
            "Several instances: the rate holds only if the network between them is fast enough.",
        ),
        (
            any(offer.billed_gpus > job.num_gpus for offer in offers),
            f"Whole instances are billed: some have more than the job's {count(job.num_gpus, 'GPU')}.",
        ),
        (kinds & PRICE_OF.keys(), "List prices, before discounts, taxes, disks and traffic."),
    )
    return tuple(text for holds, text in notes if holds)


def _spot_note(cut: Interruptions | None) -> str:
    if cut is None:
        return "Spot: no interruption is counted."
    return (
        f"Spot: {figure(cut.per_day, 3)} interruptions a day and instance, a checkpoint every "
        f"{figure(cut.checkpoint_every_minutes, 3)} min, {figure(cut.restart_minutes, 3)} min to start again: "
        "what they take is in the price and the time; the wait for a new instance is not."
    )


def _owned_note(own: Ownership | None, gpu: str | None) -> str:
    if own is None:
        return ""
    listed, purchase_usd, source = list_price(gpu or ""), own.purchase_usd, ""
    if purchase_usd is None and listed:
        purchase_usd, source = listed.usd, f" (the bare card's list price of {listed.as_of}, {listed.source})"
    return (
        f"Owned: {usd(purchase_usd)} a GPU{source}, {figure(own.life_years, 3)} years, at work "
        f"{share(100 * own.utilisation)} of the time, {share(100 * own.residual_share)} left at the end, "
        f"{usd(own.opex_usd_per_gpu_hour)} per hour of work to run."
    )


NETWORKS_GBIT_PER_S = (10, 100, 400)  # of common networks between nodes
MAX_GPUS_PER_NODE = 64  # of a run spec; spreading a gang over nodes changes neither memory nor price


class EstimateError(UserError, ValueError):
    """The options contradict each other; the message says why and what to do."""


@dataclass(frozen=True, kw_only=True)
class EstimateRequest:
    """The request of an estimate. `changes`: parameters of the trigger form. None: not given."""

    num_samples: int
    epochs: float = 1.0
    num_gpus: int | None = None
    gpu: str | None = None
    changes: Mapping[str, Any]
    strategy: Strategy | None = None
    samples_per_s: float | None = None
    mfu_pct: float | None = None


def pricing_of(price: str, details: Mapping[str, str]) -> Pricing:
    """The pricing. `price`: a Basis but `given`, or USD per GPU-hour; `details`: the fields of Interruptions, of
    Ownership, or with `all` of both. Raises EstimateError.
    """
    kinds = [basis for basis in Basis if basis is not Basis.GIVEN]
    basis = next((each for each in kinds if each == price), Basis.GIVEN)
    try:
        usd_per_gpu_hour = float(price) if basis is Basis.GIVEN else None
    except ValueError:
        raise EstimateError(
            f"price is '{price}': choose one of {listing(kinds, most=9)}, or give USD per GPU-hour"
        ) from None
    of_spot = {name: value for name, value in details.items() if name in Interruptions.model_fields}
    of_owned = {name: value for name, value in details.items() if name not in of_spot}
    if (of_spot and basis not in (Basis.SPOT, Basis.ALL)) or (of_owned and basis not in (Basis.OWNED, Basis.ALL)):
        raise EstimateError(
            f"{', '.join(details)} with a price of {price}: details belong to spot, owned and all, each its own"
        )
    if usd_per_gpu_hour is not None and not 0 < usd_per_gpu_hour < 1e6:
        raise EstimateError(f"price is {usd_per_gpu_hour:g} USD per GPU-hour: it must be a number above 0")
    try:
        return Pricing(
            basis=basis,
            usd_per_gpu_hour=usd_per_gpu_hour,
            interruptions=Interruptions.model_validate(of_spot) if of_spot else None,
            ownership=Ownership.model_validate(of_owned) if of_owned or basis is Basis.OWNED else None,
        )
    except ValidationError as error:
        fields = ", ".join((Interruptions if error.title == "Interruptions" else Ownership).model_fields)
        raise EstimateError(f"price {basis} is made of {fields}: {explain(error)}") from None


def of_measured(
    request: EstimateRequest, rows: Sequence[ComparisonRow], prices: Sequence[Price], pricing: Pricing, today: date
) -> tuple[Estimate, ...]:
    """Estimates, one for each kind of measured run, on the requested GPU and number of GPUs. Raises EstimateError and
    QuantityError.
    """
    if request.changes or request.strategy or request.samples_per_s is not None or request.mfu_pct is not None:
        raise EstimateError("the job and its rate are those of the measured results: give them, or results, not both")
    chosen = [row for row in rows if name_parts(request.gpu or "") <= name_parts(row.hardware)]
    if not chosen:
        known = listing(dict.fromkeys(row.hardware for row in rows))
        raise EstimateError(f"no result was measured on '{request.gpu}': there are {known}")
    sizes = {row.num_gpus or row.num_ranks for row in chosen}
    if request.num_gpus is not None and request.num_gpus not in sizes:
        raise EstimateError(
            f"nothing was measured on {count(request.num_gpus, 'GPU')}, only on {listing(map(str, sorted(sizes)))}: "
            "choose one of these; or give the job without results, and its rate by --samples-per-s or --mfu"
        )
    wanted = [row for row in chosen if request.num_gpus in (None, row.num_gpus or row.num_ranks)]
    return tuple(estimate(_measured_job(request, row), prices, pricing, today) for row in wanted)


def _measured_job(request: EstimateRequest, row: ComparisonRow) -> TrainingJob:
    batch = "" if row.batch_per_rank is None else f", batch {row.batch_per_rank}"
    runs = f"the median of {count(row.num_runs, 'run')}" if row.num_runs > 1 else "one run"
    apart = "" if row.apart_pct is None else f", ± {share(row.apart_pct)} ({row.apart_from})"
    return TrainingJob(
        work=f"{row.label}{batch}{f', {row.strategy}' if row.strategy else ''}",
        gpu=row.hardware,
        num_gpus=row.num_gpus or row.num_ranks,
        num_samples=request.num_samples,
        epochs=positive(request.epochs, "epochs"),
        samples_per_s=row.samples_per_s,
        rate_from=f"measured: {runs} of {row.name}{apart}",
        memory=_measured_memory(row),
    )


def by_formula(request: EstimateRequest, prices: Sequence[Price], pricing: Pricing, today: date) -> Estimate:
    """The estimate without results: memory by formula, and a rate only where a rate or an MFU is given. Raises
    ParamsError, EstimateError and QuantityError.
    """
    if request.samples_per_s is not None and request.mfu_pct is not None:
        raise EstimateError("samples/s and MFU are two rates: give one")
    num_gpus, params = request.num_gpus or 1, with_configuration(parse_params(request.changes))
    strategy = request.strategy or (Strategy.SINGLE if num_gpus == 1 else Strategy.DDP)
    if reason := impossible_reason(strategy, params):
        raise ParamsError(f"strategy {strategy}: {reason}")
    per_node = max(n for n in range(1, MAX_GPUS_PER_NODE + 1) if num_gpus % n == 0)
    nodes = [f"node-{number}" for number in range(1, num_gpus // per_node + 1)]
    try:
        spec = spec_of(params, strategy, nodes, per_node, "estimate")
    except ValidationError as error:
        raise ParamsError(f"the job is impossible: {explain(error)}") from None
    gpu = request.gpu or memory_fit(spec, None).smallest_gpu
    rate: tuple[float | None, str | None] = (None, None)
    if request.samples_per_s is not None:
        rate = positive(request.samples_per_s, "samples/s"), "given, of all GPUs together"
    elif request.mfu_pct is not None and gpu:
        rate = rate_by_mfu(spec, gpu, request.mfu_pct)
    what = f"{spec.work.model} {spec.work.recipe}, batch {spec.work.micro_batch_size} x {spec.work.seq_length} tokens"
    job = TrainingJob(
        work=f"{what}, {spec.placement.strategy}",
        gpu=gpu,
        num_gpus=spec.placement.world_size,
        num_samples=request.num_samples,
        epochs=positive(request.epochs, "epochs"),
        samples_per_s=rate[0],
        rate_from=rate[1],
        memory=memory_fit(spec, gpu),
    )
    made = estimate(job, prices, pricing, today)
    return made.model_copy(update={"assumptions": (*made.assumptions, *filter(None, [_gradients_note(spec)]))})


def _gradients_note(spec: RunSpec) -> str:
    """How long the gradients of a step are on their way: 2 (n-1)/n x their bytes, sent and received by each of n."""
    ranks = spec.placement.world_size
    if spec.placement.strategy is not Strategy.DDP or ranks == 1:
        return ""
    sent = 2 * (ranks - 1) / ranks * all_gradients_bytes(spec)
    times = listing([f"{duration(8 * sent / (gbit * 1e9))} at {gbit} Gbit/s" for gbit in NETWORKS_GBIT_PER_S])
    return (
        f"Network: {figure(sent / 1e6, 3)} MB of gradients leave each GPU in a step, which take {times}; computation "
        "hides a part of it, and a run measures the rest (exposed comm.)."
    )


def _measured_memory(row: ComparisonRow) -> MemoryFit | None:
    need_gb = row.figure(PEAK_MEMORY_GB)
    if need_gb is None:
        return None
    memory = gpu_memory_bytes(row.hardware)
    where = "in the largest process" if row.hardware == ON_CPU else "on each GPU"
    return MemoryFit(
        need_gb=need_gb,
        gpu_gb=None if memory is None else memory / 1e9,
        fits=True,
        smallest_gpu=None,
        sentence=f"Memory: a peak of {figure(need_gb, 3)} GB was measured {where}, so it fits.",
    )


def prices_table(prices: Sequence[Price], today: date) -> Table:
    """The price table in its order: of rows that fit a GPU equally well the first counts. Notes list sources."""
    sources = {source: number for number, source in enumerate(dict.fromkeys(price.source for price in prices), 1)}
    num_stale = sum(price.is_stale(today) for price in prices)
    notes = [
        "USD of one GPU: the instance's price / its GPUs, before discounts and taxes. Per day and week: 24 and 168 "
        "hours, or the provider's own price of them where the table has one."
    ]
    if num_stale:
        notes.append(f"STALE: older than {STALE_AFTER_DAYS} days ({count(num_stale, 'price')}).")
    return make_table(
        prices,
        (
            text("GPU", lambda price: price.gpu),
            text("offer", lambda price: f"{price.provider} {price.instance}"),
            text("region", lambda price: price.region),
            integer("GPUs", lambda price: price.gpus_per_instance),
            USD_PER_GPU_HOUR.column(lambda price: price.usd_per_gpu_hour, "per hour"),
            USD_PER_GPU_HOUR.column(lambda price: price.spot_usd_per_gpu_hour, "spot"),
            PRICE_OF_TIME.column(lambda price: _usd_per_gpu(price, Basis.DAY)),
            PRICE_OF_TIME.column(lambda price: _usd_per_gpu(price, Basis.WEEK), "per week"),
            text("as of", lambda price: str(price.as_of or "given")),
            text(
                "source",
                lambda p: f"[{sources[p.source]}]{' yours' if p.own else ''}{' STALE' if p.is_stale(today) else ''}",
            ),
        ),
        tone=lambda price: Tone.WARN if price.is_stale(today) else Tone.PLAIN,
        notes=(*notes, *(f"[{number}] {source}" for source, number in sources.items())),
        title=count(len(prices), "price"),
    )


def _usd_per_gpu(price: Price, basis: Basis) -> float | None:
    """For so long; by the hour where the provider has no price of its own for it."""
    own = getattr(price, PRICE_OF[basis])
    return price_of_time(price.usd_per_gpu_hour, UNIT_HOURS[basis]) if own is None else own / price.gpus_per_instance


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


def estimate_table(estimates: Sequence[Estimate]) -> Table:
    """One row for each price that fits a GPU; of the jobs in their order, the cheapest first."""
    rows = [(one, offer) for one in estimates for offer in one.offers]
    samples = f"{estimates[0].num_samples:,} samples"
    several = len(estimates) > 1
    return make_table(
        rows,
        (
            *((text("job", lambda row: row[0].job),) if several else ()),
            text("offer", lambda row: f"{row[1].provider} {_instances(row[1])}"),
            text("region", lambda row: row[1].region),
            text("price", lambda row: row[1].basis.value),
            integer("GPUs", lambda row: row[1].billed_gpus),
            USD_PER_GPU_HOUR.column(lambda row: row[1].usd_per_gpu_hour, "per GPU-h"),
            EXAMPLE.column(lambda row: None if row[1].hours is None else row[1].hours * 3600, "time"),
            RUN_USD.column(lambda row: row[1].usd),
            USD_PER_1000_SAMPLES.column(lambda row: row[1].usd_per_1000_samples, "per 1K"),
            text("as of", lambda row: f"{row[1].as_of or 'given'}{' STALE' if row[1].stale else ''}"),
        ),
        tone=lambda row: Tone.WARN if row[1].stale else Tone.PLAIN,
        title=f"{samples} at every price" if several else f"{samples} of {estimates[0].job}",
    )


def _instances(offer: Quote) -> str:
    return offer.instance if offer.instances == 1 else f"{offer.instances} x {offer.instance}"


def headline(estimate: Estimate) -> str:
    """ "30,000 samples take 1 h 31 min at 5.500 samples/s and cost $3.64 to $12.40."."""
    if estimate.hours is None or estimate.samples_per_s is None:
        return "Neither time nor cost is known."
    hours = [offer.hours for offer in estimate.offers if offer.hours is not None]  # interruptions included
    taken = _range([hour * 3600 for hour in hours or [estimate.hours]], duration)
    at = f"{estimate.num_samples:,} samples take {taken} at {figure(estimate.samples_per_s)} samples/s"
    paid = [offer.usd for offer in estimate.offers if offer.usd is not None]
    return f"{at} and cost {_range(paid, usd)}." if paid else f"{at}; their cost is unknown."


def _range(values: Sequence[float], write: Callable[[float], str]) -> str:
    low, high = write(min(values)), write(max(values))
    return low if low == high else f"{low} to {high}"
