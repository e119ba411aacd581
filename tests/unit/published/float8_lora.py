"""Figures of LoRA with 8-bit products, of docs/results/float8-lora-h200-2026-11-23."""

from __future__ import annotations

import statistics
from collections.abc import Iterator

from bench_image.contract.options import Precision
from tests.unit.published.measured import FLOAT8_LORA as FOLDER
from tests.unit.published.measured import (
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

BF16, FP8 = ([f"{FOLDER}/lora-{precision}-1-gpus-{turn}" for turn in (1, 2)] for precision in ("bf16", "fp8"))


def page(to_bf16: float) -> Iterator[str]:
    """What docs/performance.md says. `to_bf16`: the 8-bit peak over that of bf16."""
    yield row(
        "LoRA, 1 GPU",
        each(map(tokens_per_s, BF16), ",.0f"),
        each(map(tokens_per_s, FP8), ",.0f"),
        f"{ratio():.2f}",
        f"{each(map(mfu_pct, FP8), '.1f')} %",
        f"{each((mfu_pct(folder) * to_bf16 for folder in FP8), '.1f')} %",
        each(map(peak_gb, (BF16[0], FP8[0])), ".1f"),
    )
    yield f"and LoRA {ratio():.2f} times on one"
    steep, late, seed = losses_apart_pct()
    yield f"Those of LoRA stay within {steep:.1f} %, and within {late:.1f} % from step 101 on"
    yield f"weights of another seed are up to {seed:.1f} % away"


def note(to_bf16: float) -> Iterator[str]:
    """What the folder's README says."""
    for slow, fast in zip(BF16, FP8, strict=True):
        for folder in (slow, fast):
            of_bf16 = mfu_pct(folder) * (to_bf16 if run(folder).spec.work.precision is Precision.FP8 else 1)
            yield row(
                f"`{folder.removeprefix(f'{FOLDER}/')}`",
                f"{tokens_per_s(folder):,.0f}",
                ", ".join(f"{window.samples_per_second:.3f}" for window in performance(folder).windows),
                f"{mfu_pct(folder):.1f} %",
                f"{of_bf16:.1f} %",
                f"{probe_tflops(folder):,.0f}",
                f"{probe_share_pct(folder):.1f} %",
                f"{peak_gb(folder):.2f} GB",
            )
    apart = [max(map(tokens_per_s, pair)) / min(map(tokens_per_s, pair)) - 1 for pair in (BF16, FP8)]
    ratios = [tokens_per_s(fast) / tokens_per_s(slow) for fast in FP8 for slow in BF16]
    yield f"**{ratio():.2f} times bf16** (each fp8 run over each bf16 run: {min(ratios):.3f} to {max(ratios):.3f})"
    yield f"runs of one kind differ by {100 * max(apart):.2f} % at most"
    stream = means_of_20()
    for index, (bf16, fp8, other) in enumerate(zip(*stream.values(), strict=True)):
        yield row(
            f"{20 * index + 1} to {20 * index + 20}",
            f"{bf16:.4f}",
            f"{fp8:.4f}",
            f"{100 * (fp8 / bf16 - 1):+.2f} %",
            f"{100 * (other / bf16 - 1):+.2f} %",
        )
    steep, late, _ = losses_apart_pct()
    yield f"it holds with {steep:.2f} % where the loss falls steeply and {late:.2f} % from step 101 on"


def ratio() -> float:
    return sum(map(tokens_per_s, FP8)) / sum(map(tokens_per_s, BF16))


def means_of_20() -> dict[str, list[float]]:
    """Of each 20 steps on the stream that can be learnt: bf16, fp8, bf16 with weights of another seed."""
    losses = document(f"{FOLDER}/losses.json")["losses"]
    return {
        name: [statistics.fmean(losses[f"chain, {name}"][start : start + 20]) for start in range(0, 200, 20)]
        for name in ("bf16", "fp8, fast: all", "bf16, seed 1")
    }


def losses_apart_pct() -> tuple[float, float, float]:
    """The largest distance of fp8 from bf16, that from step 101 on, and the largest of the other seed."""
    bf16, fp8, other = means_of_20().values()
    apart = [abs(100 * (mine / wide - 1)) for mine, wide in zip(fp8, bf16, strict=True)]
    return max(apart), max(apart[5:]), max(abs(100 * (mine / wide - 1)) for mine, wide in zip(other, bf16, strict=True))
