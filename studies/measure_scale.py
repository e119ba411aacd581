"""Measures check, report, compare and reindex over many made-up results of realistic size: seconds and memory.

    PYTHONPATH=.:plugins .venv/bin/python studies/measure_scale.py [--results 100000]

One JSON document on standard output.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import random
import sys
import tempfile
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from bench_image.contract.result import RunResult
from bench_image.contract.result_sections import Performance
from bench_image.contract.step_stats import step_time
from tests.builders import make_result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--results", type=int, default=100_000)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="trainbench-scale-") as folder:
        measured = files(arguments.results, folder)
    machine = {"cpu": _cpu(), "cores": len(os.sched_getaffinity(0)), "python": platform.python_version()}
    at = datetime.now(UTC).isoformat(timespec="seconds")
    print(json.dumps({"measured": "files", "at": at, "machine": machine, **measured}, indent=1))


def files(num_results: int, folder: str) -> dict[str, Any]:
    """Each command's seconds and peak memory, over one folder, and reindex over what report published."""
    os.environ["TRAINBENCH_STORE"] = f"{folder}/store"
    results = Path(folder) / "results"
    _write_results(results, num_results)
    commands = {
        "check": ["check", str(results), "--json"],
        "report": ["report", str(results), "--output", f"{folder}/published", "--json"],
        "compare": ["compare", str(results), "--json"],
        "reindex": ["reindex", "--store", f"{folder}/published", "--json"],
    }
    return {"num_results": num_results, "commands": {name: _command(arguments) for name, arguments in commands.items()}}


def _write_results(folder: Path, number: int) -> None:
    """Each with a rate, windows and 150 step times of its own: 1 % of chance, in whole microseconds as of real runs."""
    draw = random.Random(1)  # noqa: S311
    for index in range(number):
        node = f"node-{index % 1000:03}"
        rate, windows = 9.5 * draw.gauss(1, 0.01), [draw.gauss(1, 0.002) for _ in range(3)]
        result = make_result(node, rate, windows=windows, round=index // 1000 + 1)
        steps = _own_steps(result, draw)
        path = folder / f"{index // 1000:03}" / f"{node}-{index}" / "result.json"
        path.parent.mkdir(parents=True)
        path.write_text(result.model_copy(update={"performance": steps}).model_dump_json())


def _own_steps(result: RunResult, draw: random.Random) -> Performance:
    """Its performance with step times that scatter; their sum in each window, and so its rate, stay."""
    performance, steps = result.performance, list(result.performance.step_times_s)
    for first in range(0, len(steps) - 1, 2):
        moved = round(steps[first] * draw.gauss(0, 0.01), 6)
        steps[first], steps[first + 1] = round(steps[first] + moved, 6), round(steps[first + 1] - moved, 6)
    return performance.model_copy(update={"step_times_s": tuple(steps), "step_time": step_time(steps)})


def _command(arguments: Sequence[str]) -> dict[str, Any]:
    begin = time.perf_counter()
    program = [sys.executable, "-c", "from trainbench.cli.app import app; app()", *arguments]
    null = os.open(os.devnull, os.O_WRONLY)
    pid = os.posix_spawn(program[0], program, os.environ, file_actions=[(os.POSIX_SPAWN_DUP2, null, 1)])
    _, status, usage = os.wait4(pid, 0)
    return {
        "exit_code": os.waitstatus_to_exitcode(status),
        "seconds": round(time.perf_counter() - begin, 1),
        "cpu_seconds": round(usage.ru_utime + usage.ru_stime, 1),
        "peak_rss_mb": round(usage.ru_maxrss / 1000),
    }


def _cpu() -> str:
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    return next((line.split(":")[1].strip() for line in lines if line.startswith("model name")), "unknown")


if __name__ == "__main__":
    main()
