"""Figures of small models, from docs/results/small-h200-2026-11-23."""

from __future__ import annotations

import re
import statistics
from collections.abc import Iterator

from bench_image.contract.model_shapes import MODELS
from tests.unit.published.measured import RESULTS, document, each, mfu_pct, peak_gb, row, tokens_per_s

SMALL = "small-h200-2026-11-23"
# Job -> its whole run, and its name in the turns.
JOBS = {
    "GPT-2 full 8 x 1024": ("gpt2-full-8x1024", "gpt2-8x1024"),
    "GPT-2 full 64 x 1024": ("gpt2-full-64x1024", "gpt2-64x1024"),
    "GPT-2 medium full 8 x 1024": ("gpt2-medium-full-8x1024", "gpt2-medium-8x1024"),
    "GPT-2 LoRA 8 x 1024": ("gpt2-lora-8x1024", "gpt2-lora-8x1024"),
    "encoder-decoder 64 x (2 x 128)": ("encoder-decoder-64x256", "encdec-64x256"),
    "encoder-decoder 32 x (2 x 512)": ("encoder-decoder-32x1024", "encdec-32x1024"),
    "encoder-decoder, 512 wide, 6 + 6 layers, 32 x (2 x 256)": ("encoder-decoder-512-32x512", "encdec-512-32x512"),
    "tier A full 1 x 2048": ("tier-a-full-1x2048", "tier-a-1x2048"),
    "tier B full 4 x 2048": ("tier-b-full-4x2048", "tier-b-4x2048"),
}
LARGE = {"QLoRA 8 x 512": "qlora-8x512", "LoRA 8 x 2048": "lora-8x2048"}
CLASSES = ("matmul", "attention", "elementwise", "loss", "optimizer", "copy")


def run(name: str) -> str:
    return f"{SMALL}/runs/{name}"


def turns(name: str) -> dict[str, list[float]]:
    lines = (RESULTS / SMALL / name).read_text().splitlines()
    return {key: [float(rate) for rate in rates] for _, key, *rates in map(str.split, lines)}


def page() -> Iterator[str]:
    loops = turns("first-turns.txt")
    for job, (name, turn) in JOBS.items():
        rates = next((loops[f"{turn}-{kind}"] for kind in ("loop-graph", "loop") if f"{turn}-{kind}" in loops), None)
        yield row(
            job,
            f"{tokens_per_s(run(name)):,.0f}",
            f"{mfu_pct(run(name)):.1f} %",
            f"{peak_gb(run(name)):.1f}",
            each(rates, ",.0f") if rates else "",
            f"{tokens_per_s(run(name)) / statistics.fmean(rates):.2f}" if rates else "",
        )
    for job, name in LARGE.items():
        mfu, peak = f"{mfu_pct(run(name)):.1f} %", f"{peak_gb(run(name)):.1f}"
        yield row(job, f"{tokens_per_s(run(name)):,.0f}", mfu, peak, f"[23 November](results/{SMALL}/README.md)")
    yield f"{tokens_per_s(run('gpt2-full-8x1024')):,.0f} tokens/s with GPT-2, full, 8 x 1024"
    yield f"makes {each(turns('second-turns.txt')['mistral-7b-lora-8x2048-layers-old'], ',.0f')} tokens/s"
    yield f"{MODELS['gpt2'].vocab_size:,} columns"
    yield f"{peak_gb(run('lora-8x2048')):.1f} and {peak_gb(run('qlora-8x512')):.1f} GB"


def note() -> Iterator[str]:
    """The note beside the results: milliseconds of a step by class, before the kernels and with them."""
    first, second = document(f"{SMALL}/first-profile.json"), document(f"{SMALL}/second-profile.json")
    for title, of, key in (
        ("GPT-2 full 8 x 1024, plain loop", first, "gpt2-8x1024-loop-graph"),
        ("GPT-2 full 8 x 1024, layer by layer, inductor's loss", first, "gpt2-8x1024-layers"),
        ("GPT-2 full 8 x 1024, whole model as one graph", first, "gpt2-8x1024-whole"),
        ("GPT-2 full 8 x 1024, own kernels, another machine", second, "gpt2-8x1024-layers"),
        ("encoder-decoder 512 wide, plain loop", first, "encdec-512-32x512-loop-graph"),
        ("encoder-decoder 512 wide, one graph", first, "encdec-512-32x512-whole"),
        ("encoder-decoder 512 wide, own kernels and attention", second, "encdec-512-32x512-x"),
        ("tier A 1 x 2048, before", first, "tier-a-1x2048-layers"),
        ("tier A 1 x 2048, own kernels", second, "tier-a-1x2048-layers"),
        ("tier B 4 x 2048, own kernels", second, "tier-b-4x2048-layers"),
    ):
        ms = of[key]["ms_per_step"]
        cells = [f"{ms.get(name, 0):.2f}" for name in CLASSES]
        yield row(title, *cells, f"{of[key]['idle_ms_per_step']:.2f}", f"{of[key]['kernels_per_step']:.0f}")
    for name in (
        "gpt2-8x1024-whole", "gpt2-8x1024-layers", "encdec-64x256-layers", "encdec-64x256-whole",
    ):  # fmt: skip
        yield f"{each(turns('first-turns.txt')[name], ',.0f')}"
    shapes = (RESULTS / SMALL / "kernel-shapes.txt").read_text()
    adam = re.search(r"adam 2048 4 (\S+) ideal (\S+)", shapes)
    torchs = re.search(r"adam torch (\S+)", shapes)
    assert adam
    assert torchs
    yield f"{adam[1]} ms where torch's takes {torchs[1]} and memory speed allows {adam[2]}"


def encoder_decoder() -> Iterator[str]:
    tuned, users = (tokens_per_s(f"{SMALL}/seq2seq/{name}") for name in ("tuned-bf16", "as-users-run-fp16"))
    yield f"makes {tuned:,.0f} tokens/s, the default (fp16) {users:,.0f}, in short runs"
