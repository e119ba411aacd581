"""Measures the control plane on a large fleet: seconds and memory, by made-up results of realistic size.

    PYTHONPATH=.:plugins .venv/bin/python studies/measure_scale.py flow [--nodes 1000]
    PYTHONPATH=.:plugins .venv/bin/python studies/measure_scale.py files [--results 100000]

`flow`: 1,000 nodes x 5 strategies planned, collected, judged, reported and recorded, in this process, one after the
other. `files`: check, report, compare and reindex as commands, over 100,000 results. One JSON document on stdout.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import random
import resource
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeVar

from bench_image.contract.options import Strategy
from bench_image.contract.result import RunResult
from bench_image.contract.result_sections import Performance
from bench_image.contract.spec import RunSpec
from bench_image.contract.step_stats import step_time
from tests.builders import fields_of, make_result
from trainbench.history.history import open_history
from trainbench.params.campaign_params import parse_params
from trainbench.pipeline import Measured, assess, judge, report
from trainbench.planning.nodes import Fleet, GpuNode
from trainbench.planning.plan import make_plan
from trainbench.results.artefacts import open_store
from trainbench.results.collect import collect

GPUS_PER_NODE = 4
T = TypeVar("T")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("flow", "files"))
    parser.add_argument("--nodes", type=int, default=1000)
    parser.add_argument("--results", type=int, default=100_000)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="trainbench-scale-") as folder:
        measured = flow(arguments.nodes, Path(folder)) if arguments.what == "flow" else files(arguments.results, folder)
    machine = {"cpu": _cpu(), "cores": len(os.sched_getaffinity(0)), "python": platform.python_version()}
    at = datetime.now(UTC).isoformat(timespec="seconds")
    print(json.dumps({"measured": arguments.what, "at": at, "machine": machine, **measured}, indent=1))


def flow(num_nodes: int, folder: Path) -> dict[str, Any]:
    """Seconds of each step of one campaign; the results are made before the clock starts."""
    clock = Clock()
    names = [f"gpu-{number:04}" for number in range(1, num_nodes + 1)]
    gpus = {"product": "NVIDIA-H200", "num_gpus": GPUS_PER_NODE, "memory_gb": 150.0}
    fleet = Fleet(
        nodes=tuple(
            GpuNode(name=name, **{k: v for k, v in gpus.items() if k in GpuNode.model_fields}) for name in names
        )
    )
    form = {"strategies": [strategy.value for strategy in Strategy if strategy is not Strategy.OWN],
             "gpus_per_node": GPUS_PER_NODE, "rounds": 1,
             "recipe": "lora", "optimizer": "adamw_torch"}  # fmt: skip
    params = clock("params", lambda: parse_params(form, {}))
    plan = clock("plan", lambda: make_plan(params, fleet, "scale"))
    payloads = _payloads(plan.specs)
    store = open_store(str(folder / "store"))
    history = open_history(f"sqlite:///{folder}/history.sqlite")
    at = datetime.now(UTC)
    results = clock("collect", lambda: collect(plan.specs, payloads, at))
    measured = Measured(plan=plan, results=results, suite="scale", started_at=at, finished_at=at, history=history)
    campaign = clock("judge", lambda: assess(judge(measured)))
    written = clock("report", lambda: report(campaign, store))
    clock("record", lambda: history.record(campaign))
    sizes = {name: Path(address).stat().st_size for name, address in written.items()}
    return {
        "num_nodes": num_nodes,
        "num_strategies": len(Strategy),
        "num_runs": len(plan.specs),
        "num_red": len(campaign.red_nodes),
        "seconds": clock.seconds | {"total": round(sum(clock.seconds.values()), 2)},
        "cpu_seconds": clock.cpu_seconds | {"total": round(sum(clock.cpu_seconds.values()), 2)},
        "load_average": os.getloadavg()[0],
        "peak_rss_mb": _peak_rss_mb(resource.RUSAGE_SELF),
        "file_bytes": sizes,
    }


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


class Clock:
    """Seconds of named steps, in order: by the wall, and of work, which other programs do not stretch."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self.cpu_seconds: dict[str, float] = {}

    def __call__(self, name: str, step: Callable[[], T]) -> T:
        begin, worked = time.perf_counter(), time.process_time()
        value = step()
        self.seconds[name] = round(time.perf_counter() - begin, 2)
        self.cpu_seconds[name] = round(time.process_time() - worked, 2)
        return value


def _payloads(specs: Sequence[RunSpec]) -> list[str]:
    """As the pods hand them back: 1 % of chance from node to node, one node in 200 is 10 % slow."""
    made: dict[tuple[str, int], Any] = {}
    draw = random.Random(1)  # noqa: S311 - no secret
    texts = []
    for spec in specs:
        key = (spec.identity.group_id, spec.placement.world_size)
        if key not in made:
            fields = fields_of(spec)
            made[key] = json.loads(
                make_result(spec.identity.node, 10.0 * spec.placement.world_size**0.9, **fields).model_dump_json()
            )
        document = made[key]
        slow = 0.9 if int(spec.identity.node[-4:]) % 200 == 7 else 1.0
        rate = document["performance"]["samples_per_second"] * draw.gauss(1, 0.01) * slow
        changed = {**document, "spec": json.loads(spec.model_dump_json())}
        changed["performance"] = document["performance"] | {"samples_per_second": rate}
        texts.append(json.dumps(changed))
    return texts


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


def _peak_rss_mb(who: int) -> int:
    return round(resource.getrusage(who).ru_maxrss / 1000)


def _cpu() -> str:
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    return next((line.split(":")[1].strip() for line in lines if line.startswith("model name")), "unknown")


if __name__ == "__main__":
    main()
