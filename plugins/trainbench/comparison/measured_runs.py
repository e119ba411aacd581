"""Runs that stand in one row of a comparison: each figure is their median."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from bench_image.contract.result import RunResult
from trainbench.core.known_values import known_median
from trainbench.figure_catalogue.figure import Figure
from trainbench.figure_catalogue.run_figures import COST_FIGURES
from trainbench.prices.run_cost import RunCost


@dataclass(frozen=True, kw_only=True)
class MeasuredRuns:
    """`costs`: of the runs whose cost is known; none where only their results are compared."""

    results: tuple[RunResult, ...]
    costs: tuple[RunCost, ...] = ()

    def figure(self, figure: Figure) -> float | None:
        if figure in COST_FIGURES:
            return known_median(map(figure.value, self.costs))
        return self.median(figure.value)

    def median(self, value: Callable[[RunResult], float | None]) -> float | None:
        return known_median(map(value, self.results))
