"""How long Airflow's own pages take with and without our plugin.

    PYTHONPATH=.:plugins:scripts python studies/measure_api_server.py OUTPUT.json

Asks three servers of one Airflow by turns: one without the plugin, one with it and open notices, one whose history is a
PostgreSQL that takes connections and never answers. Times by the clock are of the whole call over loopback; CPU times
are the server's.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import re
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import httpx
import psutil

from local_airflow import LocalAirflow, stop_descendants
from made_history import record_nights
from studies.argument_types import output_file
from tests.builders.ports import free_port
from trainbench.history.history import open_history
from trainbench.results.artefacts import open_store

ROUNDS, BLOCK = 4, 50  # each address: so many blocks of so many calls to each server, by turns
WAITING = 60  # people who wait for our pages while the history does not answer
CALLS_MEANWHILE = 20
PATIENCE_S = 180
Row = dict[str, Any]


@dataclass(frozen=True)
class Server:
    client: httpx.Client
    process: psutil.Process

    def call(self, path: str) -> float:
        """Milliseconds; any status but 200 is an error."""
        began = time.perf_counter()
        self.client.get(path).raise_for_status()
        return 1000 * (time.perf_counter() - began)

    def cpu_s(self) -> float:
        """Of the server and its workers since they began."""
        times = [process.cpu_times() for process in (self.process, *self.process.children(recursive=True))]
        return sum(each.user + each.system for each in times)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("output", type=output_file)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="trainbench-") as folder:
        try:
            document = of_airflow(Path(folder))
        finally:
            stop_descendants()
    document["load_average_at_the_end"] = os.getloadavg()
    options.output.write_text(json.dumps(document, indent=1) + "\n")


def of_airflow(state: Path) -> Row:
    record_nights(open_history(store=open_store(str(state / "store"))))
    prepare(state)
    document: Row = {"cpus": os.cpu_count(), "python": platform.python_version(), "airflow": version("apache-airflow")}
    with ExitStack() as stack:
        away = {
            "TRAINBENCH_HISTORY_URL": f"postgresql+psycopg://nobody@127.0.0.1:{stack.enter_context(silent_port())}/x"
        }
        changes = {
            "without the plugin": without_plugin(state),
            "with the plugin": {},
            "its history does not answer": away,
        }
        servers = {name: stack.enter_context(api_server(state, change)) for name, change in changes.items()}
        document |= {"calls": [], "memory_mb": {name: _memory_mb(server) for name, server in servers.items()}}
        for what, path in own_addresses(servers["with the plugin"]).items():
            for name, row in by_turns(servers, path).items():
                document["calls"].append({"what": what, "path": path, "server": name, **row})
                print(f"{what:28} {name:28} {row}", flush=True)
        document["while_people_wait"] = while_people_wait(servers["its history does not answer"])
        print(document["while_people_wait"])
    return document


BLINDFOLD = """
from importlib import import_module, util

def blind(find):
    return lambda **options: (each for each in find(**options) if each.metadata["Name"] != "trainbench")

for name in ("importlib.metadata", "importlib_metadata"):  # Airflow takes the second on Python 3.11
    if util.find_spec(name):
        module = import_module(name)
        module.distributions = blind(module.distributions)
"""


def without_plugin(state: Path) -> dict[str, str]:
    """No plugins folder, and an interpreter that does not see the installed package's entry point."""
    hidden = state / "hidden"
    hidden.mkdir()
    (hidden / "sitecustomize.py").write_text(BLINDFOLD)
    return {
        "AIRFLOW__CORE__PLUGINS_FOLDER": str(state / "no-plugins"),
        "PYTHONPATH": f"{hidden}{os.pathsep}{os.environ['PYTHONPATH']}",
    }


def own_addresses(server: Server) -> dict[str, str]:
    icon = re.search(r'href="[^"]*?(static/[^"]+\.png)"', server.client.get("/").text)
    if icon is None:
        raise SystemExit("Airflow's home page names no icon: has it changed?")
    return {
        "home page": "/",
        "list of DAGs": "/dags",
        "what the home page shows": "/ui/config",
        "DAGs of the list": "/ui/dags?limit=25",
        "version": "/api/v2/version",
        "static file": f"/{icon[1]}",
    }


def by_turns(servers: Mapping[str, Server], path: str) -> dict[str, Row]:
    """Blocks of calls, A B C A B C: a busy neighbour slows all of them."""
    for server in servers.values():
        server.call(path)
    taken: dict[str, list[float]] = {name: [] for name in servers}
    cpu_s = dict.fromkeys(servers, 0.0)
    for _ in range(ROUNDS):
        for name, server in servers.items():
            began_s = server.cpu_s()
            taken[name] += [server.call(path) for _ in range(BLOCK)]
            cpu_s[name] += server.cpu_s() - began_s
    return {
        name: {**_figures(taken[name]), "cpu_ms": round(1000 * cpu_s[name] / (ROUNDS * BLOCK), 2)} for name in servers
    }


def while_people_wait(server: Server) -> Row:
    """Airflow's own answers while many wait for ours, whose history does not answer."""

    def wait(_: int) -> tuple[int, float]:
        began = time.perf_counter()
        with httpx.Client(base_url=server.client.base_url, timeout=PATIENCE_S, trust_env=False) as client:
            return client.get("/trainbench/").status_code, time.perf_counter() - began

    with ThreadPoolExecutor(WAITING) as people:
        waiting = [people.submit(wait, number) for number in range(WAITING)]
        time.sleep(1)
        meanwhile = {
            path: [server.call(path) for _ in range(CALLS_MEANWHILE)] for path in ("/ui/config", "/ui/dags?limit=25")
        }
        answers = [each.result() for each in waiting]
    return {
        "people": WAITING,
        "their_answers": sorted({status for status, _ in answers}),
        "longest_wait_s": round(max(seconds for _, seconds in answers), 1),
        "meanwhile": {path: _figures(taken) for path, taken in meanwhile.items()},
    }


def _figures(taken_ms: list[float]) -> Row:
    return {
        "median_ms": round(statistics.median(taken_ms), 2),
        "p95_ms": round(sorted(taken_ms)[int(0.95 * (len(taken_ms) - 1))], 2),
        "worst_ms": round(max(taken_ms), 2),
    }


def _memory_mb(server: Server) -> int:
    processes = (server.process, *server.process.children(recursive=True))
    return round(sum(process.memory_info().rss for process in processes) / 1e6)


def prepare(state: Path) -> None:
    """Airflow's own database, with our DAGs in it."""
    for folder in ("airflow", "logs"):
        (state / folder).mkdir()
    airflow = LocalAirflow(free_port(), with_triggerer=False, state=state)
    for command in (["db", "migrate"], ["dags", "reserialize"]):
        subprocess.run(
            [sys.executable, "-m", "airflow", *command], env=airflow.environment(), check=True, capture_output=True
        )


@contextmanager
def api_server(state: Path, changes: Mapping[str, str]) -> Iterator[Server]:
    """Waits until it answers; it has served no page yet."""
    seen = {"PYTHONPATH": os.environ["PYTHONPATH"]}  # such as a driver that is not installed for good
    airflow = LocalAirflow(free_port(), with_triggerer=False, state=state, environment={**seen, **changes})
    with (state / "logs" / f"{airflow.port}.log").open("wb") as log:
        command = [sys.executable, "-m", "airflow", "api-server"]
        started = subprocess.Popen(command, env=airflow.environment(), stdout=log, stderr=log, start_new_session=True)
    try:
        with httpx.Client(base_url=airflow.url, timeout=PATIENCE_S, trust_env=False) as client:
            give_up = time.monotonic() + PATIENCE_S
            while not _answers(client):
                if started.poll() is not None or time.monotonic() > give_up:
                    raise SystemExit(f"the API server did not answer: see {log.name}")
                time.sleep(0.5)
            yield Server(client, psutil.Process(started.pid))
    finally:
        started.terminate()  # what is left of it at the end, `stop_descendants` ends


def _answers(client: httpx.Client) -> bool:
    try:
        return client.get("/api/v2/version").is_success
    except httpx.HTTPError:
        return False


@contextmanager
def silent_port() -> Iterator[int]:
    """Takes connections, as the kernel does for any program that listens, and never says a word."""
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen(1024)
        yield listening.getsockname()[1]


if __name__ == "__main__":
    main()
