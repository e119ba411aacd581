"""Figures of docs/performance-tries.md, from the result files of the three rounds."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

from tests.unit.published import small, start, zero
from tests.unit.published.measured import (
    ACCUMULATION,
    FIRST,
    FLOAT8,
    RESULTS,
    SECOND,
    STRATEGIES,
    THIRD,
    communication_pct,
    document,
    each,
    exposed_pct,
    mfu_pct,
    peak_gb,
    probe_share_pct,
    probe_tflops,
    profile,
    row,
    run,
    tokens_per_s,
)
from tests.unit.published.products import in_tries
from tests.unit.published.speed import on_four


def tries() -> Iterator[str]:
    yield from rounds()
    yield from classes_of_kernels()
    yield from kept_weights()
    yield from second_round()
    yield from first_round()
    yield from kernels_of_the_first_round()
    yield from what_did_not_help()
    yield from products()
    yield from fsdp_on_four()
    yield from accumulation()
    yield from strategies()
    yield from strategies_by_probe()
    yield from graphs_of_large_models()
    yield from zero.tried()
    yield from start.in_tries()
    yield from small.tries()


def first(name: str) -> Any:
    return profile(f"{FIRST}/profiles/{name}")


def second(name: str) -> Any:
    (path,) = (RESULTS / SECOND / "profiles").glob(f"{name}.json")
    return profile(f"{SECOND}/profiles/{path.stem}")


def rate(of: Any) -> str:
    return f"{of['tokens_per_second']:,.0f}"


ROUNDS = {  # job: `tuned` of the first round, of the second, and `as_users_run` of the second
    "QLoRA 8 x 512": ("tuned-qlora-8x512", None, None),
    "QLoRA 8 x 512, adapters on q, k, v, o": ("tuned-qlora-8x512-attention-only", "07", "08"),
    "QLoRA 8 x 512, Llama-2-7B": ("tuned-llama2-qlora-8x512", "05", "06"),
    "LoRA 8 x 2048": ("tuned-lora-8x2048", "02", None),
    "LoRA 8 x 2048, adapters on q, k, v, o": ("tuned-lora-8x2048-attention-only", "04", None),
    "full 8 x 2048, AdamW fused": ("tuned-full-8x2048", "09", None),
    "GPT-2 LoRA 8 x 1024": ("tuned-gpt2-lora-8x1024", "10", None),
}


def rounds() -> Iterator[str]:
    tuned, users = ([f"{SECOND}/results/{of}-qlora-8x512-r{turn}" for turn in (1, 2)] for of in ("tuned", "users"))
    ratios = [tokens_per_s(fast) / tokens_per_s(slow) for fast, slow in zip(tuned, users, strict=True)]
    for job, (before, now, other) in ROUNDS.items():
        if now is None:
            rates = [each(map(tokens_per_s, folders), ",.0f") for folders in (tuned, users)]
            yield row(job, rate(first(before)), *rates, each(ratios, ".2f"))
            continue
        cells = ["-", "-"]
        if other is not None:
            slow = second(f"machine3-{other}-*")
            ratio = second(f"machine3-{now}-*")["tokens_per_second"] / slow["tokens_per_second"]
            cells = [rate(slow), f"({ratio:.2f})"]
        yield row(job, rate(first(before)), rate(second(f"machine3-{now}-*")), *cells)
    in_first = [
        first(f"tuned-{job}")["tokens_per_second"] / first(f"users-{job}")["tokens_per_second"]
        for job in ("qlora-8x512-attention-only", "llama2-qlora-8x512")
    ]
    yield f"where the ratios were {each(in_first, '.2f')}."


CLASSES = {
    "matmul": "matmul",
    "elementwise": "elementwise",
    "copies and casts": "copy",
    "unpacking 4-bit weights": "dequantise",
    "attention": "attention",
    "optimizer, clipping": "optimizer",
    "loss": "loss",
}


def classes_of_kernels() -> Iterator[str]:
    names = ["users-qlora-8x512", "tuned-qlora-8x512-without-fused-without-loss", "tuned-qlora-8x512"]
    names += ["tuned-lora-8x2048-without-fused-without-loss", "tuned-lora-8x2048"]
    columns = [first(name) for name in names]
    for label, key in CLASSES.items():
        spent = [of["profile"]["ms_per_step"].get(key) for of in columns]
        yield row(label, *("-" if ms is None else f"{ms:.1f}" for ms in spent))
    yield row("idle", *(f"{of['profile']['idle_ms_per_step']:.1f}" for of in columns))
    yield row("kernels", *(f"{of['profile']['kernels_per_step']:,.0f}" for of in columns))
    yield row("tokens/s", *map(rate, columns))


def kept_weights() -> Iterator[str]:
    def of(*names: str) -> list[Any]:
        return [profile(f"{THIRD}/profiles/machine1-{name}") for name in names]

    again = of("00-tuned-qlora-8x512-without-kept", "02-tuned-qlora-8x512-without-kept")
    kept = of("01-tuned-qlora-8x512", "03-tuned-qlora-8x512")
    for label, turns in (("unpacked again for backward", again), ("kept", kept)):
        yield row(
            label,
            each((turn["tokens_per_second"] for turn in turns), ",.0f"),
            each((turn["profile"]["ms_per_step"]["dequantise"] for turn in turns), ".1f"),
            f"{turns[0]['peak_allocated_gb']:.1f}",
        )
    gain = sum(turn["tokens_per_second"] for turn in kept) / sum(turn["tokens_per_second"] for turn in again) - 1
    more_gb = kept[0]["peak_allocated_gb"] - again[0]["peak_allocated_gb"]
    yield f"That is {100 * gain:.1f} % more throughput for {more_gb:.0f} GB"
    (llama,) = of("06-tuned-llama2-qlora-8x512")
    yield f"makes {rate(llama)} tokens/s in {llama['peak_allocated_gb']:.1f} GB."
    lora, attention = of("04-tuned-lora-8x2048", "05-tuned-lora-8x2048-attention-only")
    mfu = each((of["mfu_pct"] for of in (lora, attention)), ".1f").replace(" and", " % MFU on this machine, or")
    yield f"LoRA 8 x 2048 made {mfu} % with adapters on q, k, v, o."


def with_idle(of: Any) -> str:
    idle_ms = of["profile"]["idle_ms_per_step"]
    return f"{rate(of)} ({idle_ms:.1f})"


TURNS = {  # job: before, with all, and with all but one
    "QLoRA 8 x 512, machine 1": ("1-gpu0-2", ("1-gpu0-0", "1-gpu0-4"), ("the graph", "1-gpu0-1")),
    "QLoRA 8 x 512, machine 3": ("3-01", ("3-00", "3-14"), ("the kernel", "3-15")),
    "LoRA 8 x 2048, machine 1": ("1-gpu1-1", ("1-gpu1-0",), None),
    "LoRA 8 x 2048, machine 3": ("3-03", ("3-02",), None),
    "GPT-2 LoRA 8 x 1024, machine 1": ("1-gpu2-4", ("1-gpu2-2",), None),
    "tier A, machine 1": (None, ("1-gpu2-0",), ("the graph", "1-gpu2-1")),
    "tier A, machine 3": ("3-16", ("3-13",), None),
}


def second_round() -> Iterator[str]:
    def of(name: str) -> Any:
        return second(f"machine{name}-*")

    for job, (before, after, but_one) in TURNS.items():
        yield row(
            job,
            with_idle(of(before)) if before else "-",
            ", ".join(with_idle(of(name)) for name in after),
            f"without {but_one[0]} {with_idle(of(but_one[1]))}" if but_one else "",
        )
    small = [
        of(fast)["tokens_per_second"] / of(slow)["tokens_per_second"]
        for fast, slow in (("1-gpu2-0", "1-gpu2-1"), ("3-13", "3-16"))
    ]
    yield f"tier A {small[0]:.1f} to {small[1]:.1f} times."
    kernels = [of(name)["profile"]["kernels_per_step"] for name in ("3-15", "3-14")]
    yield f"and {kernels[0] - kernels[1]:.0f} kernels fewer."


def gain_pct(now: Any, before: Any) -> float:
    return 100 * (float(now["tokens_per_second"]) / float(before["tokens_per_second"]) - 1)


def explored(name: str) -> Any:
    return document(f"{FIRST}/exploration.json")["runs"][name]


def first_round() -> Iterator[str]:
    both = [
        gain_pct(first(f"tuned-{job}"), first(f"tuned-{job}-without-fused-without-loss"))
        for job in ("qlora-8x512", "lora-8x2048")
    ]
    yield f"the compiled loss: {both[0]:.0f} % on QLoRA 8 x 512, {both[1]:.0f} % on LoRA 8 x 2048."
    plain, fused, loss = (explored(f"machine 1: {name}-qlora7") for name in ("now", "fused", "fusedloss"))
    yield f"brought {gain_pct(fused, plain):.1f} % ({rate(plain)} to {rate(fused)} tokens/s, machine 1)."
    joined, apart = (
        explored(name)["ms_per_step"]["elementwise"]
        for name in ("machine 1: all3-lora7-2048", "machine 2: f2-nowide-lora7-2048")
    )
    yield f"from {joined:.0f} to {apart:.0f} ms."
    yield f"**Compiled loss**: {gain_pct(loss, fused):.1f} % on QLoRA 8 x 512 ({rate(fused)} to {rate(loss)} tokens/s)."
    four, eight = (explored(name) for name in ("machine 1: full4-loss", "machine 2: full8-loss"))
    yield (
        f"4 x 2048 made {rate(four)} tokens/s (machine 1), 8 x 2048 {rate(eight)} (machine 2): the optimizer's"
        f" {each((of['ms_per_step']['optimizer'] for of in (four, eight)), '.1f')} ms are nearly the same for both."
    )
    sharded = [f"{STRATEGIES}/mistral-7b-full-fsdp-1x4-b{batch}-*" for batch in (4, 8)]
    rates = [tokens_per_s(folder) for folder in sharded]
    yield (
        f"the larger micro-batch still brings {100 * (rates[1] / rates[0] - 1):.0f} %: {each(rates, ',.0f')} tokens/s"
        " under fsdp."
    )


def kernels_of_the_first_round() -> Iterator[str]:
    text = (RESULTS / FIRST / "unpack-kernel.txt").read_text()
    second_form, first_form = text.split("# first form, and bitsandbytes' own")
    kernels = document(f"{FIRST}/kernels.json")
    fastest, scattered = (
        [float(us) for us in re.findall(pattern, part, re.MULTILINE)]
        for pattern, part in (
            (r"^14336 4096 words 256 4 us ([\d.]+)", second_form),
            (r"^14336 4096 words \d+ us ([\d.]+)", first_form),
        )
    )
    yield (
        f"{fastest[0]:.0f} us for a 14336 x 4096 weight where bitsandbytes takes"
        f" {1e3 * kernels['dequant 14336x4096']['ms']:.0f} us plus two small kernels."
    )
    yield f"with scattered stores: {min(scattered):.0f} to {max(scattered):.0f} us for the weight above"
    cudnn, flash = (
        sum(kernels[f"attn {direction} {kind}_ATTENTION 8x2048 kv8"]["ms"] for direction in ("fwd", "bwd"))
        for kind in ("CUDNN", "FLASH")
    )
    yield f"are {cudnn:.2f} ms a layer, flash {flash:.2f} ms."


def what_did_not_help() -> Iterator[str]:
    beside, apart = (explored(f"machine 2: f2-{name}lora7-2048") for name in ("", "nowide-"))
    yield f"which must be copied for it: {rate(beside)} against {rate(apart)} tokens/s."
    beside, apart = (explored(f"machine 2: f2-{name}qlora7") for name in ("", "nowide-"))
    yield f"which are copied anyway: {rate(beside)} against {rate(apart)}."
    few, all_of = (f"{SECOND}/results/full-fsdp-8x2048-{name}" for name in ("ctas8", "after-2"))
    yield (
        f"{tokens_per_s(few):,.0f} against {tokens_per_s(all_of):,.0f} tokens/s. Communication takes"
        f" {communication_pct(few):.0f} % of the step instead of {communication_pct(all_of):.0f} %, and"
        f" {exposed_pct(few):.1f} % instead of {exposed_pct(all_of):.1f} % of it is exposed."
    )
    one, two = (explored(name) for name in ("machine 1: all3-lora7-2048", "machine 2: f2-nowide-lora7-2048"))
    less_ms = one["ms_per_step"]["elementwise"] - two["ms_per_step"]["elementwise"]
    step_ms = [1e3 * 16384 / of["tokens_per_second"] for of in (one, two)]
    yield f"{less_ms:.0f} ms less of it (machines 1 and 2) shortened the step by {step_ms[0] - step_ms[1]:.0f} ms"


PRODUCTS = {
    "forward, gate (or up)": "fwd gate",
    "forward, gate and up joined": "fwd gateup",
    "forward, down": "fwd down",
    "forward, q, k, v joined": "fwd qkv",
    "backward, gate (or up)": "bwd gate",
    "backward, down": "bwd down",
    "backward, o": "bwd o",
}


def products() -> Iterator[str]:
    shapes = document(f"{THIRD}/products.json")["shapes"]
    gains = []
    for label, shape in PRODUCTS.items():
        turns = dict(shapes[shape])
        torch = turns.pop("torch")
        best = max(turns.values(), key=sum)
        gains.append(100 * (sum(best) / sum(torch) - 1))
        yield row(label, *(", ".join(f"{tflops:.0f}" for tflops in of) for of in (torch, best)))
    yield f"That is {min(gains):.0f} to {max(gains):.0f} % of a product."
    yield from in_tries()


FSDP = {
    "full 8 x 2048, program of the first round": "full-fsdp-8x2048-before",
    "full 8 x 2048": "full-fsdp-8x2048-after",
    "full 8 x 2048, machine 2": "full-fsdp-8x2048-after-2",
    "LoRA 4 x 2048, program of the first round": "lora-fsdp-4x2048-before",
    "LoRA 4 x 2048": "lora-fsdp-4x2048-after",
}


def fsdp_on_four() -> Iterator[str]:
    for job, name in FSDP.items():
        yield row(job, *on_four(f"{SECOND}/results/{name}"))
    before, after = (tokens_per_s(f"{SECOND}/results/lora-fsdp-4x2048-{name}") for name in ("before", "after"))
    yield f"make LoRA {100 * (after / before - 1):.1f} % faster."
    qlora = f"{STRATEGIES}/mistral-7b-qlora-fsdp-1x4-*"
    yield f"the first round made {tokens_per_s(qlora):,.0f} tokens/s on 4 GPUs, in {peak_gb(qlora):.1f} GB."
    ddp, fsdp, lora = (
        f"{THIRD}/results/machine2-mistral-7b-{name}-1x2-b4" for name in ("qlora-ddp", "qlora-fsdp", "lora-fsdp")
    )
    yield (
        f"QLoRA makes {tokens_per_s(ddp):,.0f} tokens/s in {peak_gb(ddp):.1f} GB under ddp and"
        f" {tokens_per_s(fsdp):,.0f} in {peak_gb(fsdp):.1f} GB under fsdp; LoRA {tokens_per_s(lora):,.0f} in"
        f" {peak_gb(lora):.1f} GB under fsdp."
    )


def accumulation() -> Iterator[str]:
    """A step is n micro-steps and the rest: two runs give both, and what 8 and any number of micro-steps would make."""
    one, four = (f"{SECOND}/results/full-fsdp-8x2048-{name}" for name in ("after", "acc4"))
    tokens = 4 * 8 * 2048
    step_s = {1: tokens / tokens_per_s(one), 4: 4 * tokens / tokens_per_s(four)}
    micro_s = (step_s[4] - step_s[1]) / 3
    rest_s = step_s[1] - micro_s
    per_s = mfu_pct(one) * step_s[1]
    yield (
        f"a micro-step takes {micro_s:.3f} s and a step {1e3 * rest_s:.0f} ms more, by these runs without accumulation"
        f" and with 4. That predicts {per_s * 8 / (8 * micro_s + rest_s):.1f} % for 8; the limit is"
        f" {per_s / micro_s:.1f} %."
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
            yield row(
                job,
                strategy,
                *pair(peak_gb, ".1f", "", folders),
                *pair(exposed_pct, ".1f", " %", folders),
                *pair(communication_pct, ".1f", " %", folders),
            )

    larger = in_study("full", "fsdp", 4, "8")
    yield row("full, 8 x 2048", "fsdp", "-", f"{tokens_per_s(larger):,.0f}", "-", f"{mfu_pct(larger):.1f} %", "-", "-")
    shares = (f"{figure(larger):.1f} %" for figure in (exposed_pct, communication_pct))
    yield row(
        "full, 8 x 2048", "fsdp", "-", f"{peak_gb(larger):.1f}", *(cell for share in shares for cell in ("-", share))
    )


def probes_by_size() -> dict[int, list[float]]:
    """The study's matmul probes in TFLOP/s, by the number of GPUs."""
    probes: dict[int, list[float]] = {1: [], 2: [], 4: []}
    for path in (RESULTS / STRATEGIES).iterdir():
        folder = f"{STRATEGIES}/{path.name}"
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


def graphs_of_large_models() -> Iterator[str]:
    graph = f"{ACCUMULATION}/fsdp-full-2"
    launched = [f"{FLOAT8}/bf16-2-gpus-{name}" for name in ("1", "2", "18-steps-1")]
    shares_before = [probe_share_pct(folder) for folder in launched]
    yield f"reaches {probe_share_pct(graph):.1f} % of its own matmul rate as a graph"
    yield (
        f"reached {min(shares_before):.1f} to {max(shares_before):.1f} %, in the same"
        f" {each({round(peak_gb(folder), 1) for folder in [graph, *launched]}, '.1f')} GB."
    )
