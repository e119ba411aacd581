"""Cost in US dollars of runs that have ended. Unknown prices give None, never 0. The formulas are in quote.py."""

from __future__ import annotations

import math

from bench_image.contract.frozen import Slotted, fields_of, slotted
from bench_image.contract.result import RunResult, Status
from bench_image.contract.result_sections import Cost
from bench_image.contract.work import Device
from trainbench.prices.price_tables import Price
from trainbench.prices.quote import usd_per_1m_tokens, usd_per_1000_samples, where_known

NOT_PRICED = "CPU trial: not priced"


@slotted
class RunCost(Slotted):
    """Cost of one run at one price; every GPU of the gang is paid for. A CPU trial has no GPU-hours, and a cost only at
    a price that was given for it: per process and hour.
    """

    run_id: str
    usd_per_gpu_hour: float | None
    price_source: str | None
    price_as_of: str | None
    gpu_hours: float | None  # process start to result, all GPUs
    run_usd: float | None
    usd_per_1000_samples: float | None
    usd_per_1m_tokens: float | None
    reason: str | None  # why the figures are missing


def price_run(result: RunResult, price: Price | None) -> RunCost:
    """Cost of the run from process start to its result, and per sample and token at its throughput."""
    usd_per_gpu_hour = price.usd_per_gpu_hour if price else None
    total_s = result.startup.total_s
    num_gpus = result.spec.placement.world_size  # on the CPU: processes
    hours = total_s * num_gpus / 3600 if total_s is not None else None
    rates = (result.performance.samples_per_second, result.performance.tokens_per_second)
    samples_per_s, tokens_per_s = rates if result.status is Status.OK else (None, None)  # of work that was not done
    return RunCost(
        run_id=result.spec.identity.run_id,
        usd_per_gpu_hour=usd_per_gpu_hour,
        price_source=price.label if price else None,
        price_as_of=price.as_of.isoformat() if price and price.as_of else None,
        gpu_hours=None if result.spec.work.device is Device.CPU else hours,
        run_usd=hours * usd_per_gpu_hour if hours is not None and usd_per_gpu_hour is not None else None,
        usd_per_1000_samples=where_known(usd_per_1000_samples, usd_per_gpu_hour, num_gpus, samples_per_s),
        usd_per_1m_tokens=where_known(usd_per_1m_tokens, usd_per_gpu_hour, num_gpus, tokens_per_s),
        reason=_reason(result, price),
    )


def with_cost(result: RunResult, run_cost: RunCost) -> RunResult:
    """`result` with its section `cost` filled, and `missing` telling why the rest of that section is null."""
    cost = Cost(
        cost_per_1000_samples_usd=run_cost.usd_per_1000_samples,
        usd_per_gpu_hour=run_cost.usd_per_gpu_hour,
        price_source=run_cost.price_source,
        price_as_of=run_cost.price_as_of,
    )
    no_date = "the price was given for this run and has no date"
    missing = {path: reason for path, reason in result.missing.items() if path.split(".")[0] != "cost"}
    for name in fields_of(Cost):
        if getattr(cost, name) is None:
            is_date = name == "price_as_of" and run_cost.price_source is not None
            missing[f"cost.{name}"] = no_date if is_date else run_cost.reason or "the run measured no throughput"
    return result.model_copy(update={"cost": cost, "missing": missing})


def _reason(result: RunResult, price: Price | None) -> str | None:
    if price is None:
        names = sorted({gpu.name for gpu in result.context.gpus}) if result.context else []
        if names:
            return f"no price for {' + '.join(names)}: add it to the price table or give usd_per_gpu_hour"
        if result.spec.work.device is Device.CPU:
            return NOT_PRICED
        return "the run did not report its GPU: give usd_per_gpu_hour"
    if result.status is not Status.OK:
        return f"the run ended as {result.status.value}"
    if result.startup.total_s is None:
        return "the run's duration is not known"
    return None


def measured_joules(result: RunResult) -> float | None:
    """All GPUs of the run, within the measured windows; None where one of them reports none. One pod's own file of
    a gang has its own GPUs only.
    """
    known = [gpu.energy_j for gpu in result.telemetry.gpus if gpu.energy_j is not None]
    return math.fsum(known) if len(known) == result.spec.placement.world_size else None
