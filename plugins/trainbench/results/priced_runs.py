"""Results with their costs, at the price of each one's GPU."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache, partial
from typing import NamedTuple

from bench_image.contract.result import RunResult
from trainbench.core.verdicts import Finding
from trainbench.prices import price_tables, run_cost
from trainbench.prices.price_tables import Price
from trainbench.results.fault_isolation import FaultIsolation
from trainbench.results.readings import gpu_name
from trainbench.settings.environment import read_settings


class PricedRuns(NamedTuple):
    """`problems`: defects of the price table."""

    results: tuple[RunResult, ...]
    used: frozenset[Price]
    problems: tuple[Finding, ...]


def price_runs(results: Sequence[RunResult], usd_per_gpu_hour: float | None, parts: FaultIsolation) -> PricedRuns:
    """Each run with its cost. `usd_per_gpu_hour`: a given price for all. A run without a price has no cost."""
    table, problems = price_tables.usable_prices(read_settings().prices)
    price_of = cache(lambda gpu: price_tables.price_for(gpu, table, usd_per_gpu_hour))
    made, used = [], set[Price]()

    def priced(result: RunResult) -> RunResult:
        price = price_of(gpu_name(result))
        used.update([price] if price else [])
        return run_cost.priced(result, price)

    for run in results:
        failed = {"missing": run.missing | {"cost": "its cost could not be computed"}}
        with_cost = parts.attempt("pricing", run.spec.identity.run_id, partial(priced, run))
        made.append(with_cost or run.model_copy(update=failed))
    return PricedRuns(tuple(made), frozenset(used), problems)
