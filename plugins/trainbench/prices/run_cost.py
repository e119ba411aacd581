"""Cost in US dollars of runs that have ended, by the price in their section `cost`. What is unknown is None, never 0.
The formulas are in quote.py.
"""

from __future__ import annotations

import math

from bench_image.contract.frozen import fields_of
from bench_image.contract.result import RunResult, Status
from bench_image.contract.result_sections import Cost
from bench_image.contract.work import Device
from trainbench.prices.price_tables import Price
from trainbench.prices.quote import usd_per_1m_tokens, usd_per_1000_samples, where_known

NOT_PRICED = "CPU trial: not priced"


def priced(result: RunResult, price: Price | None) -> RunResult:
    """The result with its section `cost`, and `missing` telling why the rest of that section is null."""
    usd, rate = price.usd_per_gpu_hour if price else None, result.performance.samples_per_second
    of_ok = rate if result.status is Status.OK else None  # else it is the rate of work that was not done
    cost = Cost(
        cost_per_1000_samples_usd=where_known(usd_per_1000_samples, usd, result.spec.placement.world_size, of_ok),
        usd_per_gpu_hour=usd,
        price_source=price.label if price else None,
        price_as_of=price.as_of.isoformat() if price and price.as_of else None,
    )
    why = "the run measured no throughput"
    if price is None:
        names = sorted({gpu.name for gpu in result.context.gpus}) if result.context else []
        why = "the run did not report its GPU: give usd_per_gpu_hour"
        if names:
            why = f"no price for {' + '.join(names)}: add it to the price table or give usd_per_gpu_hour"
        elif result.spec.work.device is Device.CPU:
            why = NOT_PRICED
    elif result.status is not Status.OK:
        why = f"the run ended as {result.status.value}"
    missing = {path: reason for path, reason in result.missing.items() if path.split(".")[0] != "cost"}
    missing |= {f"cost.{name}": why for name in fields_of(Cost) if getattr(cost, name) is None}
    if price and not price.as_of:
        missing["cost.price_as_of"] = "the price was given for this run and has no date"
    return result.model_copy(update={"cost": cost, "missing": missing})


def gpu_hours(result: RunResult) -> float | None:
    """From process start to result, all GPUs of the gang. A CPU trial has none."""
    return None if result.spec.work.device is Device.CPU else _hours(result)


def run_usd(result: RunResult) -> float | None:
    """Of every GPU of the gang; of a CPU trial only at a price that was given for it: per process and hour."""
    hours, usd = _hours(result), result.cost.usd_per_gpu_hour
    return None if hours is None or usd is None else hours * usd


def run_usd_per_1m_tokens(result: RunResult) -> float | None:
    rate = result.performance.tokens_per_second if result.status is Status.OK else None
    return where_known(usd_per_1m_tokens, result.cost.usd_per_gpu_hour, result.spec.placement.world_size, rate)


def why_no_cost(result: RunResult) -> str | None:
    """Why a figure of its cost is unknown; None where all are known."""
    for name in ("usd_per_gpu_hour", "cost_per_1000_samples_usd"):
        if getattr(result.cost, name) is None:
            return result.missing.get(f"cost.{name}") or result.missing.get("cost", "it was not priced")
    return "the run's duration is not known" if result.startup.total_s is None else None


def cost_of(result: RunResult) -> dict[str, object]:
    """Its figures of money by name, for programs."""
    return {
        "run_id": result.spec.identity.run_id,
        "usd_per_gpu_hour": result.cost.usd_per_gpu_hour,
        "price_source": result.cost.price_source,
        "price_as_of": result.cost.price_as_of,
        "gpu_hours": gpu_hours(result),
        "run_usd": run_usd(result),
        "usd_per_1000_samples": result.cost.cost_per_1000_samples_usd,
        "usd_per_1m_tokens": run_usd_per_1m_tokens(result),
        "reason": why_no_cost(result),
    }


def _hours(result: RunResult) -> float | None:
    """On the CPU of its processes."""
    total_s = result.startup.total_s
    return None if total_s is None else total_s * result.spec.placement.world_size / 3600


def measured_joules(result: RunResult) -> float | None:
    """All GPUs of the run, within the measured windows; None where one of them reports none. One pod's own file of
    a gang has its own GPUs only.
    """
    known = [gpu.energy_j for gpu in result.telemetry.gpus if gpu.energy_j is not None]
    return math.fsum(known) if len(known) == result.spec.placement.world_size else None
