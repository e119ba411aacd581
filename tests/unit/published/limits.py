"""Figures of docs/results/limits-h200-2026-11-25: whole runs, limited memory, peers under the same limit, variants."""

from __future__ import annotations

from collections.abc import Iterator

from tests.unit.published import measured, peers
from tests.unit.published.measured import each, mfu_pct, peak_gb, row, tokens_per_s

LIMITS, TODAY = "limits-h200-2026-11-25", "today-h200-2026-11-26"
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


def run(name: str) -> str:
    return f"{TODAY}/runs/{name}"


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
    begun_s = measured.performance(f"{TODAY}/start/cold-1").windows[0].started_s
    yield f"first measured step after {begun_s:.1f} s with nothing cached"
    warm_s = measured.performance(f"{TODAY}/start/warm-1").windows[0].started_s
    yield f"after {warm_s:.1f} s with compiled code cached"


def on_an_h100() -> Iterator[str]:
    error = measured.run(f"{LIMITS}/h100/lora-8x2048").error
    assert error
    assert "total capacity of 79.18 GiB" in error.message
    assert "73.91 GiB is allocated by PyTorch" in error.message
    assert "4.40 GiB is reserved by PyTorch but unallocated" in error.message
    yield "79.18 GiB"
    yield "73.91 GiB were allocated and 4.40 GiB lay between them, unused"
    yield f"QLoRA 8 x 512 makes {tokens_per_s(f'{LIMITS}/h100/qlora-8x512'):,.0f} tokens/s there"
