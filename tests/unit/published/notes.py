"""Figures of the notes beside the result files (docs/results/*/README.md)."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Iterator, Sequence

from committed import committed
from tests.unit.published.control_plane import airflows_own_pages
from tests.unit.published.measured import (
    ACCUMULATION,
    FLOAT8,
    GRAPHS,
    STRATEGIES,
    communication_pct,
    document,
    each,
    exposed_pct,
    folders,
    means_of_20,
    mfu_pct,
    peak_gb,
    performance,
    probe_share_pct,
    row,
    run,
    tokens_per_s,
)
from tests.unit.published.speed import FP8_TO_BF16
from tests.unit.published.tries import probes_by_size


def windows(folder: str) -> list[float]:
    return [window.samples_per_second for window in performance(folder).windows]


def apart_pct(values: Iterable[float]) -> float:
    """The largest over the smallest."""
    several = list(values)
    return 100 * (max(several) / min(several) - 1)


def graphs() -> Iterator[str]:
    labels = {
        "one-gpu-1": "one GPU, a graph as before",
        "ddp-before-2": "ddp, before",
        "ddp-2": "**ddp**",
        "fsdp-before-2": "fsdp, before",
        "fsdp-2": "**fsdp**",
    }
    alone = sum(tokens_per_s(f"{GRAPHS}/one-gpu-1-gpus-{turn}") for turn in (1, 2))
    for name, label in labels.items():
        folders = [f"{GRAPHS}/{name}-gpus-{turn}" for turn in (1, 2)]
        rates = [window for folder in folders for window in windows(folder)]
        cells = ["", "", ""]
        if not name.startswith("one"):
            share = f"{each((100 * tokens_per_s(folder) / alone for folder in folders), '.1f')} %"
            cells = [f"**{share}**" if "**" in label else share]
            cells += [f"{each(map(figure, folders), '.1f')} %" for figure in (exposed_pct, communication_pct)]
        yield row(
            label,
            each(map(tokens_per_s, folders), ",.0f"),
            cells[0],
            f"{min(rates):.1f} to {max(rates):.1f}",
            *cells[1:],
            f"{peak_gb(folders[0]):.2f}",
        )
    yield from noise_of_graphs()
    yield from losses_of_graphs()


def noise_of_graphs() -> Iterator[str]:
    graph, launched = (
        max(apart_pct(tokens_per_s(f"{GRAPHS}/{name}-gpus-{turn}") for turn in (1, 2)) for name in names)
        for names in (("one-gpu-1", "ddp-2", "fsdp-2"), ("ddp-before-2", "fsdp-before-2"))
    )
    assert graph <= 0.15
    yield f"differ by 0.15 % at most with the graph, and by up to {launched:.0f} % without it"


def losses_of_graphs() -> Iterator[str]:
    """Largest difference of a step's loss between two runs, over the steps that both made."""
    losses = document(f"{GRAPHS}/losses.json")
    means = []
    for strategy in ("ddp", "fsdp"):
        before, after = ([losses[f"{strategy}{how}-2-gpus-{turn}"] for turn in (1, 2)] for how in ("-before", ""))
        pairs = [(one, other) for one in before for other in after]
        largest = [max(differences_pct(*pair)) for pair in pairs]
        means += [abs(100 * (mean_of_common(*pair[::-1]) / mean_of_common(*pair) - 1)) for pair in pairs]
        same = [f"{max(differences_pct(*two)):.2f} %" for two in (before, after)]
        yield row(strategy, f"{min(largest):.2f} to {max(largest):.2f} %", *same)
    yield f"The mean differences of before and after are {max(means):.3f} % and less."


def differences_pct(one: Sequence[float], other: Sequence[float]) -> list[float]:
    return [abs(100 * (second / first - 1)) for first, second in zip(one, other, strict=False)]


def mean_of_common(one: Sequence[float], other: Sequence[float]) -> float:
    return statistics.fmean(one[: min(len(one), len(other))])


def float8() -> Iterator[str]:
    for precision, gpus, turn in (
        (precision, gpus, turn) for gpus in (1, 2) for turn in (1, 2) for precision in ("bf16", "fp8")
    ):
        name = f"{precision}-{gpus}-gpus-{turn}"
        folder = f"{FLOAT8}/{name}"
        of_bf16 = mfu_pct(folder) * (FP8_TO_BF16 if precision == "fp8" else 1)
        yield row(
            f"`{name}`{', fsdp' if gpus == 2 else ''}",
            f"{tokens_per_s(folder):,.0f}",
            ", ".join(f"{rate:.3f}" for rate in windows(folder)),
            f"{mfu_pct(folder):.1f} %",
            f"{of_bf16:.1f} %",
            f"{peak_gb(folder):.2f} GB",
        )

    yield from float8_in_words()
    yield from float8_losses()


def float8_in_words() -> Iterator[str]:
    for gpus, form in (
        (1, "**One GPU: {mean:.2f} times bf16** (each fp8 run over each bf16 run: {low:.3f} to {high:.3f})"),
        (2, "fsdp: {mean:.2f} times** ({low:.3f} to {high:.3f})"),
    ):
        bf16, fp8 = (
            [tokens_per_s(f"{FLOAT8}/{precision}-{gpus}-gpus-{turn}") for turn in (1, 2)]
            for precision in ("bf16", "fp8")
        )
        ratios = [fast / slow for fast in fp8 for slow in bf16]
        assert max(map(apart_pct, (bf16, fp8))) <= (0.15 if gpus == 1 else 0.5)
        yield form.format(mean=sum(fp8) / sum(bf16), low=min(ratios), high=max(ratios))
    yield "; runs of one kind differ by 0.15 % at most."
    yield "; runs of one kind differ by 0.5 % at most."
    slow, fast = (tokens_per_s(f"{FLOAT8}/{precision}-2-gpus-18-steps-1") for precision in ("bf16", "fp8"))
    yield f"{slow:,.0f} and {fast:,.0f} tokens/s, {fast / slow:.2f} times"
    telemetries = {
        name: telemetry.gpus[0]
        for name in ("bf16-1-gpus-1", "bf16-1-gpus-2", "fp8-1-gpus-1", "fp8-1-gpus-2")
        if (telemetry := run(f"{FLOAT8}/{name}").telemetry)
    }
    clocks = {name: gpu.sm_clock_mean_mhz or 0 for name, gpu in telemetries.items()}
    fp8_mhz, bf16_mhz = (sorted(mhz for name, mhz in clocks.items() if name.startswith(of)) for of in ("fp8", "bf16"))
    yield f"{each(fp8_mhz, ',.0f')} MHz instead of {each(bf16_mhz, ',.0f')}"
    power_w = [
        gpu.power_mean_w or 0
        for folder in folders(f"{FLOAT8}/*-gpus-[12]")
        if (telemetry := run(folder).telemetry)
        for gpu in telemetry.gpus
    ]
    yield f"({min(power_w):.0f} to {max(power_w):.0f} W)"
    saved_gb = peak_gb(f"{FLOAT8}/bf16-1-gpus-1") - peak_gb(f"{FLOAT8}/fp8-1-gpus-1")
    yield f"hence {saved_gb:.1f} GB less memory"
    yield from losses_by_heart()


def losses_by_heart() -> Iterator[str]:
    """Runs of 18 measured steps after six of warm-up, on two GPUs."""
    sums, firsts = {}, []
    for folder in folders(f"{FLOAT8}/*-2-gpus-*"):
        result = performance(folder)
        firsts.append(result.first_loss or 0)
        if result.measured_steps == 18:
            sums[folder.removeprefix(f"{FLOAT8}/")] = 18 * (result.mean_loss or 0)
    (bf16,) = (total for name, total in sums.items() if name.startswith("bf16"))
    fp8 = [total for name, total in sums.items() if name.startswith("fp8")]
    yield f"losses of bf16 add up to {bf16:.1f}, those of fp8 to {min(fp8):.1f} to {max(fp8):.1f} in three runs;"
    yield f"the first losses agree ({min(firsts):.3f} to {max(firsts):.3f})"


def float8_losses() -> Iterator[str]:
    stream = {name: means_of_20(losses) for name, losses in document(f"{FLOAT8}/losses.json")["losses"].items()}
    for index, (bf16, fp8, other) in enumerate(
        zip(*(stream[name] for name in ("bf16", "fp8", "bf16, seed 1")), strict=True)
    ):
        yield row(
            f"{20 * index + 1} to {20 * index + 20}",
            f"{bf16:.4f}",
            f"{fp8:.4f}",
            f"{100 * (fp8 / bf16 - 1):+.2f} %",
            f"{100 * (other / bf16 - 1):+.2f} %",
        )
    apart = [abs(100 * (fp8 / bf16 - 1)) for fp8, bf16 in zip(stream["fp8"], stream["bf16"], strict=True)]
    yield f"it holds with {max(apart):.2f} % where the loss falls steeply and {max(apart[2:]):.2f} % afterwards"
    mlp = {name: statistics.median(turns) for name, turns in document(f"{FLOAT8}/layer.json")["mlp_ms"].items()}
    labels = {"bf16": "bf16", "ours": "ours: a scale for each row"}
    for name, ms in mlp.items():
        label = labels.get(name) or f"torchao `{name.removeprefix('torchao ')}`"
        yield row(label, f"{ms:.2f}", f"{mlp['bf16'] / ms:.2f}")
    casts = document(f"{FLOAT8}/layer.json")["casts"].values()
    yield f"at {min(casts) / 1e3:.1f} to {max(casts) / 1e3:.1f} TB/s"


def accumulation() -> Iterator[str]:
    losses = document(f"{ACCUMULATION}/losses.json")["losses"]
    columns = (
        "bf16",
        "fp8, fast: all",
        "fp8, fast: all but the weight gradient",
        "fp8, fast: out",
        "fp8, fast: none",
        "bf16, seed 1",
    )
    yield row(
        "repeated, steps 7 to 24 added up", *(f"{sum(losses[f'repeated, {column}'][6:24]):.2f}" for column in columns)
    )
    for start in (0, 20, 180):
        means = (statistics.fmean(losses[f"chain, {column}"][start : start + 20]) for column in columns)
        yield row(f"chain, mean of steps {start + 1} to {start + 20}", *(f"{mean:.4f}" for mean in means))
    labels = {
        "bf16-1": "`bf16-1`",
        "fp8-all-1": "`fp8-all-1`: as the program is",
        "fp8-gw-1": "`fp8-gw-1`: the weights' gradients without fast accumulation",
        "fsdp-full-2": "`fsdp-full-2`: 2 GPUs, fsdp, a graph",
        "ddp-lora-2": "`ddp-lora-2`: LoRA 4 x 2048, adapters on q, k, v, o, 2 GPUs, ddp, a graph",
    }
    for name, label in labels.items():
        folder = f"{ACCUMULATION}/{name}"
        yield row(
            label,
            f"{tokens_per_s(folder):,.0f}",
            f"{mfu_pct(folder):.1f} %",
            f"{peak_gb(folder):.2f}",
            f"{probe_share_pct(folder):.1f} %",
        )
    one, *two = (f"{FLOAT8}/bf16-{name}" for name in ("1-gpus-1", "2-gpus-1", "2-gpus-2", "2-gpus-18-steps-1"))
    shares = [probe_share_pct(folder) for folder in two]
    yield (
        f"made {tokens_per_s(one):,.0f} and {tokens_per_s(two[0]):,.0f} tokens/s, {probe_share_pct(one):.1f} and"
        f" {min(shares):.1f} to {max(shares):.1f} % of their probes"
    )


def all_results() -> Iterator[str]:
    """The list of all results."""
    yield from machines()
    flows = [document(f"scale-2026-11-22/flow-{turn}.json") for turn in (1, 2, 3)]
    (peak_gb_of_flow,) = {f"{flow['peak_rss_mb'] / 1e3:.1f}" for flow in flows}
    yield f"{flows[0]['num_nodes']:,} nodes x {flows[0]['num_strategies']} strategies"
    yield f"recorded in {each((flow['seconds']['total'] for flow in flows), '.1f')} s, {peak_gb_of_flow} GB."
    of_four_gpus = [run(folder) for folder in folders(f"{STRATEGIES}/*")]
    run_s = statistics.fmean(r.startup.total_s for r in of_four_gpus if r.spec.placement.world_size == 4)
    yield f"took {run_s:.0f} s on average, so the first 32 runs take about {32 * run_s / 60:.0f} minutes."
    for name, of in document("scale-2026-11-22/files-100000.json")["commands"].items():
        yield f"`{name}` {of['seconds']:.0f} s and {of['peak_rss_mb'] / 1e3:.1f} GB"


def machines() -> Iterator[str]:
    """The matmul probes of the strategy study's machines, by the number of their GPUs."""
    probes = probes_by_size()
    yield f"| all on 4 GPUs | 4 | 10:55 to 11:07 | {min(probes[4]):.0f} to {max(probes[4]):.0f} TFLOP/s |"
    slower = sorted(100 * (1 - four / alone) for four in probes[4] for alone in probes[1])
    yield f"a GPU of the 4-GPU machine multiplies {slower[0]:.0f} to {slower[-1]:.0f} % slower"


def pages() -> Iterator[str]:
    study = document("pages-2026-11-22/reads-sqlite.json")
    reads, rows = study["reads"], study["rows"]
    yield f"{rows['runs']:,} runs and as many verdicts, {rows['works']:,} works, {rows['breaches']:,} breaches"
    yield f"| largest CPU time of a read | {study['largest_cpu_ms']:.0f} ms"
    download, page = sorted(reads, key=lambda read: -read["median_ms"])[:2]
    yield f"| {download['median_ms']:.0f} ms (first 500 lines of a CSV with every filter set);"
    yield f"of a page {page['median_ms']:.0f} ms"
    for label, figure in (("reads with a median over 300 ms", "median_ms"), ("first reads over 300 ms", "cold_ms")):
        yield f"| {label} | {sum(read[figure] > 300 for read in reads)} of {len(reads)}"
    yield f"at most {study['largest_cold_ms'] / 1e3:.1f} s |"
    yield f"night of {study['record_s']['num_runs']:,} runs: {study['record_s']['first']:.0f} s"
    yield from airflows_own_pages()


def hostile_inputs(folder: str) -> Iterator[str]:
    studies = [document(path) for path in committed(f"{folder}/*.json")]
    yield f"{sum(study['inputs'] for study in studies):,} damaged documents"
    yield f"{sum(study['cpu_s'] for study in studies):,} CPU seconds"


STEPS = {
    "demo": "`make demo` in a new clone | verdict, with both environments set up",
    "drill": "`make demo DRILL=node-3` | verdict, red as it should be",
    "run-quick": "`trainbench run --set quick=true` | verdict",
    "box-doctor": "`trainbench doctor` | Ready",
    "box-run-cpu": "`trainbench run --device cpu` | verdict",
    "box-survey": "`trainbench run --device cpu --suite hardware_survey --set quick=true` | table of recipes",
    "pip-control": "`pip install '.[control]'` beside Airflow 3.3.2 | the DAGs are there",
    "db": "`airflow db migrate` | the database of that Airflow",
    "airflow-doctor": "`trainbench doctor` | it says what is not set yet",
    "airflow-quick": "`airflow dags test node_consistency`, quick, three nodes, at low priority | verdict",
}


def first_hour() -> Iterator[str]:
    hour = document("first-hour-2026-11-23/times.json")
    steps = {step["step"]: step for step in hour["steps"]}
    for name, label in STEPS.items():
        yield f"| {label} | {steps[name]['wall_s']:.0f} s | {steps[name]['cpu_s']:.0f} s |"
    loads = [step["load_before"] for step in steps.values()]
    yield f"the load was {min(loads):.0f} to {max(loads):.0f},"
    yield f"the environments take {sum(hour['disk_gb'].values()):.1f} GB"
