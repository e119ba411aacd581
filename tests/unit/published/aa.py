"""A/A runs of the nightly check: how far equal runs lie apart, and how long they take."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator

from bench_image.contract.result import RunResult
from tests.unit.published.measured import folders, run
from trainbench.judging import noise

AA = "aa-h200-2026-11-22"


def runs(pattern: str) -> list[RunResult]:
    return [run(folder) for folder in folders(f"{AA}/{pattern}")]


def rates_by_gpu(pattern: str) -> list[list[float]]:
    """Of runs on two GPUs that work by themselves."""
    return [
        [
            rank.performance.samples_per_second or 0.0
            for result in runs(pattern)
            for rank in result.ranks[gpu : gpu + 1]
            if rank.performance
        ]
        for gpu in range(2)
    ]


def spread(*samples: list[float]) -> noise.Noise:
    """Standard deviation of log rates about each sample's mean, pooled."""
    logs = [[math.log(rate) for rate in sample] for sample in samples]
    squares = sum((value - statistics.fmean(sample)) ** 2 for sample in logs for value in sample)
    freedom = sum(len(sample) - 1 for sample in logs)
    return noise.Noise(math.sqrt(squares / freedom), freedom)


def beyond_chance_pct(actual: noise.Noise) -> float:
    return noise.to_pct(actual.half_width(1 + noise.median_variance(3)))


def cold_and_warm_s(pattern: str) -> tuple[float, list[float]]:
    """Start to result, without and with a compile cache."""
    cold, *warm = [result.startup.total_s or 0.0 for result in runs(pattern)]
    return cold, warm


def nightly_check() -> Iterator[str]:
    """The figures of the night in docs/internals/speed.md."""
    independent = spread(*rates_by_gpu("nights/night-independent-*"))
    cold_s, warm_s = cold_and_warm_s("nights/night-independent-*")
    yield (
        f"differ by {100 * independent.sd:.2f} % per GPU, so that among four nodes"
        f" {beyond_chance_pct(independent):.1f} % is more than chance. They take {cold_s:.0f} s from process start to"
        f" result with nothing cached, and {min(warm_s):.0f} to {max(warm_s):.0f} s with a compile cache"
    )


def noise_per_gpu() -> Iterator[str]:
    yield f"differ by {100 * spread(*rates_by_gpu('nights/night-independent-*')).sd:.2f} % per GPU"
