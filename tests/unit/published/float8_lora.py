"""Figures of LoRA with 8-bit products: one layer, its products and its casts."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Sequence
from typing import Any

from bench_image.contract.gpu_specs import PEAK_TFLOPS
from tests.unit.published.measured import (
    FLOAT8_LORA,
    document,
    each,
    means_of_20,
    mfu_pct,
    peak_gb,
    performance,
    probe_share_pct,
    probe_tflops,
    row,
    run,
    tokens_per_s,
)

TOKENS, HIDDEN, INNER, KV = 16_384, 4096, 14_336, 1024
GROUPS = {
    "q, k, v": ((HIDDEN, KV, KV), HIDDEN), "o": ((HIDDEN,), HIDDEN), "gate, up": ((INNER, INNER), HIDDEN),
    "down": ((HIDDEN,), INNER),
}  # fmt: skip
CASTS = {
    "4,096": (HIDDEN,), "4,096, 1,024 and 1,024": (HIDDEN, KV, KV), "14,336": (INNER,), "14,336 twice": (INNER, INNER),
}  # fmt: skip
RUNS = {
    precision: [f"{FLOAT8_LORA}/lora-{precision}-1-gpus-{turn}" for turn in (1, 2)] for precision in ("bf16", "fp8")
}
PEAK = PEAK_TFLOPS["H200"]
assert PEAK.bf16
assert PEAK.fp8
PEAKS = {"bf16": PEAK.bf16, "fp8": PEAK.fp8}
TILES = ("1024 4", "2048 4", "4096 4", "4096 8", "8192 8")


def page() -> Iterator[str]:
    """What docs/performance.md says."""
    bf16_pct, fp8_pct = (each(map(share_of_peak_pct, RUNS[kind]), ".0f") for kind in ("bf16", "fp8"))
    yield (
        f"{each(map(probe_tflops, RUNS['fp8']), ',.0f')} TFLOP/s in the LoRA runs, {fp8_pct} % of the peak, as the bf16"
        f" probe's {bf16_pct} % of its own."
    )
    most = most_apart_pct()
    yield (
        f"within {most[0]:.2f} % from step 141 on, where bf16 from weights of another seed differs by {most[1]:.2f} %"
    )
    of_bf16, of_fp8, of_other = map(first_below, stream_losses())
    yield f"fall {of_fp8 - of_bf16} steps later, where the other seed falls {of_bf16 - of_other} earlier"
    bf16, fp8 = medians_ms()
    yield f"takes {fp8:.1f} ms instead of {bf16:.1f} in bf16, medians of three turns: {bf16 / fp8:.2f} times as fast"


def note() -> Iterator[str]:
    """What the folder's README says."""
    yield from whole_runs()
    yield from losses_of_the_stream()
    yield from losses_by_heart()
    for precision in ("bf16", "fp8"):
        turns = layer()["layer_ms"][precision]
        yield row(precision, ", ".join(f"{ms:.2f}" for ms in turns), f"{statistics.median(turns):.2f}")
    bf16, fp8 = medians_ms()
    yield f"{bf16 / fp8:.2f} times as fast"
    yield from products()
    yield from added()
    for name, widths in CASTS.items():
        yield row(name, *(f"{layer()[f'cast {widths} {tile}'][1]:,.0f}" for tile in TILES))
    (products_ms,) = (ms for kernel, _, ms in layer()["profile fp8"] if "ovscale" in kernel)
    (casts_ms,) = (ms for kernel, _, ms in layer()["profile fp8"] if kernel == "_cast_rows")
    yield f"{products_ms:.1f} ms of the layer are 8-bit products and {casts_ms:.1f} ms casts"


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


def losses_of_the_stream() -> Iterator[str]:
    bf16, fp8, other = stream_losses()
    means = zip(means_of_20(bf16), means_of_20(fp8), *apart_pct(), strict=True)
    for index, (of_bf16, of_fp8, fp8_pct, other_pct) in enumerate(means):
        steps = f"{20 * index + 1} to {20 * index + 20}"
        yield row(steps, f"{of_bf16:.4f}", f"{of_fp8:.4f}", f"{fp8_pct:+.2f} %", f"{other_pct:+.2f} %")
    ends = "from step 141 on the means of fp8 differ by {:.2f} % at most, those of the other seed by {:.2f} %"
    yield ends.format(*most_apart_pct())
    falls = map(first_below, (fp8, bf16, other))
    yield "stay below 4 from step {} on with fp8, from {} in bf16, and from {} from the other seed".format(*falls)
    peaks = (max(losses[20:]) for losses in (fp8, bf16, other))
    yield "Single steps of {:.1f} with fp8, {:.1f} in bf16 and {:.1f} from the other seed precede it".format(*peaks)


def stream_losses() -> tuple[list[float], list[float], list[float]]:
    """In bf16, in fp8, and in bf16 from weights of another seed."""
    losses = document(f"{FLOAT8_LORA}/losses.json")["losses"]
    return losses["chain, bf16"], losses["chain, fp8, fast: all"], losses["chain, bf16, seed 1"]


def apart_pct() -> Iterator[list[float]]:
    """Means of 20 steps of fp8, and those of the other seed, against bf16's."""
    bf16, *others = map(means_of_20, stream_losses())
    for means in others:
        yield [100 * (mean / of_bf16 - 1) for mean, of_bf16 in zip(means, bf16, strict=True)]


def most_apart_pct() -> list[float]:
    """From step 141 on."""
    return [max(map(abs, pcts[7:])) for pcts in apart_pct()]


def first_below(losses: Sequence[float], limit: float = 4.0) -> int:
    """The first step from which on all means of 8 steps are below the limit."""
    means = [statistics.fmean(losses[start : start + 8]) for start in range(len(losses) - 7)]
    return 2 + max(start for start, mean in enumerate(means) if mean >= limit)


def products() -> Iterator[str]:
    """TFLOP/s of each product with frozen weights."""
    for name, (rows, features) in GROUPS.items():
        ms = layer()[f"products {rows} {features}"]
        tflop = 2 * TOKENS * features * sum(rows) / 1e12
        yield row(
            name, *(f"{tflop / ms[f'{precision} {way}'] * 1e3:,.0f}" for precision in ("bf16", "fp8") for way in WAYS)
        )


WAYS = ("fwd", "bwd")


def added() -> Iterator[str]:
    """Milliseconds in which the adapters' share of the outputs of all four groups is added."""
    of_groups: Sequence[Any] = [layer()[f"products {rows} {features}"] for rows, features in GROUPS.values()]
    forward, backward = (sum(ms[f"addmm {way}"] for ms in of_groups) for way in WAYS)
    ours = sum(ms["triton add (32, 256, 4)"] for ms in of_groups)
    yield f"takes {forward:.2f} ms of forward and {backward:.2f} ms of backward"
    yield f"took {ours:.2f} ms for forward"


def medians_ms() -> tuple[float, float]:
    """Of forward and backward of one layer, in bf16 and in fp8."""
    bf16, fp8 = (statistics.median(layer()["layer_ms"][precision]) for precision in ("bf16", "fp8"))
    return bf16, fp8


def layer() -> Any:
    return document(f"{FLOAT8_LORA}/layer.json")
