"""Scaling: throughput per GPU against that at fewer GPUs, and what more GPUs cost and save."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace

from bench_image.contract.options import Strategy
from bench_image.contract.result import RunResult
from trainbench.comparison.entries import Entry, both_noises_pct, work_groups
from trainbench.core.formats import NA, count, listing, share
from trainbench.core.grouping import grouped
from trainbench.figure_catalogue.run_figures import USD_PER_GPU_HOUR
from trainbench.results.setups import Machines

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


def efficiencies(results: Sequence[RunResult], *, with_bases: bool = False) -> tuple[Efficiency | None, ...]:
    """The efficiency of each result; None without a smaller number of GPUs of the same work, strategy and GPU.

    The base is the median of its runs on a machine of the result; of all of its runs where none shares one.
    `with_bases`: runs of a base get one too, against the median of the base on the same nodes: 100 % for a single run.
    """
    if len({result.spec.placement.world_size for result in results}) < 2:
        return (None,) * len(results)
    machines = Machines(results)
    by_run: dict[int, Efficiency | None] = {}
    for group in work_groups(results):
        runs = _by_size(group.results)
        for size, of in runs.items():
            if base := base_size(size, runs):
                beside, nodes = (
                    machines.beside(runs[base]),
                    {node for r in runs[base] for node in r.spec.identity.nodes},
                )
                names = listing(sorted(nodes))
                for result in of:
                    same = beside(result)
                    place = names if nodes.isdisjoint(result.spec.identity.nodes) else f"other GPUs of {names}"
                    by_run[id(result)] = Efficiency(
                        pct=100 * _per_gpu(result) / statistics.median(map(_per_gpu, same or runs[base])),
                        base_world_size=base[1],
                        base_strategy=base[0],
                        elsewhere=None if same else place,
                        rank_noun=result.spec.work.device.rank_noun,
                    )
        for base in {base for size in runs if (base := base_size(size, runs))} if with_bases else ():
            by_nodes = grouped((frozenset(result.spec.identity.nodes), result) for result in runs[base])
            for result in runs[base]:
                if id(result) not in by_run:  # the smallest size of all
                    middle = statistics.median(map(_per_gpu, by_nodes[frozenset(result.spec.identity.nodes)]))
                    by_run[id(result)] = Efficiency(
                        pct=100 * _per_gpu(result) / middle,
                        base_world_size=base[1],
                        base_strategy=base[0],
                        rank_noun=result.spec.work.device.rank_noun,
                    )
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


def scaling_texts(entries: Sequence[Entry], scaling: Callable[[Entry], Scaling | None]) -> tuple[str, ...]:
    """The column `scaling` of a table of one work and kind of GPU: "96.0 %", "100 % (base)", "n/a"."""
    known = [scaling(entry) for entry in entries]
    bases = {(of.efficiency.base_strategy, of.efficiency.base_world_size) for of in known if of}
    return tuple(
        of.text if of else "100 % (base)" if (entry.strategy, entry.world_size) in bases else NA
        for entry, of in zip(entries, known, strict=True)
    )


def base_size(size: Size, among: Collection[Size]) -> Size | None:
    """The smallest of `among` that is smaller and of the same strategy, or one GPU; None: there is none."""
    smaller = [other for other in among if other[0] in (size[0], Strategy.SINGLE) and other[1] < size[1]]
    return min(smaller, key=lambda other: other[1], default=None)


def _by_size(results: Sequence[RunResult]) -> dict[Size, list[RunResult]]:
    return grouped(((result.spec.placement.strategy, result.spec.placement.world_size), result) for result in results)


def _per_gpu(result: RunResult) -> float:
    return (result.performance.samples_per_second or 0.0) / result.spec.placement.world_size


@dataclass(frozen=True, kw_only=True, slots=True)
class ScalingPoint:
    """One strategy on one number of GPUs. `startup_s`: launch, import, build, compile, as a training run has them."""

    entry: Entry
    usd_per_gpu_hour: float | None
    startup_s: float | None

    @property
    def gpus(self) -> int:
        return self.entry.world_size

    @property
    def has_cost(self) -> bool:
        """Whether it costs USD or GPU-hours: on a CPU only where a price was given."""
        return self.usd_per_gpu_hour is not None or not self.entry.on_cpu

    def hours(self, num_samples: int) -> float:
        return num_samples / (self.entry.samples_per_s * 3600)

    def gpu_hours(self, num_samples: int) -> float:
        return self.hours(num_samples) * self.gpus

    def usd(self, num_samples: int) -> float | None:
        if self.usd_per_gpu_hour is None:
            return None
        return self.hours(num_samples) * (self.usd_per_gpu_hour * self.gpus)

    def price(self, num_samples: int) -> float:
        """USD; GPU-hours where no price is known. Compare prices of `comparable_points` only."""
        usd = self.usd(num_samples)
        return self.gpu_hours(num_samples) if usd is None else usd


@dataclass(frozen=True, kw_only=True, slots=True)
class ScalingStep:
    """The change from one point to a larger one, for some samples. `extra_usd` < 0: the larger one is cheaper."""

    base_hours: float
    hours: float
    extra_usd: float | None
    extra_pct: float  # of the base's cost: USD, or GPU-hours where no price is known
    is_within_noise: bool  # the difference in cost

    @property
    def usd_per_hour_saved(self) -> float | None:
        saved = self.base_hours - self.hours
        return self.extra_usd / saved if self.extra_usd is not None and self.extra_usd > 0 and saved > 0 else None


def scaling_point(entry: Entry) -> ScalingPoint:
    def startup_s(result: RunResult) -> float | None:
        parts = [getattr(result.startup, name) for name in ("launch_s", "import_s", "build_s", "compile_s")]
        return None if None in parts else sum(parts)

    usd = entry.figure(USD_PER_GPU_HOUR)
    return ScalingPoint(entry=entry, usd_per_gpu_hour=usd, startup_s=entry.median(startup_s))


def comparable_points(points: Sequence[ScalingPoint]) -> tuple[ScalingPoint, ...]:
    """The points with a throughput; all without prices if one has none, because only equal units are comparable."""
    kept = [point for point in points if point.entry.samples_per_s > 0]
    if all(point.usd_per_gpu_hour is not None for point in kept):
        return tuple(kept)
    return tuple(ScalingPoint(entry=point.entry, usd_per_gpu_hour=None, startup_s=point.startup_s) for point in kept)


def scaling_step(base: ScalingPoint, larger: ScalingPoint, num_samples: int) -> ScalingStep:
    before, after = base.price(num_samples), larger.price(num_samples)
    has_price = base.usd_per_gpu_hour is not None and larger.usd_per_gpu_hour is not None
    extra_pct = 100 * (after / before - 1)
    return ScalingStep(
        base_hours=base.hours(num_samples),
        hours=larger.hours(num_samples),
        extra_usd=after - before if has_price else None,
        extra_pct=extra_pct,
        is_within_noise=abs(extra_pct) <= both_noises_pct(base.entry, larger.entry),
    )


def worth_choosing(points: Sequence[ScalingPoint], num_samples: int) -> tuple[ScalingPoint, ...]:
    """The points that no other beats in both time and cost, fastest first; of equal points the smaller one."""
    kept: list[ScalingPoint] = []
    for point in sorted(points, key=lambda p: (p.hours(num_samples), p.price(num_samples), p.gpus)):
        if not kept or point.price(num_samples) < kept[-1].price(num_samples):
            kept.append(point)
    return tuple(kept)


def crossover_time_samples(smaller: ScalingPoint, larger: ScalingPoint) -> float | None:
    """The number of samples from which the larger finishes sooner, start-up counted; 0: always, None: never, or not
    known. start_s + samples / rate is equal for both at their difference in start_s over that in 1 / rate.
    """
    if smaller.startup_s is None or larger.startup_s is None:
        return None
    saved_s = 1 / smaller.entry.samples_per_s - 1 / larger.entry.samples_per_s
    return _crossover(larger.startup_s - smaller.startup_s, saved_s)


def crossover_cost_samples(smaller: ScalingPoint, larger: ScalingPoint) -> float | None:
    """The number of samples from which the larger costs less, start-up counted; 0: always, None: never, or not known.

    GPUs x price x (start_s + samples / rate) is equal for both. Without prices, both are taken to cost the same.
    """
    if smaller.startup_s is None or larger.startup_s is None:
        return None
    small_usd, large_usd = (p.gpus * (p.usd_per_gpu_hour or 1.0) for p in (smaller, larger))
    saved = small_usd / smaller.entry.samples_per_s - large_usd / larger.entry.samples_per_s
    return _crossover(large_usd * larger.startup_s - small_usd * smaller.startup_s, saved)


def _crossover(ahead: float, saved_per_sample: float) -> float | None:
    if saved_per_sample <= 0:
        return None
    return max(0.0, ahead / saved_per_sample)
