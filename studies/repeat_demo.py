"""Is the demo definite? Repeats its check beside programs that keep cores busy, and writes how far its nodes are apart.

    python studies/repeat_demo.py --times 20 --busy 0,1,2 [--drill node-3] [--whole] [--out docs/results/demo]

Without --whole the pods are those of `trainbench run`, started by its own code, and nothing is judged; with it each run
is a `make demo`: Airflow's tasks start the same pods, and the states of its table are kept. Adds a row for each run to
`runs.json`. `deviations_pct`: each node's rate against the median of the others, by `judged_rate`; `in_turns_pct`: the
same by the medians of `rates_in_turns`.
"""

from __future__ import annotations

import argparse
import io
import json
import os
import re
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from rich.console import Console

from bench_image.contract.result import RunResult, Status
from trainbench.cli.interrupts import Kept
from trainbench.cli.run import run_pods
from trainbench.cluster.local_nodes import TRIAL_NODES, local_fleet
from trainbench.judging.run_rates import judged_rate, rates_in_turns
from trainbench.params.campaign_params import LOCAL_DEFAULTS, parse_params
from trainbench.planning.plan import LOCAL_NIGHT, make_plan
from trainbench.results.artefacts import open_store
from trainbench.settings.environment import read_settings

ROOT = Path(__file__).resolve().parents[1]
# A row of the verdict's table: its cells are apart by two spaces or more; the last one is the state.
ROW = re.compile(r"^ +(node-\d) {2,}.* {2,}(\S.*?) *$", re.MULTILINE)
TIMEOUT_S = 900


def main() -> int:
    arguments = _arguments()
    arguments.out.mkdir(parents=True, exist_ok=True)
    file = arguments.out / "runs.json"
    rows: list[dict[str, Any]] = json.loads(file.read_text()) if file.exists() else []
    for number in range(1, arguments.times + 1):
        for busy in map(int, arguments.busy.split(",")):
            with _busy_cores(busy):
                rows.append(run_once(arguments.drill, arguments.whole) | {"busy_cores": busy})
            print(number, rows[-1], flush=True)
            file.write_text("[\n" + ",\n".join(map(json.dumps, rows)) + "\n]\n")
    return 0


def run_once(drill: str | None, whole: bool) -> dict[str, Any]:
    """One check: its seconds and figures."""
    started_at, began, load = datetime.now(UTC), time.monotonic(), os.getloadavg()[0]
    seen, results = _demo(drill) if whole else ({}, _pods(drill))
    return {
        "started_at": started_at.isoformat(timespec="seconds"),
        "seconds": round(time.monotonic() - began, 1),
        "load_before": round(load, 1),
        "drill": drill,
        "whole": whole,
        **seen,
        **figures(results),
    }


def figures(results: Sequence[RunResult]) -> dict[str, Any]:
    """The nodes' rates and deviations; the first round's where a node was run again."""
    first = [result for result in results if result.spec.identity.round == 1 and result.status is Status.OK]
    nodes = [result.spec.identity.node for result in first]
    rates = {node: rate for node, result in zip(nodes, first, strict=True) if (rate := judged_rate(result))}
    in_turns = rates_in_turns(first)
    medians = {node: statistics.median(each) for node, each in zip(nodes, in_turns or (), strict=False)}
    return {
        "samples_per_s": {node: round(rate, 2) for node, rate in rates.items()},
        "deviations_pct": deviations_pct(rates),
        "in_turns_pct": deviations_pct(medians),
    }


def deviations_pct(rates: Mapping[str, float]) -> dict[str, float]:
    """Each node's rate against the median of the others'."""
    return {
        node: round(100 * (rate / statistics.median(other for name, other in rates.items() if name != node) - 1), 2)
        for node, rate in rates.items()
        if len(rates) > 1
    }


def states_of(output: str) -> dict[str, str]:
    """Node -> its state in the verdict's table."""
    return {node: state for node, state in ROW.findall(output)}


def _pods(drill: str | None) -> tuple[RunResult, ...]:
    settings = read_settings()
    params = parse_params({"drill_node": drill}, {**LOCAL_NIGHT, **LOCAL_DEFAULTS})
    plan = make_plan(params, local_fleet(settings, params), f"repeat-{time.time_ns()}")
    with tempfile.TemporaryDirectory() as folder:
        kept = Kept(plan.campaign_id, len(plan.specs))
        return run_pods(plan.specs, {}, settings, open_store(folder), Console(file=io.StringIO()), kept)


def _demo(drill: str | None) -> tuple[dict[str, Any], tuple[RunResult, ...]]:
    command = [sys.executable, str(ROOT / "scripts" / "demo.py"), "--port", str(_free_port())]
    done = subprocess.run(
        [*command, *(["--drill", drill] if drill else [])], capture_output=True, text=True, timeout=TIMEOUT_S
    )
    store = open_store(str(ROOT / ".trainbench" / "store"))
    (name,) = re.findall(r"^  /\S+/campaigns/([^/]+)/\S+report\.html$", done.stdout, re.MULTILINE)
    seen = {"exit_code": done.returncode, "states": states_of(done.stdout)}
    return seen, tuple(store.read_results(name).results)


@contextmanager
def _busy_cores(number: int) -> Iterator[None]:
    """Processes that keep so many cores busy."""
    processes = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(number)]
    try:
        yield
    finally:
        for process in processes:
            process.kill()
            process.wait()


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--times", type=int, default=20, help="how often (default 20)")
    parser.add_argument("--busy", default="0,1,2", metavar="CORES", help="numbers of busy cores (default 0,1,2)")
    parser.add_argument("--drill", metavar="NODE", choices=TRIAL_NODES, help="slow this node on purpose")
    parser.add_argument("--whole", action="store_true", help="whole demos, with Airflow")
    parser.add_argument("--out", type=Path, default=ROOT / ".trainbench" / "demo-runs", help="folder of runs.json")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
