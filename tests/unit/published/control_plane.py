"""Figures of README and docs about the checks, the pages and Airflow: from result files and constants."""

from __future__ import annotations

import json
import math
import re
import statistics
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from bench_image.contract.flops import num_parameters
from bench_image.contract.model_shapes import EncoderDecoderShape
from committed import committed
from tests.builders.commands import trainbench
from tests.unit.published import probes
from tests.unit.published.aa import noise_per_gpu
from tests.unit.published.figures import on_one_line
from tests.unit.published.measured import THIRD, document, row
from tests.unit.published.small import encoder_decoder as of_presets
from tests.unit.published.speed import ahead_of_the_trainer_pct
from trainbench.core.grouping import grouped
from trainbench.core.verdicts import Tolerances
from trainbench.cost.plan_estimate import ASSUMED_MFU_PCT, START_S
from trainbench.judging.levels import MIN_BAND_PCT
from trainbench.judging.same_work import FIRST_LOSS_PCT, MEAN_LOSS_PCT

LIMITS = Tolerances()
RATE_PCT, MEMORY_PCT = f"{LIMITS.samples_per_second_pct:g} %", f"{LIMITS.memory_pct:g} %"
PAGES_STUDY, NIGHTS = "pages-2026-11-28", "nights-2026-11-29"
COMMANDS = "scale-2026-11-28"


def readme() -> Iterator[str]:
    yield f"samples/s (± {RATE_PCT}), GPU memory (± {MEMORY_PCT})"
    yield from noise_per_gpu()
    nodes = max(night["num_nodes"] for night in nights().values() if night["state"] == "success")
    yield f"a night of up to {nodes:,} nodes"
    yield from first_hour()


def first_hour() -> Iterator[str]:
    hour = document("first-hour-2026-11-28/times.json")
    disk, torch = sum(hour["disk_bytes"]["demo"].values()), hour["disk_bytes"]["torch"]
    yield f"{disk / 1e9:.1f} GB with a CPU build of PyTorch, {(disk - torch['cpu'] + torch['cuda']) / 1e9:.1f} GB with"
    times = grouped((step["step"], step["wall_s"]) for step in hour["steps"])
    took_s = {step: f"{statistics.median(of):.0f} s" for step, of in times.items()}
    yield f"set-up took {took_s['make setup-demo']}, the demo {took_s['make demo']}]"


def benchmarks() -> Iterator[str]:
    """By medians of steps and by means of turns, with adapters on all linears and on those of the attention."""
    ahead_pct = [pct for of in ("all", "attention") for pct in ahead_of_the_trainer_pct(f"{THIRD}/trainer-{of}.json")]
    yield f"within {math.ceil(max(map(abs, ahead_pct)))} % of the HF Trainer"
    yield from probes.bands()


def command_line() -> Iterator[str]:
    yield f"{START_S:.0f} s to start, then the steps of warm-up and windows at an MFU of {ASSUMED_MFU_PCT:.0f} %"


def dags() -> Iterator[str]:
    rate = f"{RATE_PCT} slower | {LIMITS.past_pct:g} % slower"
    yield f"| samples/s | {rate} | the level's band, {MIN_BAND_PCT:g} % or more |"
    yield f"| GPU memory | {MEMORY_PCT} more | {MEMORY_PCT} more |"
    heat = f"{LIMITS.temperature_c:g} °C hotter"
    yield f"| temperature | {heat} | {heat} |"
    yield f"whose first loss is {FIRST_LOSS_PCT:g} % off, or whose mean loss is {MEAN_LOSS_PCT:g} % off"
    yield f"so the band is {MIN_BAND_PCT:g} % or three standard deviations"


SIZES = ((512, 8, 6, 6, 2048), (768, 12, 12, 12, 3072), (2048, 32, 24, 24, 8192))  # as on the page


def millions_of_parameters() -> Iterator[float]:
    for hidden, heads, encoder, decoder, inner in SIZES:
        shape = EncoderDecoderShape(
            family="encoder-decoder",
            hidden_size=hidden,
            num_heads=heads,
            num_encoder_layers=encoder,
            num_decoder_layers=decoder,
            intermediate_size=inner,
        )
        yield num_parameters(shape) / 1e6


def encoder_decoder() -> Iterator[str]:
    small, middle, large = millions_of_parameters()
    yield f"is {small:.1f} M parameters, 768 / 12 / 12 / 12 / 3072 is {middle:.1f} M, 2048 /"
    yield f"/ 8192 is {large:,.0f} M"
    yield from of_presets()
    yield f"| {small:.1f} M and {middle:.1f} M |"
    yield f"vocabulary 8000: {num_parameters(EncoderDecoderShape(family='encoder-decoder')):,}"


def tutorial() -> Iterator[str]:
    yield f"its own past judges it, to {LIMITS.past_pct:g} %"


def faq() -> Iterator[str]:
    words = "plan --gpu H200 --gpus 8 --nodes gpu-1,gpu-2"
    sentence = on_one_line(trainbench(*words.split()).output)
    found = re.search(r"runs: (about .+?) \(.*?\), (.*?) with .*?, ([\d.]+ GPU-hours, \S+ on demand)", sentence)
    assert found
    yield f"{found[1]} ({found[2]} side by side), {found[3]} for these two nodes"
    yield f"{RATE_PCT} against the other nodes and {LIMITS.past_pct:g} % against the node's own past"


def pages() -> Iterator[str]:
    study = document(f"{PAGES_STUDY}/reads-sqlite.json")
    plain = max(read["cpu_ms"] for read in study["reads"] if "chart" not in read["read"])
    yield (
        f"({study['nodes']:,} nodes, {study['nights']} nights) in SQLite, each of {len(study['reads'])} reads behind"
        f" the pages takes at most {study['largest_cpu_ms']:.0f} ms of CPU time, and without a chart {plain:.0f} ms"
    )
    yield f"costs {more_cpu_ms():.0f} ms more CPU while there is a banner"


def more_cpu_ms() -> float:
    """Of the home page's call that brings the banners, while there is one."""
    calls = document(f"{PAGES_STUDY}/airflow.json")["calls"]
    cpu_ms = {call["server"]: call["cpu_ms"] for call in calls if call["what"] == "what the home page shows"}
    return float(cpu_ms["with the plugin"] - cpu_ms["without the plugin"])


def security() -> Iterator[str]:
    inputs = [json.loads(text)["inputs"] for text in committed("hostile-inputs-*/*.json").values()]
    yield f"the runs of 29 November had {sum(inputs):,}"


def nights() -> dict[str, Any]:
    return {Path(path).stem: json.loads(text) for path, text in committed(f"{NIGHTS}/*.json").items()}


PARTS = {
    "scheduler": "scheduler",
    "workers": "workers and tasks",
    "triggerer": "triggerer",
    "API server": "api-server",
    "DAG processor": "dag-processor",
}


def scale() -> Iterator[str]:
    yield from pages()
    for name, night in nights().items():
        yield row(
            name,
            f"{night['num_pods']:,}",
            f"{night['trigger_to_report_s'] or night['trigger_to_end_s']:,.0f}",
            f"{night['cpu_s']:,.0f}",
            *(f"{of['cpu_s']:,.0f}, {of['peak_mb']:,.0f}" for of in map(night["processes"].get, PARTS.values())),
            f"{night['database_mb_per_night']:,.1f}",
        )
    yield from cost_of_a_pod()
    yield from cores_of_a_night()
    yield from commands()


def part_s(night: str, part: str) -> float:
    """CPU seconds for each pod."""
    of = nights()[night]
    return float(of["processes"][PARTS[part]]["cpu_s"]) / int(of["num_pods"])


def cost_of_a_pod() -> Iterator[str]:
    pod_s = {name: f"{night['cpu_s'] / night['num_pods']:.2f}" for name, night in nights().items()}
    assert pod_s["100-sqlite-1"] == pod_s["100-sqlite-2"]
    yield (
        f"A pod cost {pod_s['100-sqlite-1']} CPU seconds among 100, {pod_s['100-postgres']} with PostgreSQL, and "
        f"{pod_s['1000-sqlite']} among 1,000; with files read every 30 s, {pod_s['100-sqlite-read-30s']} among 100"
    )
    yield f"(`100-sqlite-before`), it was {pod_s['100-sqlite-before']}"
    loops_s = [loop_s for night in nights().values() for loop_s in night["ten_million_squares_s"]]
    yield f"{min(loops_s)} to {max(loops_s)} s of CPU time"
    scheduler = [part_s(night, "scheduler") for night in ("100-sqlite-2", "1000-sqlite")]
    yield f"its part grew from {scheduler[0]:.2f} to {scheduler[1]:.2f} a pod"


def cores_of_a_night() -> Iterator[str]:
    """CPU minutes of 100 and 1,000 runs as measured on two cores, and of 5,000 as 1,000 times 5."""
    cpu_min, triggerer_min = {}, {}
    for runs in (100, 1000):
        night = nights()["100-sqlite-2" if runs < 1000 else "1000-sqlite"]
        cpu_min[runs], triggerer_min[runs] = night["cpu_s"] / 60, night["processes"]["triggerer"]["cpu_s"] / 60
        total = f"{cpu_min[runs]:.{1 if runs < 1000 else 0}f}"
        yield (
            f"| {runs:,} | {total} (measured) | {triggerer_min[runs]:.1f} (measured) |"
            f" {cpu_min[runs] / 2:.0f} min (measured: {night['trigger_to_report_s'] / 60:.0f}) |"
        )
    yield (
        f"| 5,000 | {5 * cpu_min[1000]:.0f} | {5 * triggerer_min[1000]:.0f} | {5 * cpu_min[1000] / 2:.0f} min |"
        f" {math.ceil(5 * cpu_min[1000] / 15)} |"
    )
    shares = {part: 100 * part_s("1000-sqlite", part) * 1000 / (60 * cpu_min[1000]) for part in PARTS}
    api, workers, scheduler = (f"{part} ({shares[part]:.0f} %)" for part in ("API server", "workers", "scheduler"))
    yield f"the CPU of {api}, {workers} and {scheduler}"


def commands() -> Iterator[str]:
    few, many = (document(f"{COMMANDS}/files-{results}.json") for results in (1000, 4000))
    for name in few["commands"]:
        less, more = few["commands"][name], many["commands"][name]
        each_kb, each_ms = (1e3 * (more[figure] - less[figure]) / 3000 for figure in ("peak_rss_mb", "cpu_seconds"))
        yield row(
            f"`{name}`",
            *(f"{of['peak_rss_mb']} MB, {of['cpu_seconds']:.1f} s" for of in (less, more)),
            f"{each_kb:.1f} kB" if each_kb else "0",
            f"{each_ms:.1f} ms",
            f"{(less['peak_rss_mb'] + 7 * each_kb) / 1e3:.2f} GB",
        )
