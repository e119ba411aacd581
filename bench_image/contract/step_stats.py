"""Statistics of step times: quantiles, spread, confidence of the mean."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence

from bench_image.contract.result_sections import Clock, StepTime

# 97.5 % quantiles of Student's t with 1..9 degrees of freedom; above that an expansion is exact to 4 digits.
_T_975 = (12.7062, 4.3027, 3.1824, 2.7764, 2.5706, 2.4469, 2.3646, 2.3060, 2.2622)


def quantile(values: Sequence[float], share: float) -> float:
    """Quantile by linear interpolation between order statistics, as numpy's default. `share` is in 0..1."""
    ordered = sorted(values)
    position = share * (len(ordered) - 1)
    low = math.floor(position)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (position - low) * (ordered[high] - ordered[low])


def half_width_pct(values: Sequence[float]) -> float | None:
    """Half-width of the 95 % confidence interval of the mean, in percent of the mean: 100 t s / (sqrt(n) mean).

    t: Student's, n - 1 degrees of freedom; s: sample standard deviation. Assumes independent values. None for fewer
    than two values, which show no spread.
    """
    if len(values) < 2:
        return None
    standard_error = statistics.stdev(values) / math.sqrt(len(values))
    return 100 * t_975(len(values) - 1) * standard_error / statistics.fmean(values)


def t_975(degrees: int) -> float:
    """97.5 % quantile of Student's t: the factor of a two-sided 95 % interval."""
    if degrees <= len(_T_975):
        return _T_975[degrees - 1]
    z = statistics.NormalDist().inv_cdf(0.975)
    # Expansion of t in powers of 1 / degrees: Abramowitz & Stegun 26.7.5.
    first = (z**3 + z) / 4
    second = (5 * z**5 + 16 * z**3 + 3 * z) / 96
    third = (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384
    fourth = (79 * z**9 + 776 * z**7 + 1482 * z**5 - 1920 * z**3 - 945 * z) / 92_160
    return z + first / degrees + second / degrees**2 + third / degrees**3 + fourth / degrees**4


def window_s(clock: Clock, wall_s: float, step_times_s: Sequence[float]) -> float:
    """Seconds of a window by the run's clock; CPU time is the sum of the step times, without gaps."""
    return wall_s if clock is Clock.WALL else math.fsum(step_times_s)


def window_rate(clock: Clock, wall_s: float, step_times_s: Sequence[float], samples_per_step: int) -> float:
    """Samples per second of a window. `samples_per_step`: of all ranks."""
    return len(step_times_s) * samples_per_step / window_s(clock, wall_s, step_times_s)


def step_time(step_times_s: Sequence[float]) -> StepTime:
    """Summary of at least two step times in seconds. Raises ValueError for fewer."""
    half_width = half_width_pct(step_times_s)
    if half_width is None:
        raise ValueError(f"{len(step_times_s)} step times: at least 2 are needed to state a spread")
    mean = statistics.fmean(step_times_s)
    return StepTime(
        mean_s=mean,
        median_s=statistics.median(step_times_s),
        p5_s=quantile(step_times_s, 0.05),
        p95_s=quantile(step_times_s, 0.95),
        min_s=min(step_times_s),
        max_s=max(step_times_s),
        cv_pct=100 * statistics.stdev(step_times_s) / mean,
        half_width_pct=half_width,
    )
