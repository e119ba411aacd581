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


def rates(pattern: str) -> list[float]:
    return [result.performance.samples_per_second or 0.0 for result in runs(pattern) if result.performance]


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
    """The figures of the night in docs/dags.md."""
    independent = spread(*rates_by_gpu("nights/night-independent-*"))
    cold_s, warm_s = cold_and_warm_s("nights/night-independent-*")
    yield (
        f"differ by {100 * independent.sd:.2f} % per GPU, so that among four nodes"
        f" {beyond_chance_pct(independent):.1f} % is more than chance. They take {cold_s:.0f} s from process start to"
        f" result with nothing cached, and {min(warm_s):.0f} to {max(warm_s):.0f} s with a compile cache"
    )


def noise_per_gpu() -> Iterator[str]:
    yield f"differ by {100 * spread(*rates_by_gpu('nights/night-independent-*')).sd:.2f} % per GPU"


ROWS = {  # folder and runs: decimals of the standard deviation
    ("nights", "night-independent-*"): 2,
    ("ddp", "night-ddp-*"): 2,
    ("presets", "tuned-*"): 2,
    ("presets", "as-users-run-*"): 1,
    ("redesign", "tuned-*"): 2,
    ("redesign-nights", "night-independent-*"): 2,
    ("redesign-nights", "night-ddp-*"): 2,
    ("nights", "night-ddp-*"): 2,
    ("ddp-512", "night-ddp-*"): 1,
}


def note() -> Iterator[str]:
    """The README beside the runs."""
    for (folder, names), decimals in ROWS.items():
        pattern, by_gpu = f"{folder}/{names}", "independent" in names
        samples = rates_by_gpu(pattern) if by_gpu else [rates(pattern)]
        every = [rate for sample in samples for rate in sample]
        actual = spread(*samples)
        cold_s, warm_s = cold_and_warm_s(pattern)
        warm = f"{min(warm_s):.1f} to {max(warm_s):.1f} s" if len(warm_s) > 1 else f"{warm_s[0]:.1f} s"
        yield (
            f"| {min(every):.2f} to {max(every):.2f}{' a GPU' * by_gpu} |"
            f" {100 * actual.sd:.{decimals}f} %{' (pooled over the GPUs)' * by_gpu} |"
            f" {beyond_chance_pct(actual):.1f} % | {cold_s:.1f} s | {warm} |"
        )
    yield from redesign()
    yield f"between those of `redesign`: {rates('redesign/as-users-run-*')[0]:.2f} samples/s."
    yield from cold_starts()


def redesign() -> Iterator[str]:
    """First losses, and peaks of memory, of the nights after the redesign and before."""
    losses, peaks_mb = [], []
    for after, before in (
        ("redesign-nights/night-independent-*", "nights/night-independent-*"),
        ("redesign-nights/night-ddp-*", "ddp/night-ddp-*"),
    ):
        both = [runs(pattern) for pattern in (after, before)]
        for results in both:
            first = [result.performance.first_loss or 0 for result in results if result.performance]
            losses += [f"{min(first):.4f} to {max(first):.4f}"]
        peaks = [(result.memory.peak_allocated_bytes or 0) / 1e6 for of in both for result in of if result.memory]
        peaks_mb.append(max(peaks) - min(peaks))
    yield f"losses are {losses[0]} (before {losses[1]}) and {losses[2]} (before {losses[3]})"
    yield f"the peaks of memory differ by {max(peaks_mb):.1f} MB at most"
    patterns = ("redesign/tuned-*", "redesign-nights/night-ddp-*")
    unsure = [beyond_chance_pct(spread(rates(pattern))) for pattern in patterns]
    night = beyond_chance_pct(spread(*rates_by_gpu("redesign-nights/night-independent-*")))
    yield f"hence {unsure[0]:.1f}, {night:.1f} and {unsure[1]:.1f} %."


def cold_starts() -> Iterator[str]:
    """Of `ddp` and `tuned`: the first run of each folder."""
    cold = [runs(pattern)[0].startup for pattern in ("ddp/night-ddp-*", "presets/tuned-*")]
    totals, imports, compiles = (
        sorted(getattr(of, name) for of in cold) for name in ("total_s", "import_s", "compile_s")
    )
    windows_s = sorted({f"{of.measure_s or 0:.0f}" for of in cold})
    yield (
        f"Of the {totals[0]:.0f} to {totals[1]:.0f} s of a cold `ddp` or of `tuned` with an empty page cache,"
        f" {imports[0]:.0f} to {imports[1]:.0f} s are imports, {compiles[0]:.0f} to {compiles[1]:.0f} s compilation"
        f" and {windows_s[0]} s the windows."
    )
