"""Results with their costs, at the price of each one's GPU."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache, partial
from typing import Any, NamedTuple

from bench_image.contract.frozen import fields_of
from bench_image.contract.result import RunResult
from trainbench.core.verdicts import Finding
from trainbench.prices import price_tables, run_cost
from trainbench.prices.price_tables import Price
from trainbench.prices.run_cost import RunCost
from trainbench.results.fault_isolation import FaultIsolation
from trainbench.results.readings import gpu_name
from trainbench.settings.environment import read_settings


class PricedRuns(NamedTuple):
    """One cost for each result, in their order. `problems`: defects of the price table."""

    results: tuple[RunResult, ...]
    costs: tuple[RunCost, ...]
    used: frozenset[Price]
    problems: tuple[Finding, ...]


def price_runs(results: Sequence[RunResult], usd_per_gpu_hour: float | None, parts: FaultIsolation) -> PricedRuns:
    """The cost of each run. `usd_per_gpu_hour`: a given price for all. A run without a price has no cost."""
    table, problems = price_tables.usable_prices(read_settings().prices)
    price_of = cache(lambda gpu: price_tables.price_for(gpu, table, usd_per_gpu_hour))

    def priced(result: RunResult) -> tuple[RunResult, RunCost, Price | None]:
        price = price_of(gpu_name(result))
        cost = run_cost.price_run(result, price)
        return run_cost.with_cost(result, cost), cost, price

    def unpriced(result: RunResult) -> tuple[RunResult, RunCost, None]:
        unknown: dict[str, Any] = dict.fromkeys(fields_of(RunCost))
        known = {"run_id": result.spec.identity.run_id, "reason": "its cost could not be computed"}
        return result, RunCost(**unknown | known), None

    each = [
        parts.attempt("pricing", run.spec.identity.run_id, partial(priced, run)) or unpriced(run) for run in results
    ]
    return PricedRuns(
        results=tuple(result for result, _, _ in each),
        costs=tuple(cost for _, cost, _ in each),
        used=frozenset(price for _, _, price in each if price),
        problems=tuple(problems),
    )
