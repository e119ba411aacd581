"""Figures of docs/results/limits-h200-2026-11-25: whole runs, limited memory, peers under the same limit, variants."""

from __future__ import annotations

import statistics
from collections.abc import Iterator
from typing import Any

from tests.unit.published import measured, peers
from tests.unit.published.measured import document, each, mfu_pct, peak_gb, row, tokens_per_s

LIMITS = "limits-h200-2026-11-25"
LARGE = {
    "QLoRA 8 x 512": "qlora-8x512",
    "QLoRA 8 x 512, `as_users_run`": "users-qlora-8x512",
    "LoRA 8 x 2048": "lora-8x2048",
    "LoRA 8 x 2048, fp8": "lora-8x2048-fp8",
    "full 8 x 2048": "full-8x2048",
    "full 8 x 2048, fp8": "full-8x2048-fp8",
}
COMPARED = {"lora-of-80-gib": "LoRA 8 x 2048 in 80 GiB", "qlora-of-24-gib": "QLoRA 8 x 512 in 24 GiB"}
PEERS = f"{LIMITS}/peers"
VARIANTS = {
    "tier A full 1 x 2048": "tier-a-full-1x2048",
    "tier B full 4 x 2048": "tier-b-full-4x2048",
    "GPT-2 full 8 x 1024": "gpt2-full-8x1024",
    "GPT-2 LoRA 8 x 1024": "gpt2-lora-8x1024",
    "QLoRA 8 x 512": "qlora-8x512",
    "LoRA 4 x 2048": "lora-4x2048",
    "encoder-decoder 64 x (2 x 128)": "encoder-decoder-64x256",
}


def run(name: str) -> str:
    return f"{LIMITS}/runs/{name}"


def large_rows() -> Iterator[str]:
    for job, name in LARGE.items():
        mfu, peak = f"{mfu_pct(run(name)):.1f} %", f"{peak_gb(run(name)):.1f}"
        yield row(job, f"{tokens_per_s(run(name)):,.0f}", mfu, peak)
    ratio = tokens_per_s(run("qlora-8x512")) / tokens_per_s(run("users-qlora-8x512"))
    yield f"{ratio:.1f} times as fast as the settings of a published guide"
    for job in ("full", "lora"):
        faster = tokens_per_s(run(f"{job}-8x2048-fp8")) / tokens_per_s(run(f"{job}-8x2048"))
        yield f"{faster:.2f} times"


def rates(job: str, program: str) -> list[float]:
    return peers.rates(job, program, PEERS)


def compared() -> Iterator[str]:
    """`tuned` beside Unsloth, both in limited memory."""
    for job, title in COMPARED.items():
        ours, theirs = rates(job, "tuned"), rates(job, "unsloth")
        yield row(
            title,
            each(ours, ",.0f"),
            each(theirs, ",.0f"),
            f"{sum(ours) / sum(theirs):.2f}",
            f"{peers.peak_gb(job, 'tuned', PEERS):.1f} and {peers.peak_gb(job, 'unsloth', PEERS):.1f}",
        )


def in_full_memory() -> Iterator[str]:
    ours, theirs = rates("qlora", "tuned"), rates("qlora", "unsloth")
    yield f"`tuned` {each(ours, ',.0f')} tokens/s, Unsloth {each(theirs, ',.0f')}"
    yield f"TRL with Liger kernels {each(rates('qlora', 'trl'), ',.0f')}"


def start_up() -> Iterator[str]:
    begun_s = measured.performance(f"{LIMITS}/start/cold-1").windows[0].started_s
    yield f"first measured step after {begun_s:.1f} s with nothing cached"


def on_an_h100() -> Iterator[str]:
    error = measured.run(f"{LIMITS}/h100/lora-8x2048").error
    assert error
    assert "total capacity of 79.18 GiB" in error.message
    assert "73.91 GiB is allocated by PyTorch" in error.message
    assert "4.40 GiB is reserved by PyTorch but unallocated" in error.message
    yield "79.18 GiB"
    yield "73.91 GiB were allocated and 4.40 GiB lay between them, unused"
    yield f"QLoRA 8 x 512 makes {tokens_per_s(f'{LIMITS}/h100/qlora-8x512'):,.0f} tokens/s there"


def variants(name: str = "variants") -> dict[tuple[str, str], Any]:
    return {(turns["job"], turns["variant"]): turns for turns in document(f"{LIMITS}/{name}.json")}


def workspaces() -> Iterator[str]:
    """Turns with torch's workspace and with none."""
    of = variants()
    for title, job in VARIANTS.items():
        torchs, none = of[job, "base"], of[job, "ws"]
        before, now = (statistics.fmean(turns["tokens_per_s"]) for turns in (torchs, none))
        idle = (f"{turns['profile']['idle_ms_per_step']:.2f}" for turns in (torchs, none))
        yield row(title, f"{before:,.0f}", f"{now:,.0f}", f"{100 * (now / before - 1):+.1f} %", *idle)


def bounds() -> Iterator[str]:
    """What the GPU does during tiers A and B."""
    for job, title in (("tier-a-full-1x2048", "tier A"), ("tier-b-full-4x2048", "tier B")):
        turns = variants()[job, "ws"]
        ms = turns["profile"]["ms_per_step"]
        yield row(
            title,
            f"{statistics.fmean(turns['power_w']):.0f}",
            f"{statistics.fmean(turns['clock']):,.0f}",
            *(f"{ms[kind]:.2f}" for kind in ("matmul", "attention", "elementwise", "optimizer", "loss")),
            f"{turns['profile']['idle_ms_per_step']:.2f}",
        )


def highest_clock() -> Iterator[str]:
    yield f"highest clock is {max(max(turns['clock']) for turns in variants().values()):,.0f} MHz"


def tried() -> Iterator[str]:
    """Tier B with a late update, alone and with other settings, in two batches of turns."""
    late = document(f"{LIMITS}/variants-late.json")
    for title, variant in (
        ("update beside the next forward pass", "late"), ("cuBLASLt for all products", "lt"),
        ("inductor's coordinate descent", "coord"), ("programmatic dependent launch", "pdl"),
    ):  # fmt: skip
        found = [rate for turns in late if turns["variant"] == variant for rate in turns["tokens_per_s"]]
        yield row(title, f"{statistics.median(found):,.0f}")
    yield f"{statistics.fmean(variants()['tier-b-full-4x2048', 'base']['tokens_per_s']):,.0f} tokens/s with neither"
