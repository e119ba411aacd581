"""Measures what a night costs Airflow: CPU seconds and memory of each of its processes, size of its database, time.

    PYTHONPATH=.:plugins:scripts .venv/bin/python studies/measure_night.py --nodes 100 [--postgres] > night.json
    PYTHONPATH=.:plugins:scripts .venv/bin/python studies/measure_night.py --table docs/results/nights/*.json

Real scheduler, workers (LocalExecutor), triggerer, DAG processor, API server and database. The cluster is the stand-in:
its pods are a shell script that hands over a made-up result after `--program-s`, and nothing of it is in the figures.
CPU seconds count, wall time depends on what else runs. They follow the speed of the machine, which a fixed loop shows
before and after the night (`ten_million_squares_s`). One JSON document on stdout, or of several the table.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import threading
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import psutil

from bench_image.contract.pod_io import SPEC_ENV
from local_airflow import LocalAirflow
from tests.builders import fields_of, make_result
from tests.builders.ports import free_port
from tests.builders.postgres import server
from tests.kube.clusters import ROOT, SHELL, connection, start_standin
from tests.standin import python_image
from trainbench.params.campaign_params import parse_params
from trainbench.planning.nodes import Fleet, GpuNode
from trainbench.planning.plan import make_plan
from trainbench.settings.environment import DAGS

DAG, IMAGE = "node_consistency", "trainbench/bench:0.2.0"
SCHEDULES = {f"TRAINBENCH_SCHEDULE_{dag.upper()}": "none" for dag in DAGS}  # else their runs are in the figures
SAMPLE_S = 3.0
NODE = "node-of-the-pod"
PROGRAM = """#!/bin/sh
spec="$%(spec)s"; node=${spec#*\\"node\\":\\"}; node=${node%%%%\\"*}
for step in 1 2 3 4 5 6 7 8 9 10; do echo "phase=measure node=$node step=$step"; done
sleep %(seconds)s
{ sed "s/%(node)s/$node/g" %(folder)s/head; printf '%%s' "$spec"; sed "s/%(node)s/$node/g" %(folder)s/tail; } |
%(python)s -S -c '
import sys
from bench_image.contract.result_lines import result_lines
print(*result_lines(sys.stdin.read()), sep="\\n")'
"""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, default=10, help="each takes one pod in each round")
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--program-s", type=float, default=10.0)
    parser.add_argument("--postgres", action="store_true", help="Airflow's database is Debian's PostgreSQL, not SQLite")
    parser.add_argument("--parallelism", type=int, default=4)
    parser.add_argument("--patience-s", type=float, default=3600.0)
    parser.add_argument("--until-mapped", action="store_true", help="end when Airflow has made the tasks of all pods")
    parser.add_argument("--table", nargs="+", type=_stored, help="print the Markdown table of these documents instead")
    options = parser.parse_args()
    if options.table:
        print("\n".join(table(options.table)))
        return 0
    with tempfile.TemporaryDirectory(prefix="trainbench-night-") as folder:
        document = night(Path(folder), options)
    print(json.dumps(document, indent=1))
    return 0


def _stored(text: str) -> dict[str, Any]:
    """The document of a night that is at this path."""
    try:
        return json.loads(Path(text).read_text()) | {"name": Path(text).stem}
    except OSError as error:
        raise argparse.ArgumentTypeError(f"{text} cannot be read: {error.strerror}") from None


def night(folder: Path, options: argparse.Namespace) -> dict[str, Any]:
    folder.chmod(0o755)  # the pods' user reads the program there
    cluster = start_standin(folder, {IMAGE: _image(folder, options.program_s), SHELL: {}})
    for index in range(options.nodes):
        cluster.add_node(f"gpu-{index:04}")
    environment = {
        "TRAINBENCH_LAUNCHER": "kubernetes",
        "TRAINBENCH_PRIORITY_CLASS": "trainbench-benchmark",
        "AIRFLOW_CONN_KUBERNETES_DEFAULT": connection(cluster),
        "AIRFLOW__CORE__PARALLELISM": str(options.parallelism),
        **SCHEDULES,
    }
    if options.postgres:
        os.environ["CI"] = "true"
        environment["AIRFLOW__DATABASE__SQL_ALCHEMY_CONN"] = server()
    try:
        with LocalAirflow(free_port(), True, state=folder / "state", environment=environment) as airflow:
            airflow.wait_until_healthy(DAG)
            return _measured(airflow, folder, options)
    finally:
        cluster.stop()


def _measured(airflow: LocalAirflow, folder: Path, options: argparse.Namespace) -> dict[str, Any]:
    database = lambda: _database_mb(folder, options.postgres)  # noqa: E731
    loop_s = ten_million_squares_s()
    meter, size_mb, began = Meter(airflow), database(), time.monotonic()
    started_at = datetime.now(UTC)
    run_id = airflow.trigger(DAG, {"rounds": options.rounds})
    num_pods = options.nodes * options.rounds
    state = _watch(airflow, run_id, options.patience_s, num_pods if options.until_mapped else None)
    figures = meter.stop()
    tasks = _tasks(airflow, run_id)
    states: dict[str, int] = defaultdict(int)
    for task in tasks:
        states[f"{task['task_id']} {task['state']}"] += 1
    published = next(t["end_date"] for t in tasks if t["task_id"] == "publish")
    cpu_s = sum(part["cpu_s"] for part in figures.values())
    return {
        "num_nodes": options.nodes,
        "num_pods": num_pods,
        "database": "postgresql" if options.postgres else "sqlite",
        "program_s": options.program_s,
        "parallelism": options.parallelism,
        "state": state,
        "tries": max(task["try_number"] for task in tasks),
        "tasks": dict(states),
        "trigger_to_report_s": _seconds(started_at.isoformat(), published),
        "trigger_to_end_s": round(time.monotonic() - began, 1),
        "cpu_s": round(cpu_s, 1),
        "cpu_s_per_pod": round(cpu_s / num_pods, 3),
        "processes": figures,
        "database_mb_per_night": round(database() - size_mb, 2),
        "store_mb": _folder_mb(folder / "state" / "store"),
        "load_average": os.getloadavg()[0],
        "ten_million_squares_s": [loop_s, ten_million_squares_s()],
        "cores": len(os.sched_getaffinity(0)),
        "at": started_at.isoformat(timespec="seconds"),
    }


def ten_million_squares_s() -> float:
    """CPU seconds of a fixed loop of Python: how fast this machine is just now."""
    began = time.process_time()
    sum(number * number for number in range(10_000_000))
    return round(time.process_time() - began, 2)


class Meter:
    """CPU and memory of each Airflow component; the workers and tasks below the scheduler count by themselves."""

    def __init__(self, airflow: LocalAirflow) -> None:
        self._of = {name: psutil.Process(popen.pid) for name, popen in airflow._processes.items()}
        self._began, self._peak_mb = self._cpu(), defaultdict[str, float](float)
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._sample)
        self._thread.start()

    def stop(self) -> dict[str, dict[str, float]]:
        self._over.set()
        self._thread.join()
        ended = self._cpu()
        return {
            name: {"cpu_s": round(ended[name] - self._began[name], 1), "peak_mb": round(self._peak_mb[name])}
            for name in ended
        }

    def _sample(self) -> None:
        while not self._over.wait(SAMPLE_S):
            for name, processes in self._parts().items():
                total = 0.0
                for process in processes:
                    with suppress(psutil.Error):
                        total += process.memory_full_info().pss / 1e6
                self._peak_mb[name] = max(self._peak_mb[name], total)

    def _parts(self) -> dict[str, list[psutil.Process]]:
        parts = {}
        for name, process in self._of.items():
            below = process.children(recursive=True)
            if name == "scheduler":
                parts |= {"scheduler": [process], "workers and tasks": below}
            else:
                parts[name] = [process, *below]
        return parts

    def _cpu(self) -> dict[str, float]:
        """Each process with the children that it has reaped. The scheduler reaps its workers only."""
        spent = {}
        for name, processes in self._parts().items():
            total = 0.0
            for process in processes:
                with suppress(psutil.Error):
                    times = process.cpu_times()
                    total += times.user + times.system
                    if name != "scheduler":
                        total += times.children_user + times.children_system
            spent[name] = total
        return spent


def _image(folder: Path, program_s: float) -> dict[str, Any]:
    fleet = Fleet(nodes=(GpuNode(name=NODE, num_gpus=1),))
    spec = make_plan(parse_params({"rounds": 1}, {}), fleet, "night").specs[0]
    result = make_result(NODE, 10.0, **fields_of(spec))
    head, tail = result.model_dump_json().split(result.spec.model_dump_json())
    (folder / "head").write_text(head)
    (folder / "tail").write_text(tail)
    program = folder / "python"
    names = {"spec": SPEC_ENV, "node": NODE, "python": sys.executable, "folder": folder}
    program.write_text(PROGRAM % (names | {"seconds": program_s}))
    program.chmod(0o755)
    image = python_image(Path(sys.executable), folder, ROOT / "bench_image", PYTHONPATH=str(ROOT))
    image["env"]["PATH"] = f"{folder}:{image['env']['PATH']}"
    return image


def _watch(airflow: LocalAirflow, run_id: str, patience_s: float, until_mapped: int | None) -> str:
    base, give_up = f"/api/v2/dags/{DAG}/dagRuns/{run_id}", time.monotonic() + patience_s
    while time.monotonic() < give_up:
        state = (airflow.get(base) or {}).get("state")
        if state in ("success", "failed"):
            return str(state)
        if until_mapped and (airflow.get(f"{base}/taskInstances?limit=1") or {}).get("total_entries", 0) > until_mapped:
            return "mapped"
        time.sleep(2)
    return f"not over after {patience_s:g} s"


PARTS = ("scheduler", "workers and tasks", "triggerer", "api-server", "dag-processor")


def table(documents: Iterable[Mapping[str, Any]]) -> Iterator[str]:
    """One row for each night: CPU seconds per pod and peak memory of each part."""
    columns = ["pods", "to the report, s", "CPU s", *(f"{part}: CPU s, MB" for part in PARTS), "database, MB"]
    yield "| night | " + " | ".join(columns) + " |"
    yield "|---|" + "--:|" * len(columns)
    for night in documents:
        parts = [night["processes"][part] for part in PARTS]
        yield " | ".join(
            [
                f"| {night['name']}",
                f"{night['num_pods']:,}",
                f"{night['trigger_to_report_s'] or night['trigger_to_end_s']:,.0f}",
                f"{night['cpu_s']:,.0f}",
                *(f"{part['cpu_s']:,.0f}, {part['peak_mb']:,.0f}" for part in parts),
                f"{night['database_mb_per_night']:,.1f} |",
            ]
        )


def _tasks(airflow: LocalAirflow, run_id: str) -> list[dict[str, Any]]:
    base, tasks = f"/api/v2/dags/{DAG}/dagRuns/{run_id}/taskInstances", []
    while page := (airflow.get(f"{base}?limit=100&offset={len(tasks)}") or {}).get("task_instances"):
        tasks += page
    return tasks


def _seconds(began: str, ended: str | None) -> float | None:
    return (
        None
        if ended is None
        else round((datetime.fromisoformat(ended) - datetime.fromisoformat(began)).total_seconds(), 1)
    )


def _database_mb(folder: Path, is_postgres: bool) -> float:
    if not is_postgres:
        return sum(path.stat().st_size for path in (folder / "state" / "airflow").glob("airflow.db*")) / 1e6
    import sqlalchemy

    size = sqlalchemy.text("select pg_database_size(current_database())")
    with sqlalchemy.create_engine(server()).connect() as connected:
        return float(connected.execute(size).scalar_one()) / 1e6


def _folder_mb(folder: Path) -> float:
    return round(sum(path.stat().st_size for path in folder.rglob("*") if path.is_file()) / 1e6, 2)


if __name__ == "__main__":
    sys.exit(main())
