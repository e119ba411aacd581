"""Figures of LoRA with 8-bit products of its frozen weights."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from bench_image.contract.gpu_specs import PEAK_TFLOPS
from tests.unit.published.measured import (
    FLOAT8_LORA,
    document,
    each,
    probe_tflops,
    run,
)

RUNS = {
    precision: [f"{FLOAT8_LORA}/lora-{precision}-1-gpus-{turn}" for turn in (1, 2)] for precision in ("bf16", "fp8")
}
PEAK = PEAK_TFLOPS["H200"]
assert PEAK.bf16_tflops
assert PEAK.fp8_tflops
PEAKS = {"bf16": PEAK.bf16_tflops, "fp8": PEAK.fp8_tflops}


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


def share_of_peak_pct(folder: str) -> float:
    """The matmul probe's rate, of the GPU's peak in the run's precision."""
    return 100 * probe_tflops(folder) / PEAKS[run(folder).spec.work.precision]


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
