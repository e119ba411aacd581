"""How throughput grows with the number of GPUs, against the smallest world size that was measured."""

from __future__ import annotations

import json
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from bench_control.readings import gpu_name
from bench_image.contract import NOT_WORK, RunResult, Strategy

# One GPU is the base of every strategy, so the strategy counts as work only from two GPUs on.
_NOT_JOB = NOT_WORK | {"nodes", "gpus_per_node", "strategy"}


@dataclass(frozen=True, kw_only=True, slots=True)
class Efficiency:
    """`pct`: per-GPU throughput as a share of that at `base_world_size` GPUs."""

    pct: float
    base_world_size: int


def efficiencies(results: Sequence[RunResult]) -> tuple[Efficiency | None, ...]:
    """For each result; None where no smaller world size of the same work, strategy and GPU was measured.

    pct = 100 * (samples_per_s / world_size) / (base_samples_per_s / base_world_size); the base is its runs' median.
    """
    rates: dict[str, dict[tuple[Strategy, int], list[float]]] = {}
    for result in results:
        if result.performance.samples_per_second is not None:
            spec = result.spec
            per_gpu = result.performance.samples_per_second / spec.world_size
            rates.setdefault(_job(result), {}).setdefault((spec.strategy, spec.world_size), []).append(per_gpu)
    return tuple(_efficiency(result, rates.get(_job(result), {})) for result in results)


def _efficiency(result: RunResult, rates: dict[tuple[Strategy, int], list[float]]) -> Efficiency | None:
    spec, rate = result.spec, result.performance.samples_per_second
    bases = [key for key in rates if key[0] in (spec.strategy, Strategy.SINGLE) and key[1] < spec.world_size]
    if rate is None or not bases:
        return None
    base = min(bases, key=lambda key: key[1])
    pct = 100 * (rate / spec.world_size) / statistics.median(rates[base])
    return Efficiency(pct=pct, base_world_size=base[1])


def _job(result: RunResult) -> str:
    fields = result.spec.model_dump(mode="json", exclude=set(_NOT_JOB))
    return json.dumps([gpu_name(result), fields], sort_keys=True)
