"""How throughput grows with the number of GPUs, against the smallest world size that was measured."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass

from bench_control.comparing.comparison import work_groups
from bench_control.comparing.entries import Entry
from bench_control.words.formats import count
from bench_image.contract import RunResult, Strategy

Size = tuple[Strategy, int]  # and number of GPUs
_Base = tuple[float, tuple[str, ...]]  # median samples/s per GPU, and the machines that it was measured on


@dataclass(frozen=True, kw_only=True, slots=True)
class Efficiency:
    """`pct`: per-GPU throughput as a share of that at `base_world_size` GPUs with `base_strategy`.

    `strange_nodes`: the machines of the base when the larger size used none of them: their own speed is in `pct` too.
    """

    pct: float
    base_world_size: int
    base_strategy: Strategy
    strange_nodes: tuple[str, ...] = ()

    @property
    def base(self) -> str:
        return f"{self.base_strategy} on {count(self.base_world_size, 'GPU')}"


def efficiencies(results: Sequence[RunResult]) -> tuple[Efficiency | None, ...]:
    """For each result; None where no smaller world size of the same work, strategy and GPU was measured.

    pct = 100 * (samples_per_s / world_size) / (base_samples_per_s / base_world_size); the base is its runs' median.
    One GPU needs no strategy: a `single` run is the one-GPU point of each of them.
    """
    found: dict[int, Efficiency | None] = {}
    for group in work_groups(results):
        runs: dict[Size, list[RunResult]] = {}
        for result in group.results:
            runs.setdefault((result.spec.strategy, result.spec.world_size), []).append(result)
        bases = {size: _base(of) for size, of in runs.items()}
        for size, of in runs.items():
            if base := _base_size(size, runs):
                per_gpu, nodes = bases[base]
                known = frozenset(nodes)
                found |= {
                    id(result): Efficiency(
                        pct=100 * _per_gpu(result) / per_gpu,
                        base_world_size=base[1],
                        base_strategy=base[0],
                        strange_nodes=nodes if known.isdisjoint(_nodes(result)) else (),
                    )
                    for result in of
                }
    return tuple(found.get(id(result)) for result in results)


def entry_efficiencies(results: Sequence[RunResult]) -> Callable[[Entry], float | None]:
    """Of the runs in `results`: entry -> the median efficiency of its runs in percent; None without a base."""
    by_run = {id(result): found for result, found in zip(results, efficiencies(results), strict=True)}

    def of(entry: Entry) -> float | None:
        known = [found.pct for result in entry.results if (found := by_run.get(id(result)))]
        return statistics.median(known) if known else None

    return of


def _base(runs: Sequence[RunResult]) -> _Base:
    return statistics.median(map(_per_gpu, runs)), tuple(sorted({name for run in runs for name in _nodes(run)}))


def _base_size(size: Size, among: Collection[Size]) -> Size | None:
    smaller = [other for other in among if other[0] in (size[0], Strategy.SINGLE) and other[1] < size[1]]
    return min(smaller, key=lambda other: other[1], default=None)


def _nodes(result: RunResult) -> tuple[str, ...]:
    return (result.spec.node, *result.spec.peers)


def _per_gpu(result: RunResult) -> float:
    return (result.performance.samples_per_second or 0.0) / result.spec.world_size
