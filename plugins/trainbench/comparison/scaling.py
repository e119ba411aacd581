"""How throughput grows with the number of GPUs: the one scale of thresholds, patterns, tables, plots and advice.

**Base.** The smallest number of GPUs that was measured for the same work, strategy and kind of GPU; one GPU needs no
strategy, so a `single` run is the base of each of them. **Efficiency** = 100 * (samples/s per GPU) / (samples/s per GPU
of the base): 100 % is as cheap per sample as the base, and 100 / N % on N times the base's GPUs is as fast as the base.

A published comparison calls 35 to 45 % on four GPUs good and warns below 30 %, with two GPUs taken for one: its
"36.5 %" is 12,220 / (4 * 8,369), where 8,369 tokens/s are those of two GPUs. Against the throughput of one GPU these
are twice as much, and so are the limits here.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace

from bench_image.contract.options import Strategy
from bench_image.contract.result import RunResult
from trainbench.comparison.comparable import work_groups
from trainbench.comparison.entries import Entry, both_noises_pct
from trainbench.core.formats import count, listing, share
from trainbench.core.grouping import grouped
from trainbench.results.same_machine import Machines, nodes_of

MIN_SCALING_PCT = 60.0  # below it a larger gang is not worth its GPUs: 2 * 30 %
GOOD_SCALING_PCT = 70.0  # 2 * 35 %

Size = tuple[Strategy, int]  # and number of GPUs


@dataclass(frozen=True, kw_only=True, slots=True)
class Efficiency:
    """`pct`: per-GPU throughput as a share of that at `base_world_size` GPUs with `base_strategy`.

    `elsewhere`: where the base ran when none of its runs shares a machine with the larger size ("node-7", "other GPUs
    of node-1"): the machines' own speed is in `pct` then, so it is shown and marked, and no reason for any advice.
    """

    pct: float
    base_world_size: int
    base_strategy: Strategy
    elsewhere: str | None = None
    rank_noun: str = "GPU"  # "process" on a CPU

    @property
    def base_size(self) -> str:
        """ "2 GPUs"."""
        return count(self.base_world_size, self.rank_noun)

    @property
    def base(self) -> str:
        return f"{self.base_strategy} on {self.base_size}"


@dataclass(frozen=True, kw_only=True, slots=True)
class Scaling:
    """The efficiency of an entry: the median of its runs. `noise_pct`: how far chance may have moved `pct`."""

    efficiency: Efficiency
    noise_pct: float
    world_size: int

    @property
    def pct(self) -> float:
        return self.efficiency.pct

    @property
    def speed_up(self) -> float:
        """Throughput as a multiple of the base's."""
        return self.pct / 100 * self.world_size / self.efficiency.base_world_size

    @property
    def is_no_faster(self) -> bool:
        """Whether the larger size is no faster than the base, within the noise."""
        return self.speed_up <= 1 + self.noise_pct / 100

    @property
    def is_dearer(self) -> bool:
        """Whether a sample costs more than on the base at one price per GPU, by more than the noise."""
        return self.pct < 100 - self.noise_pct

    @property
    def text(self) -> str:
        """ "96.0 %", marked where the base ran on another machine."""
        return f"{share(self.pct)} (base elsewhere)" if self.efficiency.elsewhere else share(self.pct)


def efficiencies(results: Sequence[RunResult]) -> tuple[Efficiency | None, ...]:
    """The efficiency of each result; None without a smaller number of GPUs of the same work, strategy and GPU.

    The base is the median of its runs on a machine of the result; of all of its runs where none shares one.
    """
    if len({result.spec.placement.world_size for result in results}) < 2:
        return (None,) * len(results)
    machines = Machines(results)
    by_run: dict[int, Efficiency | None] = {}
    for group in work_groups(results):
        runs = _by_size(group.results)
        for size, of in runs.items():
            if base := base_size(size, runs):
                beside = machines.beside(runs[base])
                by_run |= {id(result): _efficiency(result, base, runs[base], beside(result)) for result in of}
    return tuple(by_run.get(id(result)) for result in results)


def entry_scaling(results: Sequence[RunResult]) -> Callable[[Entry], Scaling | None]:
    """Entry -> the scaling of its runs in `results`; None without a base."""
    by_run = {id(result): efficiency for result, efficiency in zip(results, efficiencies(results), strict=True)}
    runs_beside = {id(result): group.results for group in work_groups(results) for result in group.results}

    def of(entry: Entry) -> Scaling | None:
        known = [(result, efficiency) for result in entry.results if (efficiency := by_run.get(id(result)))]
        if not known:
            return None
        result, first = known[0]
        base = (first.base_strategy, first.base_world_size)
        base_runs = tuple(_by_size(runs_beside[id(result)])[base])
        elsewhere = list(dict.fromkeys(efficiency.elsewhere for _, efficiency in known if efficiency.elsewhere))
        return Scaling(
            efficiency=replace(
                first,
                pct=statistics.median(efficiency.pct for _, efficiency in known),
                elsewhere=listing(elsewhere) if elsewhere else None,
            ),
            noise_pct=both_noises_pct(entry, Entry(strategy=base[0], world_size=base[1], results=base_runs)),
            world_size=entry.world_size,
        )

    return of


def base_size(size: Size, among: Collection[Size]) -> Size | None:
    """The smallest of `among` that is smaller and of the same strategy, or one GPU; None: there is none."""
    smaller = [other for other in among if other[0] in (size[0], Strategy.SINGLE) and other[1] < size[1]]
    return min(smaller, key=lambda other: other[1], default=None)


def _by_size(results: Sequence[RunResult]) -> dict[Size, list[RunResult]]:
    return grouped(((result.spec.placement.strategy, result.spec.placement.world_size), result) for result in results)


def _efficiency(result: RunResult, base: Size, base_runs: Sequence[RunResult], same: Sequence[RunResult]) -> Efficiency:
    """`same`: the runs of the base that used a machine of the result."""
    per_gpu = statistics.median(map(_per_gpu, same or base_runs))
    return Efficiency(
        pct=100 * _per_gpu(result) / per_gpu,
        base_world_size=base[1],
        base_strategy=base[0],
        elsewhere=None if same else _place(result, base_runs),
        rank_noun=result.spec.work.device.rank_noun,
    )


def _place(result: RunResult, base_runs: Sequence[RunResult]) -> str:
    nodes = frozenset[str]().union(*map(nodes_of, base_runs))
    names = listing(sorted(nodes))
    return names if nodes.isdisjoint(nodes_of(result)) else f"other GPUs of {names}"


def _per_gpu(result: RunResult) -> float:
    return (result.performance.samples_per_second or 0.0) / result.spec.placement.world_size
