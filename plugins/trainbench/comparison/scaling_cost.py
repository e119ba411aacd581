"""Time and cost of a number of samples on each number of GPUs, and from how many samples a larger one pays.

Every GPU is paid for as long as the work runs. `Point.hours` and `.usd` leave start-up out; `crossover_*` count it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from bench_image.contract.result import RunResult
from trainbench.comparison.entries import Entry, both_noises_pct


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

    base: ScalingPoint
    larger: ScalingPoint
    base_hours: float
    hours: float
    extra_usd: float | None
    extra_pct: float  # of the base's cost: USD, or GPU-hours where no price is known
    is_within_noise: bool  # the difference in cost

    @property
    def usd_per_hour_saved(self) -> float | None:
        saved = self.base_hours - self.hours
        return self.extra_usd / saved if self.extra_usd is not None and self.extra_usd > 0 and saved > 0 else None


def scaling_point(entry: Entry, usd_per_gpu_hour: Callable[[RunResult], float | None]) -> ScalingPoint:
    return ScalingPoint(
        entry=entry, usd_per_gpu_hour=entry.median(usd_per_gpu_hour), startup_s=entry.median(_startup_s)
    )


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
        base=base,
        larger=larger,
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


def _startup_s(result: RunResult) -> float | None:
    parts = [getattr(result.startup, name) for name in ("launch_s", "import_s", "build_s", "compile_s")]
    return None if None in parts else sum(parts)
