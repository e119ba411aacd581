"""Committed result files and how a page writes their figures."""

from __future__ import annotations

import json
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Any

from bench_image.contract.parse import parse_result
from bench_image.contract.result import RunResult
from bench_image.contract.result_sections import Performance
from committed import RESULTS as RESULTS
from committed import committed

ROOT = Path(__file__).resolve().parents[3]
STRATEGIES = "campaigns/h200-strategies-2026-11-21/runs"
FIRST, SECOND, THIRD = "speed-h200-2026-11-21", "after-h200-2026-11-21", "kept-h200-2026-11-22"
GRAPHS, FLOAT8, ACCUMULATION, FLOAT8_LORA = (
    "graphs-in-gangs-h200-2026-11-23",
    "float8-h200-2026-11-22",
    "float8-accumulation-h200-2026-11-23",
    "float8-lora-h200-2026-11-23",
)
GANGS = "four-gpus-h200-2026-11-28"
START = "start-h200-2026-11-23"


@cache
def run(folder: str) -> RunResult:
    """One run's result; `*` in the name stands for the parts that nobody needs to read."""
    (text,) = committed(f"{folder}/result.json").values()
    return parse_result(text.encode())


@cache
def document(name: str) -> Any:
    (text,) = committed(name).values()
    return json.loads(text)


def profile(name: str) -> Any:
    """Of `studies/profile_step.py`: rate, MFU, peak memory, step times and milliseconds per class of kernels."""
    return document(f"{name}.json")


def folders(pattern: str) -> list[str]:
    """The runs whose folders match, as `run` takes them."""
    return [path.removesuffix("/result.json") for path in committed(f"{pattern}/result.json")]


def performance(folder: str) -> Performance:
    result = run(folder).performance
    assert result is not None
    return result


def tokens_per_s(folder: str) -> float:
    return performance(folder).tokens_per_second or 0.0


def mfu_pct(folder: str) -> float:
    return performance(folder).mfu_pct or 0.0


def peak_gb(folder: str) -> float:
    memory = run(folder).memory
    assert memory is not None
    return (memory.peak_allocated_bytes or 0) / 1e9


def exposed_pct(folder: str) -> float:
    communication = run(folder).communication
    assert communication is not None
    return communication.exposed_pct or 0.0


def communication_pct(folder: str) -> float:
    communication = run(folder).communication
    assert communication is not None
    return communication.total_pct or 0.0


def probe_tflops(folder: str) -> float:
    probes = run(folder).probes
    assert probes is not None
    return probes.matmul_tflops or 0.0


def median_step_s(folder: str) -> float:
    step_time = performance(folder).step_time
    assert step_time is not None
    return step_time.median_s


def each(values: Iterable[float], form: str) -> str:
    """Such as "18,463 and 18,437"."""
    *first, last = [format(value, form) for value in values]
    return " and ".join([", ".join(first), last]) if first else last


def row(*cells: str) -> str:
    return f"| {' | '.join(cells)} |"
