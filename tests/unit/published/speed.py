"""Figures of docs/internals/speed.md and performance.md, from the result files."""

from __future__ import annotations

import statistics
from collections.abc import Iterator

from bench_image.contract.gpu_specs import PEAK_TFLOPS
from bench_image.contract.model_shapes import MODELS
from tests.unit.published import host, limits, models, peers, small, start, zero
from tests.unit.published.aa import AA, nightly_check
from tests.unit.published.measured import (
    ACCUMULATION,
    FLOAT8,
    FLOAT8_LORA,
    GANGS,
    GRAPHS,
    SECOND,
    STRATEGIES,
    THIRD,
    communication_pct,
    document,
    each,
    exposed_pct,
    folders,
    median_step_s,
    mfu_pct,
    peak_gb,
    probe_tflops,
    profile,
    row,
    run,
    tokens_per_s,
)
from trainbench.judging.gangs import slow_ranks

H200 = PEAK_TFLOPS["H200"]
assert H200.bf16_tflops
assert H200.fp8_tflops
FP8_TO_BF16 = H200.fp8_tflops / H200.bf16_tflops
MISTRAL = MODELS["mistral-7b"]


def performance() -> Iterator[str]:
    """docs/internals/speed.md."""
    yield f"the peak ({H200.bf16_tflops:.0f} TFLOP/s"
    yield from limits.large_rows()
    yield from models.table()
    yield f"[{ratio_by_turns(1):.1f} and {ratio_by_turns(3):.1f} times]"
    yield from small.in_short()
    yield from limits.compared()
    yield from gangs_in_short()
    yield from limits.start_up()
    yield from nightly_check()


def ratio_by_turns(machine: int) -> float:
    return ratio_of_means(preset_runs(machine, "tuned"), preset_runs(machine, "users"))


GANG_JOBS = {
    "tier A, full, 1 x 2048, accumulation 4": "tier-a-full",
    "Mistral-7B, full, 4 x 2048": "mistral-7b-full",
    "Mistral-7B, LoRA 4 x 2048": "mistral-7b-lora",
    "Mistral-7B, QLoRA 4 x 2048": "mistral-7b-qlora",
}
SLOWER_PCT = 5.0
TOGETHER = ("ddp", "fsdp", "zero2", "zero3")


def gangs_in_short() -> Iterator[str]:
    for job, name in GANG_JOBS.items():
        alone = tokens_per_s(f"{GANGS}/1-{name}-single")
        cells = [f"{alone:,.0f}"]
        for strategy in TOGETHER:
            rate = tokens_per_s(f"{GANGS}/4-{name}-{strategy}")
            cells.append(f"{rate:,.0f} ({100 * rate / (4 * alone):.1f} %)")
        yield row(job, *cells)
    full = f"{SECOND}/results/{ON_FOUR['full 8 x 2048']}"
    yield f"on four GPUs makes {tokens_per_s(full):,.0f} tokens/s, {mfu_pct(full):.1f} % MFU"


def each_gang() -> Iterator[str]:
    for job, name in GANG_JOBS.items():
        for strategy in TOGETHER:
            cells = []
            for gpus in (2, 4):
                gang = f"{GANGS}/{gpus}-{name}-{strategy}"
                cells += [f"{tokens_per_s(gang):,.0f}", f"{peak_gb(gang):.1f}", f"{exposed_pct(gang):.1f} %"]
            (first,) = folders(f"{STRATEGIES}/{name}-{strategy}-1x4-b{1 if name == 'tier-a-full' else 4}-*")
            yield row(f"{job}, {strategy}", *cells, f"{tokens_per_s(first):,.0f}")


def evidence() -> Iterator[str]:
    yield f"the GPU's peak of {H200.bf16_tflops:.0f} TFLOP/s"
    yield from presets()
    yield from other_jobs()
    yield from each_gang()
    yield from ranks_apart()
    yield from four_gpus()
    yield from graphs_in_gangs()
    yield from host.evidence()
    yield from zero.ratio_ranges()
    yield from against_the_trainer()
    yield from peers.page()
    yield from small.page()
    yield from limits.in_full_memory()
    yield from limits.on_an_h100()
    yield from float8()
    yield from float8_losses()
    yield from start.page()


def preset_runs(machine: int, preset: str) -> list[str]:
    return [f"{THIRD}/results/machine{machine}-{preset}-qlora-8x512-r{turn}" for turn in (1, 2)]


def ratio_of_means(fast: list[str], slow: list[str]) -> float:
    return sum(map(tokens_per_s, fast)) / sum(map(tokens_per_s, slow))


def presets() -> Iterator[str]:
    for machine in (1, 3):
        tuned, users = (preset_runs(machine, preset) for preset in ("tuned", "users"))
        yield row(
            str(machine),
            each(map(tokens_per_s, users), ",.0f"),
            each(map(tokens_per_s, tuned), ",.0f"),
            f"{ratio_of_means(tuned, users):.2f}",
            f"{sum(map(median_step_s, users)) / sum(map(median_step_s, tuned)):.2f}",
            f"{statistics.fmean(map(mfu_pct, tuned)):.1f} %",
            f"{peak_gb(tuned[0]):.1f}",
        )


PROFILED = {
    "LoRA 8 x 2048, adapters on q, k, v, o": "04-tuned-lora-8x2048-attention-only",
    "full 8 x 2048, accumulation 4": "17-tuned-full-8x2048-acc4",
}
WHOLE_RUNS = {
    "QLoRA 8 x 512, adapters on q, k, v, o": (f"{AA}/redesign/tuned", "22 November"),
    "tier A 1 x 2048, accumulation 4": (f"{GRAPHS}/one-gpu-1-gpus", "23 November"),
}


def second_round(name: str) -> dict[str, float]:
    result: dict[str, float] = profile(f"{SECOND}/profiles/machine3-{name}")
    return result


def measured_on(day: str, folder: str) -> str:
    return f"[{day}](../results/{folder}/README.md)"


def other_jobs() -> Iterator[str]:
    for job, name in PROFILED.items():
        of = second_round(name)
        yield row(
            job,
            f"{of['tokens_per_second']:,.0f}",
            f"{of['mfu_pct']:.1f} %",
            f"{of['peak_allocated_gb']:.1f}",
            measured_on("21 November", SECOND),
        )
    for job, (name, day) in WHOLE_RUNS.items():
        folders = [f"{name}-{turn}" for turn in (1, 2)]
        yield row(
            job,
            each(map(tokens_per_s, folders), ",.0f"),
            f"{each(map(mfu_pct, folders), '.1f')} %",
            f"{peak_gb(folders[0]):.1f}",
            measured_on(day, name.split("/")[0]),
        )


ON_FOUR = {
    "full 8 x 2048": "full-fsdp-8x2048-after",
    "full 8 x 2048, accumulation 4": "full-fsdp-8x2048-acc4",
    "full 8 x 2048, accumulation 8, machine 2": "full-fsdp-8x2048-acc8",
    "LoRA 4 x 2048": "lora-fsdp-4x2048-after",
    "QLoRA 4 x 2048": "qlora-fsdp-4x2048-after",
}


def ranks_apart() -> Iterator[str]:
    """How much longer the slowest rank computes than the median of the others."""
    gangs = {
        strategy: [run(f"{GANGS}/{gpus}-{name}-{strategy}") for gpus in (2, 4) for name in GANG_JOBS.values()]
        for strategy in TOGETHER
    }
    apart = {
        strategy: [slow.longer_pct for one in runs for slow in slow_ranks(one.ranks, 0.0)]
        for strategy, runs in gangs.items()
    }
    yield f"their ranks are at most {max(apart['ddp'] + apart['fsdp']):.1f} % apart"
    named = sorted(pct for strategy in ("zero2", "zero3") for pct in apart[strategy] if pct > SLOWER_PCT)
    assert len(named) == 3
    yield f"three runs named one, {named[0]:.0f} to {named[-1]:.0f} % slower"
    behind = max(
        100 * (1 - tokens_per_s(f"{GANGS}/4-{name}-zero2") / tokens_per_s(f"{GANGS}/4-{name}-ddp"))
        for name in GANG_JOBS.values()
        if name != "tier-a-full"
    )
    yield f"up to {behind:.1f} % slower than ddp with Mistral-7B"


def four_gpus() -> Iterator[str]:
    for job, name in ON_FOUR.items():
        yield row(job, *on_four(f"{SECOND}/results/{name}"))


def on_four(folder: str) -> tuple[str, ...]:
    return (
        f"{tokens_per_s(folder):,.0f}",
        f"{mfu_pct(folder):.1f} %",
        f"{peak_gb(folder):.1f}",
        f"{exposed_pct(folder):.1f} %",
        f"{communication_pct(folder):.1f} %",
        f"{probe_tflops(folder):.0f}",
    )


def graphs_in_gangs() -> Iterator[str]:
    alone = [f"{GRAPHS}/one-gpu-1-gpus-{turn}" for turn in (1, 2)]
    yield row("one GPU", each(map(tokens_per_s, alone), ",.0f"), "", "")
    for strategy in ("ddp", "fsdp"):
        for how, name in (("launched kernel by kernel", f"{strategy}-before"), ("as a graph", strategy)):
            gang = [f"{GRAPHS}/{name}-2-gpus-{turn}" for turn in (1, 2)]
            shares = [100 * tokens_per_s(folder) / sum(map(tokens_per_s, alone)) for folder in gang]
            yield row(
                f"{strategy}, {how}",
                each(map(tokens_per_s, gang), ",.0f"),
                f"{each(shares, '.1f')} %",
                f"{each(map(exposed_pct, gang), '.1f')} %",
            )


def against_the_trainer() -> Iterator[str]:
    for adapters, name in (("all seven linears", "all"), ("q, k, v, o", "attention")):
        yield row(adapters, *trainer_cells(f"{THIRD}/trainer-{name}.json"))


def trainer_cells(name: str) -> Iterator[str]:
    rates = document(name)["tokens_per_second"]
    for program in ("hf_trainer", "as_users_run"):
        yield ", ".join(f"{rate:,.0f}" for rate in rates[program])
    for ahead_pct in ahead_of_the_trainer_pct(name):
        yield f"{ahead_pct:+.1f} %"


def ahead_of_the_trainer_pct(name: str) -> tuple[float, float]:
    """How much faster `as_users_run` is, by medians of steps and by means of turns."""
    rates, steps = document(name)["tokens_per_second"], document(name)["step_s"]
    theirs, ours = (
        statistics.median(step for turn in steps[program] for step in turn)
        for program in ("hf_trainer", "as_users_run")
    )
    return 100 * (theirs / ours - 1), 100 * (sum(rates["as_users_run"]) / sum(rates["hf_trainer"]) - 1)


def float8() -> Iterator[str]:
    jobs = {
        "full, 1 GPU": f"{FLOAT8}/{{}}-1-gpus",
        "full, 2 GPUs, fsdp": f"{FLOAT8}/{{}}-2-gpus",
        "LoRA, 1 GPU": f"{FLOAT8_LORA}/lora-{{}}-1-gpus",
    }
    for job, name in jobs.items():
        bf16, fp8 = ([f"{name.format(precision)}-{turn}" for turn in (1, 2)] for precision in ("bf16", "fp8"))
        yield row(
            job,
            each(map(tokens_per_s, bf16), ",.0f"),
            each(map(tokens_per_s, fp8), ",.0f"),
            f"{ratio_of_means(fp8, bf16):.2f}",
            f"{each(map(mfu_pct, fp8), '.1f')} %",
            f"{each((mfu_pct(folder) * FP8_TO_BF16 for folder in fp8), '.1f')} %",
            each(map(peak_gb, (bf16[0], fp8[0])), ".1f"),
        )
        for pair in (bf16, fp8):
            assert max(map(tokens_per_s, pair)) / min(map(tokens_per_s, pair)) < 1.005
    yield "Runs of one kind differ by 0.5 % at most."
    mlp = {name: statistics.median(turns) for name, turns in document(f"{FLOAT8}/layer.json")["mlp_ms"].items()}
    faster = {name: f"{mlp['bf16'] / ms:.2f}" for name, ms in mlp.items()}
    rowwise, tensorwise = (faster[f"torchao {recipe}"] for recipe in ("rowwise", "tensorwise"))
    yield f"makes one MLP {rowwise} times as fast, its `tensorwise` {tensorwise} times"
    yield f"ours {faster['ours']} times"


def float8_losses() -> Iterator[str]:
    stream = document(f"{FLOAT8}/losses.json")["losses"]
    means = {
        precision: [statistics.fmean(losses[start : start + 20]) for start in range(0, 200, 20)]
        for precision, losses in stream.items()
    }
    apart = max(abs(100 * (fp8 / bf16 - 1)) for fp8, bf16 in zip(means["fp8"], means["bf16"], strict=True))
    yield f"Full training stays within {apart:.1f} % of bf16"
    all_fast, two_fast = (tokens_per_s(f"{ACCUMULATION}/{name}") for name in ("fp8-all-1", "fp8-gw-1"))
    slower_pct = 100 * (1 - two_fast / all_fast)
    yield f"without it in one of the three products a run of full training is {slower_pct:.1f} % slower"
