"""Is the demo definite? Repeats its check beside busy programs: states, and how far its nodes are apart.

    python studies/repeat_demo.py --times 20 --busy 0,1,2 [--drill node-3] [--out docs/results/demo]

Each run is a `trainbench run --device cpu` with a store and a history of its own: the pods, the judgement and the
re-runs of `make demo` without Airflow. Adds a row for each run to `runs.json`. `states`: of each node, after re-runs;
`reasons`: of those that are not well. `deviations_pct`: each node's rate in round 1 against the median of the others,
by `judged_rate`; `in_turns_pct`: the same by the medians of `rates_in_turns`.
"""

from __future__ import annotations

import argparse
import json
import os
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

from bench_image.contract.result import RunResult, Status
from trainbench.cluster.local_nodes import TRIAL_NODES
from trainbench.judging.node_runs import judged_rate, rates_in_turns
from trainbench.results.artefacts import open_store

ROOT = Path(__file__).resolve().parents[1]
TIMEOUT_S = 900


def main() -> int:
    arguments = _arguments()
    arguments.out.mkdir(parents=True, exist_ok=True)
    file = arguments.out / "runs.json"
    rows: list[dict[str, Any]] = json.loads(file.read_text()) if file.exists() else []
    for number in range(1, arguments.times + 1):
        for busy in map(int, arguments.busy.split(",")):
            with _busy_cores(busy):
                rows.append(run_once(arguments.drill) | {"busy_cores": busy})
            print(number, rows[-1], flush=True)
            file.write_text("[\n" + ",\n".join(map(json.dumps, rows)) + "\n]\n")
    return 0


def run_once(drill: str | None) -> dict[str, Any]:
    """One check: its seconds, states and figures."""
    started_at, began, load = datetime.now(UTC), time.monotonic(), os.getloadavg()[0]
    with tempfile.TemporaryDirectory() as store:
        command = [
            str(Path(sys.executable).with_name("trainbench")),
            "run",
            "--device",
            "cpu",
            "--json",
            "--store",
            store,
        ]
        environ = {**os.environ, "TRAINBENCH_HISTORY_URL": ""}  # that of the store
        done = subprocess.run(
            [*command, *(["--set", f"drill_node={drill}"] if drill else [])],
            env=environ,
            stdout=subprocess.PIPE,
            text=True,
            timeout=TIMEOUT_S,
        )
        report = json.loads(done.stdout)["data"]
        results = open_store(store).read_results(report["campaign_id"]).results
        return {
            "started_at": started_at.isoformat(timespec="seconds"),
            "seconds": round(time.monotonic() - began, 1),
            "load_before": round(load, 1),
            "drill": drill,
            "exit_code": done.returncode,
            "states": {node["node"]: node["state"] for node in report["nodes"]},
            "reasons": {node["node"]: node["reason"] for node in report["nodes"] if node["state"] != "well"},
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


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--times", type=int, default=20, help="how often (default 20)")
    parser.add_argument("--busy", default="0,1,2", metavar="CORES", help="numbers of busy cores (default 0,1,2)")
    parser.add_argument("--drill", metavar="NODE", choices=TRIAL_NODES, help="slow this node on purpose")
    parser.add_argument("--out", type=Path, default=ROOT / ".trainbench" / "demo-runs", help="folder of runs.json")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
