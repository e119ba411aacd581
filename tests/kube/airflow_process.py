"""`python -m tests.kube.airflow_process PORT STATE [WORKER_HOME ...]`: the real Airflow, until standard input closes.

A process of its own, because on its way out it ends everything that descends from it. Each WORKER_HOME is the
AIRFLOW_HOME of a Celery worker that sees neither STATE nor the other workers' homes. Standard input takes
`kill COMPONENT` and `start COMPONENT`, one on each line; each is answered with `done`.
"""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from local_airflow import ROOT, LocalAirflow, end_with_parent
from tests import lean_airflow
from tests.kube.e2e import E2E

HAS_METRICS = os.environ.get("AIRFLOW__METRICS__STATSD_ON") == "True"  # there is no DAG `metrics` without
NO_DAG = ("campaign_files", "refused_campaign_files")  # they make those of campaign files, of which there are none
PASSED = ("TRAINBENCH_", "AIRFLOW_CONN_", "AIRFLOW__")


class Components(LocalAirflow):
    """Airflow whose components can be killed and started, with Celery workers."""

    PROGRAM = lean_airflow.PROGRAM

    def __init__(self, port: int, state: Path, workers: Sequence[Path]) -> None:
        changes = {name: value for name, value in os.environ.items() if name.startswith(PASSED)}
        super().__init__(port, with_triggerer=True, state=state, environment=changes)
        self._workers = {home.name: home for home in workers}

    def start(self, name: str) -> None:
        if name in self._workers:
            self._start_worker(name)
        else:
            self._start(name, [name] if name in ("api-server", "dag-processor") else [name, "--skip-serve-logs"])

    def start_workers(self) -> None:
        for name in self._workers:
            self._start_worker(name)

    def kill(self, name: str) -> None:
        process = self._processes.pop(name)
        os.killpg(process.pid, signal.SIGKILL)  # each component leads a session of its own
        process.wait()

    def _start_worker(self, name: str) -> None:
        home = self._workers[name]
        hidden = [self.state, *(other for other in self._workers.values() if other != home)]
        mounts = [f"mount -t tmpfs none {shlex.quote(str(folder))}" for folder in hidden]
        celery = [*self.PROGRAM, "celery", "worker", "--skip-serve-logs", "--celery-hostname", name]
        with (self.state / "logs" / f"{name}.log").open("ab") as log:
            self._processes[name] = subprocess.Popen(
                ["unshare", "--mount", "sh", "-ec", "; ".join([*mounts, f"exec {shlex.join(celery)}"])],
                cwd=home,
                env=self.environment() | {"AIRFLOW_HOME": str(home), "HOME": str(home)},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                preexec_fn=end_with_parent,
            )


def main() -> None:
    port, state, workers = int(sys.argv[1]), Path(sys.argv[2]), [Path(home) for home in sys.argv[3:]]
    with Components(port, state, workers) as airflow:
        airflow.start_workers()
        for dag in sorted((ROOT / "dags").glob("*.py")):  # each is read by itself, in any order
            if dag.stem not in NO_DAG and (dag.stem != "metrics" or HAS_METRICS):
                airflow.wait_until_healthy(dag.stem, 600 * E2E.patience)
        print("healthy", flush=True)
        for line in sys.stdin:
            verb, name = line.split()
            {"kill": airflow.kill, "start": airflow.start}[verb](name)
            print("done", flush=True)


if __name__ == "__main__":
    main()
