"""Entries: the runs of one strategy on one number of GPUs, with their medians and the noise of these."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

from bench_image.contract.options import Strategy
from bench_image.contract.result import RunResult
from bench_image.contract.work import Device
from trainbench.comparison.comparable import WorkGroup
from trainbench.comparison.measured_runs import MeasuredRuns
from trainbench.core.formats import count, share
from trainbench.core.grouping import grouped
from trainbench.figure_catalogue.run_figures import PEAK_MEMORY_GB, SAMPLES_PER_SECOND, TOKENS_PER_SECOND


@dataclass(frozen=True, kw_only=True)
class Entry(MeasuredRuns):
    """The runs of one strategy at one size."""

    strategy: Strategy
    world_size: int

    @cached_property
    def tokens_per_s(self) -> float:
        return self.figure(TOKENS_PER_SECOND) or 0.0

    @cached_property
    def samples_per_s(self) -> float:
        return self.figure(SAMPLES_PER_SECOND) or 0.0

    @cached_property
    def memory_gb(self) -> float | None:
        return self.figure(PEAK_MEMORY_GB)

    @property
    def num_nodes(self) -> int:
        return max(result.spec.placement.nodes for result in self.results)

    @cached_property
    def nodes(self) -> frozenset[str]:
        """The machines of all runs."""
        return frozenset(
            name for result in self.results for name in (result.spec.identity.node, *result.spec.identity.peers)
        )

    @property
    def on_cpu(self) -> bool:
        return self.results[0].spec.work.device is Device.CPU

    @property
    def rank_noun(self) -> str:
        """ "GPU"; "process" on a CPU."""
        return self.results[0].spec.work.device.rank_noun

    @property
    def size(self) -> str:
        """ "4 GPUs", on a CPU "4 processes"; with the number of nodes when there are several."""
        of = f" of {count(self.num_nodes, 'node')}" if self.num_nodes > 1 else ""
        return f"{count(self.world_size, self.rank_noun)}{of}"

    @property
    def name(self) -> str:
        """ "ddp on 4 GPUs"."""
        return f"{self.strategy} on {self.size}"

    @cached_property
    def noise_pct(self) -> float:
        """Noise of the throughput in percent: the largest of half the range of the runs, half
        the range of the windows of one run, and the 95 % half-width of the mean step time.
        """
        rates = [r.performance.samples_per_second for r in self.results if r.performance.samples_per_second]
        return max([half_range_pct(rates), *(_within_pct(result) for result in self.results)])


def entries(group: WorkGroup, size: int) -> list[Entry]:
    """The entries of one world size, fastest first."""
    runs = grouped((r.spec.placement.strategy, r) for r in group.results if r.spec.placement.world_size == size)
    of_size = [Entry(strategy=strategy, world_size=size, results=tuple(of)) for strategy, of in runs.items()]
    return sorted(of_size, key=lambda entry: -entry.tokens_per_s)


def all_entries(group: WorkGroup) -> list[Entry]:
    """The entries of all world sizes, the smallest size first, within a size the fastest."""
    return [entry for size in world_sizes(group) for entry in entries(group, size)]


def world_sizes(group: WorkGroup) -> list[int]:
    """The numbers of GPUs that were measured, smallest first."""
    return sorted({result.spec.placement.world_size for result in group.results})


def apart_pct(one: Entry, other: Entry) -> float:
    """How far the slower lies below the faster, in percent of the faster."""
    low, high = sorted((one.tokens_per_s, other.tokens_per_s))
    return 100 * (1 - low / high) if high else 0.0


def both_noises_pct(one: Entry, other: Entry) -> float:
    """Noise of the difference of two independent figures, in percent: the root of the sum of their squares."""
    return math.hypot(one.noise_pct, other.noise_pct)


def is_tie(one: Entry, other: Entry) -> bool:
    """Whether two entries differ by no more than their noise."""
    return apart_pct(one, other) <= both_noises_pct(one, other)


def level_with(entry: Entry, others: Sequence[Entry]) -> list[Entry]:
    """The members of `others` that differ from `entry` by no more than the noise."""
    return [other for other in others if other is not entry and is_tie(entry, other)]


def tie_sentences(ranked: Sequence[Entry]) -> tuple[str, ...]:
    """A sentence for each pair of neighbours in the ranking whose difference is within their noise."""
    return tuple(
        f"{first.name} and {second.strategy} are level: {share(apart_pct(first, second))} apart, within their noise of "
        f"{share(both_noises_pct(first, second))}."
        for first, second in pairwise(ranked)
        if is_tie(first, second)
    )


def _within_pct(result: RunResult) -> float:
    performance = result.performance
    of_mean = performance.step_time.half_width_pct if performance.step_time else 0.0
    return max(of_mean, half_range_pct([window.samples_per_second for window in performance.windows]))


def half_range_pct(rates: Sequence[float]) -> float:
    """Half of (largest - smallest), in percent of the median; 0 without values."""
    return 50 * (max(rates) - min(rates)) / statistics.median(rates) if rates else 0.0
