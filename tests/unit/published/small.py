"""Figures of small models and of smaller GPUs, from docs/results/small-h200-2026-11-25 and, before, -23."""

from __future__ import annotations

import statistics
from collections.abc import Iterator

from bench_image.contract.memory_estimate import memory_need_bytes, partly_checkpointed
from bench_image.contract.model_shapes import MODELS
from tests.unit.published import measured
from tests.unit.published.measured import document, each, mfu_pct, peak_gb, row, tokens_per_s

SMALL, BEFORE = "small-h200-2026-11-25", "small-h200-2026-11-23"
TODAY = "today-h200-2026-11-26"
JOBS = {
    "GPT-2 full 8 x 1024": "gpt2-full-8x1024",
    "GPT-2 full 64 x 1024": "gpt2-full-64x1024",
    "GPT-2 medium full 8 x 1024": "gpt2-medium-full-8x1024",
    "GPT-2 LoRA 8 x 1024": "gpt2-lora-8x1024",
    "encoder-decoder 64 x (2 x 128)": "encoder-decoder-64x256",
    "encoder-decoder 32 x (2 x 512)": "encoder-decoder-32x1024",
    "encoder-decoder, 512 wide, 6 + 6 layers, 32 x (2 x 256)": "encoder-decoder-512-32x512",
    "tier A full 1 x 2048": "tier-a-full-1x2048",
    "tier B full 4 x 2048": "tier-b-full-4x2048",
}
# Run below the folder -> job, GPU, GiB that torch may take, and what is checkpointed.
LIMITED = {
    "h100/lora-8x2048-auto": ("LoRA 8 x 2048", "H100", 79.18, "nothing"),
    "runs/lora-8x2048-of-48-gib": ("LoRA 8 x 2048", "H200", 48, "18 of 32 layers"),
    "h100/qlora-8x512-of-24-gib": ("QLoRA 8 x 512", "H100", 24, "nothing; 4-bit weights are unpacked twice"),
}


def run(name: str) -> str:
    """The newest whole run."""
    return f"{TODAY}/runs/{name}"


def turns() -> dict[tuple[str, str], list[float]]:
    return {(turn["job"], turn["program"]): turn["tokens_per_s"] for turn in document(f"{TODAY}/turns.json")}


def page() -> Iterator[str]:
    by_turns = turns()
    for job, name in JOBS.items():
        ours, loops = by_turns.get((name, "tuned")), by_turns.get((name, "loop"))
        yield row(job, each(ours, ",.0f") if ours else "", each(loops, ",.0f") if loops else "")
    yield f"{MODELS['gpt2'].vocab_size:,} columns"
    yield f"{peak_gb(run('lora-8x2048')):.1f} and {peak_gb(run('qlora-8x512')):.1f} GB"
    yield from smaller_gpus()


def in_short() -> Iterator[str]:
    """The table of docs/internals/speed.md."""
    by_turns = turns()
    for job, name in JOBS.items():
        ours, loops = by_turns.get((name, "tuned")), by_turns.get((name, "loop"))
        times = f"{statistics.fmean(ours) / statistics.fmean(loops):.2f}" if ours and loops else ""
        mfu, peak = f"{mfu_pct(run(name)):.1f} %", f"{peak_gb(run(name)):.1f}"
        yield row(job, f"{tokens_per_s(run(name)):,.0f}", mfu, peak, times)


def smaller_gpus() -> Iterator[str]:
    for name, (job, gpu, gib, chosen) in LIMITED.items():
        folder = f"{TODAY}/{name}"
        result = measured.run(folder)
        assert result.context
        assert gpu in result.context.gpus[0].name
        off = result.spec.changed(work={"gradient_checkpointing": False})
        memory = round(gib * 2**30)
        need = memory_need_bytes(off, memory).total
        assert result.chosen
        if layers := result.chosen.checkpointed_layers:
            assert chosen == f"{layers} of {off.work.shape.num_layers} layers"  # type: ignore[union-attr]
            need = dict(partly_checkpointed(off, memory))[layers]
        rate, peak = f"{tokens_per_s(folder):,.0f}", f"{peak_gb(folder):.1f}"
        yield row(job, f"{gib:g} GiB of an {gpu}", chosen, rate, peak, f"{need / 1e9:.1f}")


def encoder_decoder() -> Iterator[str]:
    tuned, users = (tokens_per_s(f"{BEFORE}/seq2seq/{name}") for name in ("tuned-bf16", "as-users-run-fp16"))
    yield f"makes {tuned:,.0f} tokens/s, the default (fp16) {users:,.0f}, in short runs"
    for size, name in (("52.3 M", "52m"), ("210.8 M", "211m")):
        users, tuned = (tokens_per_s(f"{SMALL}/seq2seq/{name}{kind}") for kind in ("", "-tuned"))
        result = measured.run(f"{SMALL}/seq2seq/{name}-tuned")
        seconds = result.startup.compile_s
        assert seconds
        peak = f"{peak_gb(f'{SMALL}/seq2seq/{name}-tuned'):.1f}"
        yield row(size, f"{users:,.0f}", f"{tuned:,.0f}", f"{tuned / users:.1f}", peak, f"{seconds:.0f}")
