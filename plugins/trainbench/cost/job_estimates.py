"""Estimates of a training job: one for each measured kind of run, or one by formula."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from typing import Any

from pydantic import ValidationError

from bench_image.contract.options import Strategy
from bench_image.contract.parse import explain
from bench_image.contract.spec import RunSpec
from trainbench.core.formats import count, figure, listing
from trainbench.core.number_checks import positive
from trainbench.core.user_error import UserError
from trainbench.cost.estimate import Estimate, TrainingJob, estimate
from trainbench.cost.job_memory import MemoryFit, gpu_memory_bytes, memory_fit
from trainbench.cost.job_throughput import Rate, given_rate, measured_rate, rate_by_mfu, scaled_rate
from trainbench.exchange.comparison_rows import ComparisonRow
from trainbench.figure_catalogue.run_figures import PEAK_MEMORY_GB
from trainbench.params.campaign_params import parse_params
from trainbench.params.refusals import ParamsError
from trainbench.planning.work import impossible_reason, spec_of
from trainbench.prices.price_tables import Price, name_parts
from trainbench.prices.quote import Basis, Interruptions, Ownership, Pricing

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
    efficiency: float | None = None


def pricing_of(price: str, details: Mapping[str, str]) -> Pricing:
    """The pricing. `price`: on-demand, spot, owned, or USD per GPU-hour; `details`: the fields of Interruptions or
    Ownership. Raises EstimateError.
    """
    if price not in (Basis.ON_DEMAND, Basis.SPOT, Basis.OWNED):
        try:
            usd_per_gpu_hour = float(price)
        except ValueError:
            raise EstimateError(
                f"price is '{price}': choose on-demand, spot, owned, or give USD per GPU-hour"
            ) from None
        _none(details, f"a price of {price}")
        if not 0 < usd_per_gpu_hour < 1e6:
            raise EstimateError(f"price is {usd_per_gpu_hour:g} USD per GPU-hour: it must be a number above 0")
        return Pricing(basis=Basis.GIVEN, usd_per_gpu_hour=usd_per_gpu_hour)
    try:
        match Basis(price):
            case Basis.OWNED:
                return Pricing(basis=Basis.OWNED, ownership=Ownership.model_validate(details))
            case Basis.SPOT:
                cut = Interruptions.model_validate(details) if details else None
                return Pricing(basis=Basis.SPOT, interruptions=cut)
    except ValidationError as error:
        fields = Ownership.model_fields if price == Basis.OWNED else Interruptions.model_fields
        raise EstimateError(f"price {price} is made of {', '.join(fields)}: {explain(error)}") from None
    _none(details, "the on-demand price")
    return Pricing()


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
    estimates = []
    for row, rate in _on(request, chosen):
        job = _job(request, _work(row), row.hardware, rate.num_gpus)
        estimates.append(estimate(job, rate, prices, pricing, today, _measured_memory(row)))
    return tuple(estimates)


def by_formula(request: EstimateRequest, prices: Sequence[Price], pricing: Pricing, today: date) -> Estimate:
    """The estimate without results: memory by formula, and a rate only where a rate or an MFU is given. Raises
    ParamsError, EstimateError and QuantityError.
    """
    if request.samples_per_s is not None and request.mfu_pct is not None:
        raise EstimateError("samples/s and MFU are two rates: give one")
    spec = _spec(request, request.num_gpus or 1)
    fit = memory_fit(spec, request.gpu)
    gpu = request.gpu or fit.smallest_gpu
    rate = None
    if request.samples_per_s is not None:
        rate = given_rate(request.samples_per_s, spec.placement.world_size)
    elif request.mfu_pct is not None and gpu:
        rate = rate_by_mfu(spec, gpu, request.mfu_pct)
    what = f"{spec.work.model} {spec.work.recipe}, batch {spec.work.micro_batch_size} x {spec.work.seq_length} tokens"
    work = f"{what}, {spec.placement.strategy}"
    job = _job(request, work, gpu, spec.placement.world_size)
    return estimate(job, rate, prices, pricing, today, fit if request.gpu else memory_fit(spec, gpu))


def _job(request: EstimateRequest, work: str, gpu: str | None, num_gpus: int) -> TrainingJob:
    epochs = positive(request.epochs, "epochs")
    return TrainingJob(work=work, gpu=gpu, num_gpus=num_gpus, num_samples=request.num_samples, epochs=epochs)


def _on(request: EstimateRequest, rows: Sequence[ComparisonRow]) -> list[tuple[ComparisonRow, Rate]]:
    """Each row with its rate on the requested number of GPUs."""
    rated = [(row, measured_rate(row)) for row in rows]
    if request.num_gpus is None:
        return rated
    if measured := [pair for pair in rated if pair[1].num_gpus == request.num_gpus]:
        return measured
    if request.efficiency is None:
        sizes = listing(str(size) for size in sorted({rate.num_gpus for _, rate in rated}))
        raise EstimateError(
            f"nothing was measured on {count(request.num_gpus, 'GPU')}, only on {sizes}: choose one of these, or give "
            "the scaling efficiency that you expect"
        )
    largest = max(rate.num_gpus for _, rate in rated)
    return [
        (row, scaled_rate(rate, request.num_gpus, request.efficiency))
        for row, rate in rated
        if rate.num_gpus == largest
    ]


def _work(row: ComparisonRow) -> str:
    batch = "" if row.batch_per_rank is None else f", batch {row.batch_per_rank}"
    return f"{row.label}{batch}{f', {row.strategy}' if row.strategy else ''}"


def _measured_memory(row: ComparisonRow) -> MemoryFit | None:
    need_gb = row.figure(PEAK_MEMORY_GB)
    if need_gb is None:
        return None
    memory = gpu_memory_bytes(row.hardware)
    return MemoryFit(
        need_gb=need_gb,
        gpu_gb=None if memory is None else memory / 1e9,
        fits=True,
        smallest_gpu=None,
        sentence=f"Memory: a peak of {figure(need_gb, 3)} GB was measured on each GPU, so it fits.",
    )


def _spec(request: EstimateRequest, num_gpus: int) -> RunSpec:
    params = parse_params(request.changes)
    strategy = request.strategy or (Strategy.SINGLE if num_gpus == 1 else Strategy.DDP)
    if reason := impossible_reason(strategy, params):
        raise ParamsError(f"strategy {strategy}: {reason}")
    per_node = max(n for n in range(1, MAX_GPUS_PER_NODE + 1) if num_gpus % n == 0)
    nodes = [f"node-{number}" for number in range(1, num_gpus // per_node + 1)]
    try:
        return spec_of(params, strategy, nodes, per_node, "estimate")
    except ValidationError as error:
        raise ParamsError(f"the job is impossible: {explain(error)}") from None


def _none(details: Mapping[str, str], what: str) -> None:
    if details:
        raise EstimateError(f"{', '.join(details)} with {what}: details belong to spot and owned")
