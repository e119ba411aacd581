"""Figures of LoRA with 8-bit products of its frozen weights."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import scipy.stats

from bench_image.contract.gpu_specs import PEAK_TFLOPS
from tests.unit.published.measured import (
    FLOAT8_LORA,
    document,
    each,
    mfu_pct,
    peak_gb,
    performance,
    probe_share_pct,
    probe_tflops,
    row,
    run,
    tokens_per_s,
)

HIDDEN, INNER, KV = 4096, 14_336, 1024
GROUPS = {
    "q, k, v": ((HIDDEN, KV, KV), HIDDEN), "o": ((HIDDEN,), HIDDEN), "gate, up": ((INNER, INNER), HIDDEN),
    "down": ((HIDDEN,), INNER),
}  # fmt: skip
RUNS = {
    precision: [f"{FLOAT8_LORA}/lora-{precision}-1-gpus-{turn}" for turn in (1, 2)] for precision in ("bf16", "fp8")
}
PEAK = PEAK_TFLOPS["H200"]
assert PEAK.bf16
assert PEAK.fp8
PEAKS = {"bf16": PEAK.bf16, "fp8": PEAK.fp8}


def page() -> Iterator[str]:
    """What docs/internals/performance.md says."""
    bf16_pct, fp8_pct = (each(map(share_of_peak_pct, RUNS[kind]), ".0f") for kind in ("bf16", "fp8"))
    yield (
        f"{each(map(probe_tflops, RUNS['fp8']), ',.0f')} TFLOP/s in the LoRA runs, {fp8_pct} % of the peak, as the bf16"
        f" probe's {bf16_pct} % of its own."
    )
    *own, before = pairs()
    delays = [pair.delay() for pair in own]
    falls = [first_below(losses) for name, losses in stream_losses(STREAM).items() if "bf16" in name]
    yield f"falls after {min(falls)} to {max(falls)} steps in bf16"
    yield f"fp8 falls between {-min(delays)} step earlier and {max(delays)} later, and {before.delay()} later in a run"
    yield f"ends {ends_apart(own)} higher with fp8, {before.ends_apart_pct():.2f} % in the run before;"
    yield f"equal runs in bf16 differ by up to {most_repeated()[1]:.2f} %"
    assert min(pair.ends_apart_pct() for pair in pairs()) > 0


def note() -> Iterator[str]:
    """What the folder's README says."""
    yield from whole_runs()
    yield from losses_of_the_stream()
    yield from losses_by_heart()


def whole_runs() -> Iterator[str]:
    for turn in (0, 1):
        for precision, folders in RUNS.items():
            folder = folders[turn]
            yield row(
                f"`{folder.split('/')[1]}`",
                f"{tokens_per_s(folder):,.0f}",
                ", ".join(f"{window.samples_per_second:.3f}" for window in performance(folder).windows),
                f"{mfu_pct(folder):.1f} %",
                f"{mfu_pct(folder) * PEAKS[precision] / PEAKS['bf16']:.1f} %",
                f"{peak_gb(folder):.3f} GB",
                f"{probe_tflops(folder):,.0f}",
                f"{probe_share_pct(folder):.1f} %",
            )
    rates = {precision: list(map(tokens_per_s, folders)) for precision, folders in RUNS.items()}
    ratios = [fp8 / bf16 for fp8 in rates["fp8"] for bf16 in rates["bf16"]]
    yield f"**{sum(rates['fp8']) / sum(rates['bf16']):.2f} times bf16** (each fp8 run over each bf16 run:"
    yield f"{min(ratios):.3f} to {max(ratios):.3f}); runs of one kind differ by 0.15 % at most."
    assert all(max(pair) / min(pair) < 1.0015 for pair in rates.values())
    more_mb = 1e3 * (peak_gb(RUNS["fp8"][0]) - peak_gb(RUNS["bf16"][0]))
    scales_mb = 4 * 32 * sum(sum(rows) + features for rows, features in GROUPS.values()) / 1e6  # fp32, of 32 layers
    yield f"the {more_mb:.1f} MB more are mostly the scales ({scales_mb:.1f} MB)."
    for precision, form in (("fp8", "{} % of the peak of {:,.0f} TFLOP/s"), ("bf16", "{} % of {:,.0f} TFLOP/s")):
        yield form.format(each(map(share_of_peak_pct, RUNS[precision]), ".0f"), PEAKS[precision])


def share_of_peak_pct(folder: str) -> float:
    """The matmul probe's rate, of the GPU's peak in the run's precision."""
    return 100 * probe_tflops(folder) / PEAKS[run(folder).spec.work.precision]


def losses_by_heart() -> Iterator[str]:
    """Means over the measured steps that all whole runs made."""
    losses = document(f"{FLOAT8_LORA}/losses-of-turns.json")
    common = min(map(len, losses.values()))
    bf16, fp8 = (
        [statistics.fmean(losses[folder.split("/")[1]][:common]) for folder in RUNS[kind]] for kind in ("bf16", "fp8")
    )
    more = each((100 * (mine / theirs - 1) for mine, theirs in zip(fp8, bf16, strict=True)), ".2f")
    yield f"over the {common} measured steps that all of the runs above made"
    yield f"mean loss is {each(bf16, '.3f')} in bf16, {each(fp8, '.3f')} in fp8, {more} % more"


class Pair(NamedTuple):
    """Losses of runs from the same weights."""

    seed: int
    bf16: Sequence[float]
    fp8: Sequence[float]

    def delay(self) -> int:
        """How many steps later the loss of fp8 falls."""
        return first_below(self.fp8) - first_below(self.bf16)

    def ends_apart_pct(self) -> float:
        return 100 * (statistics.fmean(self.fp8[END]) / statistics.fmean(self.bf16[END]) - 1)


END = slice(140, 200)
FILES = STREAM, FIRST_STREAM = "losses.json", "losses-first.json"


def stream_losses(file: str) -> dict[str, list[float]]:
    losses: dict[str, list[float]] = document(f"{FLOAT8_LORA}/{file}")["losses"]
    return losses


def pairs() -> list[Pair]:
    """Of seeds 0 to 3; last the pair of seed 0 that was measured before."""
    losses, before = map(stream_losses, FILES)
    own = [Pair(seed, losses[f"chain, bf16, seed {seed}"], losses[f"chain, fp8, seed {seed}"]) for seed in range(4)]
    return [*own, Pair(0, before["chain, bf16"], before["chain, fp8, fast: all"])]


def losses_of_the_stream() -> Iterator[str]:
    *own, before = pairs()
    for pair, name in ((pair, str(pair.seed)) for pair in own):
        yield row(name, *cells_of(pair))
    yield row("0, before", *cells_of(before))
    for name, losses in (
        ("1, before", stream_losses(FIRST_STREAM)["chain, bf16, seed 1"]),
        ("4", stream_losses(STREAM)["chain, bf16, seed 4"]),
    ):
        yield row(name, str(first_below(losses)), "", "", f"{statistics.fmean(losses[END]):.4f}", "", "")
    delays = [pair.delay() for pair in own]
    mean = statistics.fmean(delays)
    half_width = scipy.stats.t.ppf(0.975, len(delays) - 1) * statistics.stdev(delays) / math.sqrt(len(delays))
    yield f"the mean of the four is {mean:.2f} ± {half_width:.1f} steps (95 %, Student)"
    falls = [first_below(losses) for losses in stream_losses(STREAM).values()]
    bf16 = falls[::2]
    yield f"Other weights move it from {min(bf16)} to {max(bf16)}, a repeated run by up to {most_repeated()[0]} steps."
    yield f"{ends_apart(own)} higher, {before.ends_apart_pct():.2f} % in the pair before, where"
    yield f"repeated runs in bf16 differ by up to {most_repeated()[1]:.2f} %"
    peaks = {
        kind: max(max(losses[20:]) for file in FILES for name, losses in stream_losses(file).items() if kind in name)
        for kind in PEAKS
    }
    yield f"up to {peaks['bf16']:.1f} in bf16 and {peaks['fp8']:.1f} with fp8"


def cells_of(pair: Pair) -> list[str]:
    ends = (statistics.fmean(losses[END]) for losses in (pair.bf16, pair.fp8))
    falls = (str(first_below(losses)) for losses in (pair.bf16, pair.fp8))
    return [*falls, f"{pair.delay():+d}", *(f"{end:.4f}" for end in ends), f"{pair.ends_apart_pct():+.2f} %"]


def ends_apart(own: Sequence[Pair]) -> str:
    apart = [pair.ends_apart_pct() for pair in own]
    return f"{min(apart):.2f} to {max(apart):.2f} %"


def most_repeated() -> tuple[int, float]:
    """Largest difference of two runs in bf16 from the same weights: of the fall in steps, of the end in percent."""
    now, before = map(stream_losses, FILES)
    same = [
        (before["chain, bf16"], now["chain, bf16, seed 0"]),
        (before["chain, bf16, seed 1"], now["chain, bf16, seed 1"]),
    ]
    ends = ([statistics.fmean(losses[END]) for losses in two] for two in same)
    return (
        max(abs(first_below(one) - first_below(other)) for one, other in same),
        max(100 * (max(two) / min(two) - 1) for two in ends),
    )


def first_below(losses: Sequence[float], limit: float = 4.0) -> int:
    """The first step from which on all means of 8 steps are below the limit."""
    means = [statistics.fmean(losses[start : start + 8]) for start in range(len(losses) - 7)]
    return 2 + max(start for start, mean in enumerate(means) if mean >= limit)
