"""Figures of docs/internals/performance-tries.md, from the result files of the three rounds."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from tests.unit.published import limits, small, start, zero
from tests.unit.published.measured import (
    FIRST,
    SECOND,
    STRATEGIES,
    THIRD,
    communication_pct,
    document,
    each,
    exposed_pct,
    folders,
    mfu_pct,
    probe_share_pct,
    probe_tflops,
    profile,
    row,
    run,
    tokens_per_s,
)


def tries() -> Iterator[str]:
    yield from kept_weights()
    yield from second_round()
    yield from first_round()
    yield from fewer_ctas()
    yield from strategies()
    yield from strategies_by_probe()
    yield from zero.tried()
    yield from start.in_tries()
    yield from small.tries()
    yield from limits.workspaces()
    yield from limits.bounds()
    yield from limits.highest_clock()
    yield from limits.tried()


def first(name: str) -> Any:
    return profile(f"{FIRST}/profiles/{name}")


def second(name: str) -> Any:
    return document(f"{SECOND}/profiles/{name}.json")


def gain_pct(now: Any, before: Any) -> float:
    return 100 * (float(now["tokens_per_second"]) / float(before["tokens_per_second"]) - 1)


def kept_weights() -> Iterator[str]:
    def of(*names: str) -> list[Any]:
        return [profile(f"{THIRD}/profiles/machine1-{name}") for name in names]

    again = of("00-tuned-qlora-8x512-without-kept", "02-tuned-qlora-8x512-without-kept")
    kept = of("01-tuned-qlora-8x512", "03-tuned-qlora-8x512")
    gain = sum(turn["tokens_per_second"] for turn in kept) / sum(turn["tokens_per_second"] for turn in again) - 1
    more_gb = kept[0]["peak_allocated_gb"] - again[0]["peak_allocated_gb"]
    yield f"{100 * gain:.1f} % more throughput for {more_gb:.0f} GB"


def second_round() -> Iterator[str]:
    small = [
        second(f"machine{fast}-*")["tokens_per_second"] / second(f"machine{slow}-*")["tokens_per_second"]
        for fast, slow in (("1-gpu2-0", "1-gpu2-1"), ("3-13", "3-16"))
    ]
    yield f"tier A {small[0]:.1f} to {small[1]:.1f} times as fast"


def first_round() -> Iterator[str]:
    both = [
        gain_pct(first(f"tuned-{job}"), first(f"tuned-{job}-without-fused-without-loss"))
        for job in ("qlora-8x512", "lora-8x2048")
    ]
    yield f"{both[0]:.0f} % on QLoRA 8 x 512, {both[1]:.0f} % on LoRA 8 x 2048."
    sharded = [f"{STRATEGIES}/mistral-7b-full-fsdp-1x4-b{batch}-*" for batch in (4, 8)]
    rates = [tokens_per_s(folder) for folder in sharded]
    yield (
        f"the larger micro-batch still brings {100 * (rates[1] / rates[0] - 1):.0f} %: {each(rates, ',.0f')} tokens/s"
        " under fsdp."
    )


def fewer_ctas() -> Iterator[str]:
    few, all_of = (f"{SECOND}/results/full-fsdp-8x2048-{name}" for name in ("ctas8", "after-2"))
    yield (
        f"{tokens_per_s(few):,.0f} against {tokens_per_s(all_of):,.0f} tokens/s. Communication takes"
        f" {communication_pct(few):.0f} % of the step instead of {communication_pct(all_of):.0f} %, and"
        f" {exposed_pct(few):.1f} % instead of {exposed_pct(all_of):.1f} % of it is exposed."
    )


STUDY = {"full": "mistral-7b-full", "LoRA": "mistral-7b-lora", "QLoRA": "mistral-7b-qlora", "tier A": "tier-a-full"}


def in_study(job: str, strategy: str, gpus: int, batch: str) -> str:
    return f"{STRATEGIES}/{STUDY[job]}-{strategy}-1x{gpus}-b{batch}-s*"


def pair(figure: Callable[[str], float], form: str, unit: str, folders: list[str]) -> tuple[str, str]:
    two, four = (f"{figure(folder):{form}}{unit}" for folder in folders)
    return two, four


def strategies() -> Iterator[str]:
    for job in STUDY:
        batch = "1" if job == "tier A" else "4"
        alone = in_study(job, "single", 1, batch)
        base = tokens_per_s(alone)
        yield row(job, f"one GPU: {base:,.0f} tokens/s, {mfu_pct(alone):.1f} % MFU", *[""] * 6)
        for strategy in ("ddp", "fsdp", "zero2", "zero3"):
            folders = [in_study(job, strategy, gpus, batch) for gpus in (2, 4)]
            efficiency = [f"{100 * tokens_per_s(f) / (n * base):.1f} %" for f, n in zip(folders, (2, 4), strict=True)]
            rates = pair(tokens_per_s, ",.0f", "", folders)
            yield row(job, strategy, *rates, *pair(mfu_pct, ".1f", " %", folders), *efficiency)

    larger = in_study("full", "fsdp", 4, "8")
    yield row("full, 8 x 2048", "fsdp", "-", f"{tokens_per_s(larger):,.0f}", "-", f"{mfu_pct(larger):.1f} %", "-", "-")


def probes_by_size() -> dict[int, list[float]]:
    """The study's matmul probes in TFLOP/s, by the number of GPUs."""
    probes: dict[int, list[float]] = {1: [], 2: [], 4: []}
    for folder in folders(f"{STRATEGIES}/*"):
        probes[run(folder).spec.placement.world_size].append(probe_tflops(folder))
    return probes


def strategies_by_probe() -> Iterator[str]:
    probes = probes_by_size()
    one, two, four = (f"{min(of):.0f} to {max(of):.0f}" for of in probes.values())
    yield (
        f"multiplies at {one} TFLOP/s in the probe; the slowest GPUs of the 2-GPU machines at {two}, of the 4-GPU"
        f" machines at {four},"
    )

    def shares(job: str, *of: tuple[str, int]) -> list[float]:
        return [probe_share_pct(in_study(job, strategy, gpus, "4")) for strategy, gpus in of]

    ddp = (("single", 1), ("ddp", 2), ("ddp", 4))
    yield (
        f"ddp with LoRA reaches {each(shares('LoRA', *ddp), '.1f')} % on 1, 2 and 4 GPUs, and with QLoRA"
        f" {each(shares('QLoRA', *ddp), '.1f')} %"
    )
    alone, *under = shares("full", *ddp)
    yield (
        f"goes from {alone:.1f} % to {each(under, '.1f')} % under ddp, to"
        f" {each(shares('full', ('fsdp', 2), ('fsdp', 4)), '.1f')} % under fsdp."
    )
