"""How throughput grows with the number of GPUs, against the smallest world size that was measured."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from bench_control.comparison import work_groups
from bench_image.contract import RunResult, Strategy


@dataclass(frozen=True, kw_only=True, slots=True)
class Efficiency:
    """`pct`: per-GPU throughput as a share of that at `base_world_size` GPUs with `base_strategy`."""

    pct: float
    base_world_size: int
    base_strategy: Strategy


def efficiencies(results: Sequence[RunResult]) -> tuple[Efficiency | None, ...]:
    """For each result; None where no smaller world size of the same work, strategy and GPU was measured.

    pct = 100 * (samples_per_s / world_size) / (base_samples_per_s / base_world_size); the base is its runs' median.
    One GPU needs no strategy: a `single` run is the one-GPU point of each of them.
    """
    found: dict[int, Efficiency | None] = {}
    for group in work_groups(results):
        rates: dict[tuple[Strategy, int], list[float]] = {}
        for result in group.results:
            rates.setdefault((result.spec.strategy, result.spec.world_size), []).append(_per_gpu(result))
        found |= {id(result): _efficiency(result, rates) for result in group.results}
    return tuple(found.get(id(result)) for result in results)


def _efficiency(result: RunResult, rates: dict[tuple[Strategy, int], list[float]]) -> Efficiency | None:
    spec = result.spec
    bases = [key for key in rates if key[0] in (spec.strategy, Strategy.SINGLE) and key[1] < spec.world_size]
    if not bases:
        return None
    base = min(bases, key=lambda key: key[1])
    pct = 100 * _per_gpu(result) / statistics.median(rates[base])
    return Efficiency(pct=pct, base_world_size=base[1], base_strategy=base[0])


def _per_gpu(result: RunResult) -> float:
    return (result.performance.samples_per_second or 0.0) / result.spec.world_size
