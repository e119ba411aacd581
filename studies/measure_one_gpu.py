"""Measures tables of one GPU of docs/internals/performance.md, and two diagnoses, the most important first.

    PYTHONPATH=.:plugins python3 studies/measure_one_gpu.py OUT             -> OUT/runs/<run>/result.json, OUT/store
    PYTHONPATH=.:plugins python3 studies/measure_one_gpu.py OUT --tables    the tables of what OUT holds

Its python must hold the training stack and what the command line needs (pydantic-settings, SQLAlchemy, alembic, typer,
rich, Jinja2, matplotlib, scipy, universal-pathlib). By the seconds of two such runs all 29 should take about ten
minutes on an H200. Stopped before its end it keeps every finished run, and goes on after the last one.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from bench_image.contract.parse import parse_result
from bench_image.contract.result import RunResult
from bench_image.contract.spec import RunSpec
from run_specs import run
from trainbench.core.formats import NA
from trainbench.params.campaign_params import parse_params
from trainbench.planning.nodes import Fleet, named_nodes
from trainbench.planning.plan import make_plan

CAMPAIGN, NODE = "one-gpu", "h200-1"
COMMON: dict[str, Any] = {
    "nodes": [NODE], "strategies": ["single"], "gpus_per_node": 1, "lora_targets": "all", "preset": "tuned",
    "optimizer": "adamw_torch", "gradient_checkpointing": False, "warmup_steps": 5, "repeats": 3, "timeout_s": 120.0,
    "force": True,
}  # fmt: skip
AS_USERS_RUN = {"preset": "as_users_run", "optimizer": "paged_adamw_8bit", "gradient_checkpointing": True}
QLORA = {"recipe": "qlora", "micro_batch_size": 8, "seq_length": 512}
LORA = {"recipe": "lora", "micro_batch_size": 8, "seq_length": 2048}
FULL = {"recipe": "full", "micro_batch_size": 8, "seq_length": 2048}
GPT2 = {"model": "gpt2", "micro_batch_size": 8, "seq_length": 1024, "warmup_steps": 15}
TIER_A = {"model": "tier-a", "recipe": "full", "micro_batch_size": 1, "seq_length": 2048, "warmup_steps": 20}
# Name -> what differs from COMMON, and the steps of a window.
JOBS: Mapping[str, tuple[dict[str, Any], int]] = {
    "users-qlora-1": (QLORA | AS_USERS_RUN, 5),
    "tuned-qlora-1": (QLORA, 10),
    "users-qlora-2": (QLORA | AS_USERS_RUN, 5),
    "tuned-qlora-2": (QLORA, 10),
    "lora": (LORA, 4),
    "lora-attention": (LORA | {"lora_targets": "attention"}, 4),
    "full": (FULL, 3),
    "full-fp8": (FULL | {"precision": "fp8"}, 4),
    "tier-a": (TIER_A | {"gradient_accumulation_steps": 4}, 40),
    "gpt2-full": (GPT2 | {"recipe": "full"}, 40),
    "gpt2-lora": (GPT2 | {"recipe": "lora"}, 40),
    "gpt2-full-users": (GPT2 | {"recipe": "full"} | {"preset": "as_users_run"}, 20),
    "qlora-attention": (QLORA | {"lora_targets": "attention"}, 10),
    "qlora-llama2": (QLORA | {"model": "llama2-7b"}, 10),
    "full-accumulation-4": (FULL | {"gradient_accumulation_steps": 4, "warmup_steps": 3}, 2),
}


FIRST = 8  # so many of JOBS run before the diagnoses
# Folder of the campaign's store -> its parameters. The first has the published guide's six configurations.
DIAGNOSES: Mapping[str, tuple[str, ...]] = {
    "six": (
        "variants=adamw_torch,LoRA r8,seq 512,seq 512 + batch 8,fp16",
        *("warmup_steps=3", "measured_steps=4", "max_measured_steps=4", "repeats=6"),
    ),
    "settings": (
        "variants=fp32,tf32,compile,eager attention,flash attention,fp16",
        *("model=tier-b", "recipe=full", "micro_batch_size=4", "seq_length=2048"),
        *("warmup_steps=2", "measured_steps=2", "max_measured_steps=2", "repeats=5"),
    ),
}
COMMAND_LINE = "from trainbench.cli.app import app; app()"


def planned() -> Iterator[tuple[str, RunSpec]]:
    """Name and spec of each run, in the order of JOBS."""
    for number, (name, (job, steps)) in enumerate(JOBS.items()):
        form = COMMON | job | {"measured_steps": steps, "max_measured_steps": steps}
        (spec,) = make_plan(parse_params(form), Fleet(nodes=named_nodes([NODE])), CAMPAIGN).specs
        yield f"{number:02d}-{name}", spec


def command(name: str, store: Path) -> list[str]:
    """The command line of a diagnosis."""
    settings = [word for setting in ("rounds=1", *DIAGNOSES[name]) for word in ("--set", setting)]
    where = ["--device", "cuda", "--nodes", NODE, "--store", str(store)]
    return [sys.executable, "-c", COMMAND_LINE, "run", "--suite", "config_diagnosis", *where, *settings]


def diagnose(name: str, output: Path) -> None:
    """The campaign, by the command line and its local launcher; nothing where its report is there already."""
    store = output / "store" / name
    if any(store.glob("campaigns/*/summary/BENCHMARK_REPORT.md")):
        return
    path = os.pathsep.join(str(Path(folder).resolve()) for folder in os.environ["PYTHONPATH"].split(os.pathsep))
    local = {"TRAINBENCH_LOCAL_PYTHON": sys.executable, "TRAINBENCH_LOCAL_PYTHONPATH": path}
    subprocess.run(command(name, store), env=local | os.environ, check=False)


def measure(output: Path) -> None:
    """All runs and diagnoses that OUT does not hold yet."""
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # with it each run compiles the libraries' sources anew
    specs = output / "specs"
    specs.mkdir(parents=True, exist_ok=True)
    for number, (name, spec) in enumerate(planned()):
        if number == FIRST:
            for diagnosis in DIAGNOSES:
                diagnose(diagnosis, output)
        file = specs / f"{name}.json"
        file.write_text(spec.model_dump_json(indent=1))
        run(file, output / "runs" / name)


def tables(results: Mapping[str, RunResult]) -> Iterator[str]:
    """Markdown rows: rate, MFU, peak memory, and samples/s of each window."""
    yield "| run | tokens/s | MFU | peak GB | samples/s of each window |"
    yield "|---|--:|--:|--:|---|"
    for name, result in results.items():
        yield f"| {' | '.join([f'`{name}`', *cells(result)])} |"


def cells(result: RunResult) -> Iterable[str]:
    rate, memory = result.performance, result.memory
    if rate is None or rate.tokens_per_second is None or rate.mfu_pct is None or memory is None:
        return [result.status.value, NA, NA, NA]
    return [
        f"{rate.tokens_per_second:,.0f}",
        f"{rate.mfu_pct:.1f} %",
        f"{(memory.peak_allocated_bytes or 0) / 1e9:.1f}",
        ", ".join(f"{window.samples_per_second:.2f}" for window in rate.windows),
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("output", type=Path, metavar="OUT")
    parser.add_argument("--tables", action="store_true", help="measure nothing")
    arguments = parser.parse_args()
    if not arguments.tables:
        measure(arguments.output)
    files = sorted(arguments.output.glob("runs/*/result.json"))
    print("\n".join(tables({file.parent.name: parse_result(file.read_bytes()) for file in files})))


if __name__ == "__main__":
    main()
