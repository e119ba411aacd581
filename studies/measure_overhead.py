"""Measures what a pod costs besides its program, and lists its requests; the figures of docs/internals/kubernetes.md:

    PYTHONPATH=.:plugins:scripts python studies/measure_overhead.py

Real scheduler, triggerer and operator; the cluster is the stand-in: no image is pulled, and no kubelet takes its time.
"""

from __future__ import annotations

import argparse
import itertools
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple

from local_airflow import LocalAirflow
from tests.builders.ports import free_port
from tests.kube.clusters import ROOT, SHELL, connection, start_standin
from tests.standin import scripted_image, shell_image, unavailable

DAG, IMAGE = "node_consistency", "trainbench/bench:0.1.0"
SCHEDULES = {f"TRAINBENCH_SCHEDULE_{dag}": "none" for dag in ("NODE_CONSISTENCY", "STRATEGY_SCALING", "HOUSEKEEPING")}
PATIENCE_S = 300.0  # besides the program's own time
COLUMNS = ("for a worker slot", "until pod made", "pod made to deleted", "until task ends", "from queued", "from plan")


class Times(NamedTuple):
    """Of one pod's task. `queued_at`: for the first time; a deferred task is queued again when its pod has ended."""

    planned_at: datetime
    queued_at: datetime
    created_at: datetime
    deleted_at: datetime
    ended_at: datetime

    def overhead_s(self, program_s: float) -> tuple[float, ...]:
        """In the order of COLUMNS: four parts, then what they make without and with the first."""
        moments = itertools.pairwise(self)
        waited, made, alive, ended = ((after - before).total_seconds() for before, after in moments)
        alive -= program_s
        return waited, made, alive, ended, made + alive + ended, waited + made + alive + ended


def main() -> int:
    parser = argparse.ArgumentParser(description="Overhead and requests of a pod.")
    parser.add_argument("--pods", type=int, default=8, help="one on each of as many nodes")
    parser.add_argument("--program-s", type=float, default=20.0)
    parser.add_argument("--sync", action="store_true", help="not deferrable: each pod holds a worker slot")
    options = parser.parse_args()
    if why := unavailable():
        print(why, file=sys.stderr)
        return 1
    with tempfile.TemporaryDirectory(prefix="trainbench-overhead-") as folder:
        tasks, requests = run(Path(folder), options.pods, options.program_s, options.sync)
    times = [_times(tasks, requests, index) for index in range(options.pods)]
    how = "sync" if options.sync else "deferrable"
    print(f"{options.pods} pods, {how}, program {options.program_s:g} s, load {os.getloadavg()[0]:.1f} at the end")
    _print_table([pod.overhead_s(options.program_s) for pod in times])
    print("requests of the first pod:", ", ".join(trace(_of_pod(requests, 0))))
    return 0


def run(folder: Path, pods: int, program_s: float, is_sync: bool) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """The task instances of one DAG run with the moment of their first queueing, and the API server's requests."""
    folder.chmod(0o755)  # the pods' user reads the program there
    program = ROOT / "tests" / "dag" / "standin_image.py"
    path = os.pathsep.join(str(ROOT / name) for name in ("", "plugins"))
    image = scripted_image(folder, program, ROOT, PYTHONPATH=path, STANDIN_S=str(program_s))
    cluster = start_standin(folder, {IMAGE: image, SHELL: shell_image()})
    for index in range(pods):
        cluster.add_node(f"gpu-{index}")
    environment = {
        "TRAINBENCH_LAUNCHER": "kubernetes",
        "TRAINBENCH_PRIORITY_CLASS": "trainbench-benchmark",
        "TRAINBENCH_DEFERRABLE": str(not is_sync).lower(),
        "AIRFLOW_CONN_KUBERNETES_DEFAULT": connection(cluster),
        **SCHEDULES,
    }
    try:
        with LocalAirflow(free_port(), True, state=folder / "state", environment=environment) as airflow:
            airflow.wait_until_healthy(DAG)
            rounds_s = program_s * (pods if is_sync else 1)
            return _watch(airflow, PATIENCE_S + rounds_s), cluster.requests()
    finally:
        cluster.stop()


def _watch(airflow: LocalAirflow, timeout_s: float) -> list[dict[str, Any]]:
    """Once a second: Airflow keeps only the last moment of queueing."""
    base = f"/api/v2/dags/{DAG}/dagRuns/{airflow.trigger(DAG, {'rounds': 1})}"
    queued: dict[tuple[str, int], str] = {}
    give_up = time.monotonic() + timeout_s
    while time.monotonic() < give_up:
        state = (airflow.get(base) or {}).get("state")
        tasks: list[dict[str, Any]] = (airflow.get(f"{base}/taskInstances?limit=1000") or {}).get("task_instances", [])
        for task in tasks:
            if task["queued_when"]:
                queued.setdefault((task["task_id"], task["map_index"]), task["queued_when"])
        if state in ("success", "failed"):
            return [task | {"queued_when": queued.get((task["task_id"], task["map_index"]))} for task in tasks]
        time.sleep(1)
    raise TimeoutError(f"the DAG run was not over after {timeout_s:g} s")


def _times(tasks: Sequence[Mapping[str, Any]], requests: Sequence[Mapping[str, Any]], index: int) -> Times:
    plan = next(task for task in tasks if task["task_id"] == "plan")
    task = next(task for task in tasks if (task["task_id"], task["map_index"]) == ("benchmark", index))
    if task["state"] != "success" or task["try_number"] != 1:
        raise RuntimeError(f"pod {index} ended as {task['state']} in try {task['try_number']}: nothing to measure")
    mine = _of_pod(requests, index)
    created = next(entry for entry in mine if entry["verb"] == "create" and "name" in entry)
    deleted = next(entry for entry in mine if entry["verb"] == "delete")
    moments = (plan["end_date"], task["queued_when"], created["t"], deleted["t"], task["end_date"])
    return Times(*map(datetime.fromisoformat, moments))


def _of_pod(requests: Iterable[Mapping[str, Any]], index: int) -> list[Mapping[str, Any]]:
    """The requests with the pod's name, which begins with its node's, or with its task in a list's selector."""
    name, of_task = f"tb-gpu-{index}-", f"map_index%3D{index}%2C"
    return [
        entry
        for entry in requests
        if not entry["uri"].startswith("/_standin")
        and (name in entry["uri"] or of_task in entry["uri"] or entry.get("name", "").startswith(name))
    ]


def trace(requests: Iterable[Mapping[str, Any]]) -> list[str]:
    """Verb and resource of each request; equal ones in a row as one."""
    names = []
    for entry in requests:
        last = entry["uri"].split("?")[0].split("/")[-1]
        names.append(f"{entry['verb']} {last if last in ('log', 'exec', 'events') else 'pods'}")
    grouped = [(name, len(list(group))) for name, group in itertools.groupby(names)]
    return [name if times == 1 else f"{times} x {name}" for name, times in grouped]


def _print_table(rows: Sequence[Sequence[float]]) -> None:
    print("seconds".ljust(12), *(column.rjust(20) for column in COLUMNS))
    for name, choose in (("median", statistics.median), ("worst", max)):
        print(name.ljust(12), *(f"{choose(values):20.1f}" for values in zip(*rows, strict=True)))


if __name__ == "__main__":
    sys.exit(main())
