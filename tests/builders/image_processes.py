"""Starts the benchmark program as a real process, the way a pod does."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import psutil  # type: ignore[import-untyped]

from bench_image.contract.options import Optimizer, Recipe, Strategy
from bench_image.contract.parse import parse_result
from bench_image.contract.result import Phase, RunResult
from bench_image.contract.spec import RunSpec
from bench_image.contract.work import Lora, Quantisation
from bench_image.process.rank_report import RankReport, read_reports
from tests.builders import spec_from
from tests.builders.warm_processes import CONTEXT, WarmProcess

ROOT = Path(__file__).parents[2]
ENDLESS = {"measured_steps": 100_000, "max_measured_steps": 100_000, "max_window_s": 3600.0}


def make_spec(**changes: Any) -> RunSpec:
    """A tiny CPU run of a second or two beside its imports."""
    fields: dict[str, Any] = {
        "campaign_id": "campaign", "run_id": "run", "group_id": "group", "node": "node-1", "model": "tiny",
        "device": "cpu", "recipe": Recipe.QLORA, "micro_batch_size": 2, "seq_length": 32, "warmup_steps": 2,
        "measured_steps": 4, "max_measured_steps": 8, "max_window_s": 120, "repeats": 2, "timeout_s": 1500,
    }  # fmt: skip
    fields |= changes
    if fields["recipe"] == Recipe.FULL:
        fields.setdefault("optimizer", Optimizer.ADAMW_TORCH)  # spares the import of bitsandbytes
    else:
        fields.setdefault("lora", Lora())
    if fields["recipe"] == Recipe.QLORA:
        fields.setdefault("quantisation", Quantisation())
    if fields.get("strategy", Strategy.SINGLE) != Strategy.SINGLE:
        fields.setdefault("gpus_per_node", 2)
    return spec_from(**fields)


def environment(**changes: str) -> dict[str, str]:
    path = os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
    return os.environ | {"PYTHONPATH": path} | changes


def start(spec: RunSpec, folder: Path, **env: str) -> WarmProcess:
    """The benchmark program, forked from a process that has imported the libraries."""
    environ = environment(TRAINBENCH_SPEC=spec.model_dump_json(), **env)
    return WarmProcess(["bench_image", "--output", str(folder)], environ)


def start_anew(spec: RunSpec, folder: Path, **env: str) -> subprocess.Popen[str]:
    """The benchmark program as a pod starts it."""
    return subprocess.Popen(
        [sys.executable, "-m", "bench_image", "--output", str(folder)],
        env=environment(TRAINBENCH_SPEC=spec.model_dump_json(), **env),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


Process = subprocess.Popen[str] | WarmProcess


def finish(process: Process, folder: Path) -> RunResult:
    """The result, after checking that the file and the last line on stdout are the same."""
    stdout, stderr = process.communicate(timeout=1800)
    assert stdout, stderr
    text = (folder / "result.json").read_text()
    assert text == stdout.splitlines()[-1]
    return parse_result(text)


def wait_for(phase: Phase, process: Process, spec: RunSpec, folder: Path) -> None:
    """Until all ranks are in that phase."""
    deadline = time.monotonic() + spec.timeout_s
    while [report.phase for report in read_reports(folder)] != [phase] * spec.placement.world_size:
        if process.poll() is not None or time.monotonic() > deadline:
            process.kill()
            raise AssertionError(f"the run never came to phase {phase}: {process.communicate()[1]}")
        time.sleep(0.1)


def descendants(process: Process) -> list[psutil.Process]:
    return list(psutil.Process(process.pid).children(recursive=True))


def rank_process(process: Process, rank: int) -> psutil.Process:
    (worker,) = (
        child
        for child in descendants(process)
        if "bench_image.process.worker" in child.cmdline()[-1:] and child.environ().get("RANK") == str(rank)
    )
    return worker


def run_rank(spec: RunSpec, folder: Path, prelude: str) -> RankReport:
    """One rank in its own process, after a few lines of Python that break something for real.

    It is forked from a process that has only imported the libraries, which takes longer than the run.
    """
    folder.mkdir(exist_ok=True)
    changes = {
        "TRAINBENCH_SPEC": spec.model_dump_json(), "TRAINBENCH_OUTPUT_DIR": str(folder), "HF_HUB_OFFLINE": "1",
        "RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "1",
    }  # fmt: skip
    rank = CONTEXT.Process(target=_be_rank, args=(changes, prelude))
    rank.start()
    rank.join(1800)
    assert rank.exitcode is not None, "the rank did not end"
    (report,) = read_reports(folder)
    return report


def _be_rank(changes: dict[str, str], prelude: str) -> None:
    os.environ.update(changes)
    exec(prelude, {})
    from bench_image.process.worker import main

    main()
