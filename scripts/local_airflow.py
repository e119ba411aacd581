"""Airflow with embedded defaults on this machine: SQLite, LocalExecutor, the local launcher, loopback only."""

from __future__ import annotations

import ctypes
import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Self

import httpx
import psutil

ROOT = Path(__file__).resolve().parents[1]
STATE = ROOT / ".trainbench"
NEEDED_GB = 1.0
LOCKED_S = 300  # how long each process of Airflow waits for the others' writes
REPLY_S = LOCKED_S + 60  # for one reply of its API server, which may wait for the database
KILLED_S = 60  # until a process that got SIGKILL is gone
HEALTHY = ("metadatabase", "scheduler", "dag_processor")
PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36
# The machine may be busy: Airflow's own limits, 5 to 50 s, would end a task, drop a DAG or move a trigger.
PATIENCE = {
    "AIRFLOW__WORKERS__EXECUTION_API_TIMEOUT": "60.0",
    "AIRFLOW__CORE__DAGBAG_IMPORT_TIMEOUT": "300",
    "AIRFLOW__DAG_PROCESSOR__DAG_FILE_PROCESSOR_TIMEOUT": "600",
    "AIRFLOW__DAG_PROCESSOR__STALE_DAG_THRESHOLD": "600",
    "AIRFLOW__DAG_PROCESSOR__HEALTH_CHECK_THRESHOLD": "120",
    "AIRFLOW__SCHEDULER__SCHEDULER_HEALTH_CHECK_THRESHOLD": "120",
    "AIRFLOW__TRIGGERER__TRIGGERER_HEALTH_CHECK_THRESHOLD": "120",
    "AIRFLOW__TRIGGERER__RUNNER_HEALTH_CHECK_THRESHOLD": "120",
}


class LocalAirflowError(RuntimeError):
    """One sentence: what is wrong and what to do."""


class LocalAirflow:
    """A context: components start on entry; on exit no process of theirs is left, whatever happened."""

    PROGRAM = (sys.executable, "-m", "airflow")

    def __init__(
        self, port: int, with_triggerer: bool, state: Path = STATE, environment: Mapping[str, str] | None = None
    ) -> None:
        """`state`: the folder of database and logs; `environment`: what shall differ from the embedded defaults."""
        self.port = port
        self.state = state
        self._changes = dict(environment or {})
        self.url = f"http://127.0.0.1:{port}"
        self._components = ["api-server", "scheduler", "dag-processor"] + (["triggerer"] if with_triggerer else [])
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        # trust_env: a proxy set for the network must not be used for this machine's own address
        self._client = httpx.Client(base_url=self.url, timeout=REPLY_S, trust_env=False)

    def __enter__(self) -> Self:
        _check_port(self.port)
        _check_disk()
        _adopt_orphans()
        try:
            for folder in ("airflow", "logs"):
                (self.state / folder).mkdir(parents=True, exist_ok=True)
            self._run_once(["db", "migrate"])
            for name in self._components:
                options = [] if name in ("api-server", "dag-processor") else ["--skip-serve-logs"]
                self._start(name, [name, *options])
        except BaseException:
            stop_descendants()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._client.close()
        stop_descendants()

    def wait_until_healthy(self, dag_id: str, timeout_s: float = 600) -> None:
        """Until the components answer and the DAG is known. Raises LocalAirflowError with what is missing."""
        give_up = time.monotonic() + timeout_s
        while time.monotonic() < give_up:
            self._check_alive()
            health = self.get("/api/v2/monitor/health") or {}
            ready = all(health.get(part, {}).get("status") == "healthy" for part in HEALTHY)
            if ready and self.get(f"/api/v2/dags/{dag_id}"):
                return
            time.sleep(0.5)
        errors = (self.get("/api/v2/importErrors") or {}).get("import_errors", [])
        cause = errors[0]["stack_trace"].strip().splitlines()[-1] if errors else f"see {self.state / 'logs'}"
        raise LocalAirflowError(f"Airflow was not ready after {timeout_s:.0f} s: {cause}")

    def end_stopped_runs(self, dag_id: str) -> None:
        """Runs that an earlier Ctrl-C cut off are still open in the database, and a new one would wait for them."""
        base = f"/api/v2/dags/{dag_id}/dagRuns"
        for run in (self.get(f"{base}?state=running&state=queued") or {}).get("dag_runs", []):
            self._client.patch(f"{base}/{run['dag_run_id']}", json={"state": "failed"}).raise_for_status()

    def trigger(self, dag_id: str, conf: dict[str, Any]) -> str:
        """Starts a run and returns its id. Raises LocalAirflowError with Airflow's message when it refuses `conf`."""
        reply = self._client.post(f"/api/v2/dags/{dag_id}/dagRuns", json={"logical_date": None, "conf": conf})
        if reply.status_code != httpx.codes.OK:
            detail = reply.json().get("detail", reply.text) if reply.text.startswith("{") else reply.text
            raise LocalAirflowError(f"Airflow refused the run: {detail}")
        return str(reply.json()["dag_run_id"])

    def cause(self, dag_id: str, run_id: str) -> str:
        """The first failed task and its error, in one sentence."""
        base = f"/api/v2/dags/{dag_id}/dagRuns/{run_id}/taskInstances"
        listed = (self.get(f"{base}?limit=1000") or {}).get("task_instances", [])
        failed = sorted((ti for ti in listed if ti["state"] == "failed"), key=lambda ti: ti["end_date"] or "")
        if not failed:
            return "No task failed."
        task_id = failed[0]["task_id"]
        log = (self.get(f"{base}/{task_id}/logs/1") or {}).get("content", [])
        errors = [event["error_detail"][0]["exc_value"] for event in log if event.get("error_detail")]
        return f"Task '{task_id}' failed: {errors[-1] if errors else 'its log says why'}"

    def get(self, path: str) -> dict[str, Any] | None:
        """The JSON answer, or None while there is none."""
        try:
            reply = self._client.get(path)
        except httpx.HTTPError:
            self._check_alive()
            return None
        return reply.json() if reply.status_code == httpx.codes.OK else None

    def _start(self, name: str, command: Sequence[str]) -> None:
        log = (self.state / "logs" / f"{name}.log").open("wb")
        with log:
            self._processes[name] = subprocess.Popen(
                [*self.PROGRAM, *command],
                env=self.environment(),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,  # Ctrl-C goes to us alone: we stop them in order
                preexec_fn=end_with_parent,
            )

    def _run_once(self, command: Sequence[str]) -> None:
        name = "-".join(command)
        self._start(name, command)
        process = self._processes.pop(name)
        if process.wait() != 0:
            raise LocalAirflowError(f"`airflow {' '.join(command)}` failed: {_last_line(self.state, name)}")

    def _check_alive(self) -> None:
        for name, process in self._processes.items():
            if process.poll() is not None:
                line = _last_line(self.state, name)
                raise LocalAirflowError(f"Airflow's {name} ended with code {process.returncode}: {line}")

    def environment(self) -> dict[str, str]:
        """What its processes run in."""
        home = self.state / "airflow"
        secret = home / "jwt-secret"
        if not secret.exists():
            secret.write_text(secrets.token_urlsafe(64))
            secret.chmod(0o600)
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("AIRFLOW", "TRAINBENCH_"))}
        return kept | {
            "AIRFLOW_HOME": str(home),
            "AIRFLOW__CORE__DAGS_FOLDER": str(ROOT / "dags"),
            "AIRFLOW__CORE__PLUGINS_FOLDER": str(ROOT / "plugins"),
            "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
            "AIRFLOW__CORE__EXECUTOR": "LocalExecutor",
            "AIRFLOW__CORE__PARALLELISM": "4",
            "AIRFLOW__CORE__DAGS_ARE_PAUSED_AT_CREATION": "False",
            "AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_ALL_ADMINS": "True",  # no login: hence loopback only
            "AIRFLOW__API__HOST": "127.0.0.1",
            "AIRFLOW__API__PORT": str(self.port),
            "AIRFLOW__API__BASE_URL": self.url,
            "AIRFLOW__API_AUTH__JWT_SECRET": secret.read_text(),
            # On a busy machine one process may keep the file locked for longer than the usual 5 s; a scheduler that
            # waits no longer ends.
            "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN": f"sqlite:///{home / 'airflow.db'}?timeout={LOCKED_S}",
            "AIRFLOW__DAG_PROCESSOR__REFRESH_INTERVAL": "10",
            # Reading unchanged files every 30 s, the default, takes time from the runs; an edited one is read at once.
            "AIRFLOW__DAG_PROCESSOR__MIN_FILE_PROCESS_INTERVAL": "600",
            **PATIENCE,
            "AIRFLOW__LOGGING__LOGGING_LEVEL": "WARNING",
            "AIRFLOW__USAGE_DATA_COLLECTION__ENABLED": "False",
            "NO_PROXY": "127.0.0.1,localhost",
            "PYTHONPATH": f"{ROOT}{os.pathsep}{ROOT / 'plugins'}",
            "TRAINBENCH_LAUNCHER": "local",
            "TRAINBENCH_STORE": str(self.state / "store"),
            **self._changes,
        }


def stop_descendants(grace_s: float = 10) -> None:
    """SIGTERM, then SIGKILL, to every process that descends from this one: Airflow, its tasks and their pods."""
    for signum, patience_s in ((signal.SIGTERM, grace_s), (signal.SIGKILL, KILLED_S)):
        for process in psutil.Process().children(recursive=True):
            try:
                process.send_signal(signum)
            except psutil.NoSuchProcess:
                continue
        give_up = time.monotonic() + patience_s
        while (left := psutil.Process().children(recursive=True)) and time.monotonic() < give_up:
            psutil.wait_procs(left, timeout=0.2)
        if not left:
            return


def end_with_parent() -> None:
    """In a new process: it gets SIGTERM when the one that started it ends, even by SIGKILL (Linux)."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)


def _adopt_orphans() -> None:
    """Processes whose parent died become our children (Linux), so that none can escape `stop_descendants`."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def _check_port(port: int) -> None:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except (OSError, OverflowError) as error:
            raise LocalAirflowError(
                f"port {port} is not free ({error}): name another, as in `make demo PORT=8081`"
            ) from None


def _check_disk() -> None:
    free_gb = shutil.disk_usage(ROOT).free / 1e9
    if free_gb < NEEDED_GB:
        raise LocalAirflowError(f"the disk has {free_gb:.1f} GB free and {NEEDED_GB:.0f} GB is needed: free some space")


def _last_line(state: Path, name: str) -> str:
    lines = [line for line in (state / "logs" / f"{name}.log").read_text(errors="replace").splitlines() if line.strip()]
    return lines[-1] if lines else "it wrote no log"
