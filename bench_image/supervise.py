"""The pod's first process: starts the ranks, waits with a deadline, cleans up, and always has a result.

Imports no torch, so that a broken training stack still becomes a result that says so.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

import psutil
from pydantic import ValidationError

from bench_image.contract import (
    OUTPUT_DIR_ENV,
    RESULT_FILE,
    SPEC_ENV,
    XCOM_DIR_ENV,
    XCOM_FILE,
    ContractError,
    Device,
    Phase,
    RunResult,
    RunSpec,
    Status,
    Strategy,
    explain,
    failed_result,
)
from bench_image.lifeline import PARENT_ENV, process_start
from bench_image.merge import Ending, merge
from bench_image.rankfile import EXITS_FILE, STARTED_ENV, forget, read_exits, read_reports, write_atomic
from bench_image.sizing import num_lora_parameters
from bench_image.support import DEEPSPEED

POLL_S = 0.1
GRACE_S = 5.0  # what a rank gets after SIGTERM to write down what it knows
TERMINATION_LOG = Path("/dev/termination-log")
OFFLINE = {"HF_HUB_OFFLINE": "1"}  # asking for a hub that is not needed would cost seconds
QUIET = {
    "TRANSFORMERS_VERBOSITY": "error",
    "TOKENIZERS_PARALLELISM": "false",
    "PYTHONWARNINGS": "ignore",
    "PYTHONUNBUFFERED": "1",
}


def supervise(spec: RunSpec, output: Path, environ: Mapping[str, str]) -> RunResult:
    """Runs the spec to its end, at most `timeout_s` and a few seconds. OSError: `output` cannot be written to."""
    started = process_start()
    started_at = datetime.fromtimestamp(started, UTC)
    output.mkdir(parents=True, exist_ok=True)
    forget(output, (RESULT_FILE, EXITS_FILE))
    try:
        arguments = command(spec, environ)
    except ContractError as error:
        return failed_result(
            spec, status=Status.ERROR, kind="ContractError", message=str(error), phase=Phase.LAUNCH, at=started_at
        )
    remaining_s = spec.timeout_s - (time.time() - started)
    ending = _run(arguments, rank_environment(spec, output, environ, started), remaining_s)
    exits = read_exits(output) or ending.exits
    try:
        return merge(spec, read_reports(output), ending._replace(exits=exits), started_at, datetime.now(UTC))
    except ValidationError as error:  # a figure that cannot be, e.g. of a clock that was set meanwhile
        message = f"the ranks' figures break the contract: {explain(error)}"
        return failed_result(
            spec, status=Status.ERROR, kind="broken_figures", message=message, phase=Phase.REPORT, at=started_at
        )


def publish(result: RunResult, output: Path, environ: Mapping[str, str]) -> None:
    """Writes the result where others look for it: the output folder, Airflow's exchange, Kubernetes' one line."""
    note_cause(result, TERMINATION_LOG)
    write_atomic(output / RESULT_FILE, result.model_dump_json())
    if XCOM_DIR_ENV in environ:
        write_atomic(Path(environ[XCOM_DIR_ENV]) / XCOM_FILE, result.model_dump_json())


def command(spec: RunSpec, environ: Mapping[str, str]) -> list[str]:
    """The process to start. Raises ContractError for a spec that no rank could run."""
    shape = spec.shape
    if spec.lora:
        num_lora_parameters(shape, spec.lora)
    if spec.strategy is Strategy.SINGLE:
        return [sys.executable, "-m", "bench_image.rank"]
    gang = [sys.executable, "-m", "bench_image.gang", f"--nproc-per-node={spec.gpus_per_node}", "--max-restarts=0"]
    if spec.nodes == 1:
        # The loopback address: a pod's own name need not resolve.
        meeting = ["--standalone", "--local-addr=127.0.0.1"]
    else:
        absent = [name for name in ("NODE_RANK", "MASTER_ADDR", "MASTER_PORT") if not environ.get(name)]
        if absent:
            raise ContractError(
                f"{spec.nodes} nodes, but {', '.join(absent)} not set: set them in each pod's environment"
            )
        meeting = [
            f"--nnodes={spec.nodes}",
            f"--node-rank={environ['NODE_RANK']}",
            f"--master-addr={environ['MASTER_ADDR']}",
            f"--master-port={environ['MASTER_PORT']}",
        ]
    return [*gang, *meeting, "-m", "bench_image.rank"]


def rank_environment(spec: RunSpec, output: Path, environ: Mapping[str, str], started: float) -> dict[str, str]:
    """The ranks' environment: quiet libraries, the spec, and the moment at which the clock started."""
    result = QUIET | ({} if spec.needs_hub else OFFLINE) | dict(environ)
    result |= {
        SPEC_ENV: spec.model_dump_json(),
        OUTPUT_DIR_ENV: str(output.resolve()),
        STARTED_ENV: repr(started),
        PARENT_ENV: str(os.getpid()),
    }
    if spec.strategy is Strategy.SINGLE:
        result |= {"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "1"}
    elif spec.device is Device.CPU:
        result.setdefault("OMP_NUM_THREADS", "1")
    if spec.strategy in DEEPSPEED:
        result.setdefault("DS_ACCELERATOR", spec.device.value)  # it would take a GPU that happens to be there
    return result


def note_cause(result: RunResult, path: Path) -> None:
    """One line for `kubectl describe pod`, where Kubernetes offers a file for it."""
    if result.error is None or not os.access(path, os.W_OK):
        return
    cause = f"{result.status.value}: {result.error.kind}: {result.error.message}"
    path.write_text(" ".join(cause.split())[:1000] + "\n")


class _StopRequest:
    """The signal that asked us to stop, if one did."""

    def __init__(self) -> None:
        self.signum: signal.Signals | None = None

    def __call__(self, signum: int, _frame: object) -> None:
        self.signum = signal.Signals(signum)


def _run(arguments: list[str], environ: dict[str, str], timeout_s: float) -> Ending:
    deadline = time.monotonic() + timeout_s
    with _stop_requests() as stop:
        # stdout belongs to the result: whatever ranks and libraries print goes to stderr.
        child = subprocess.Popen(arguments, env=environ, stdout=sys.stderr, start_new_session=True)
        try:
            while child.poll() is None and stop.signum is None and time.monotonic() < deadline:
                time.sleep(POLL_S)
            timed_out = child.poll() is None and stop.signum is None
            if child.poll() is None:
                _terminate(child)
        finally:
            if child.poll() is None:
                _Family.of(child.pid).kill()
            child.wait()
    return Ending({0: child.returncode}, timed_out, stop.signum.name if stop.signum else None)


@contextlib.contextmanager
def _stop_requests() -> Iterator[_StopRequest]:
    stop = _StopRequest()
    before = {signum: signal.signal(signum, stop) for signum in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield stop
    finally:
        for signum, handler in before.items():
            signal.signal(signum, handler)


def _terminate(child: subprocess.Popen[bytes]) -> None:
    """SIGTERM, a few seconds to write down what is known, then SIGKILL to all descendants."""
    family = _Family.of(child.pid)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(child.pid, signal.SIGTERM)
    with contextlib.suppress(subprocess.TimeoutExpired):
        child.wait(GRACE_S)
    family.kill()


class _Family(NamedTuple):
    """A process and all below it; seen before it ends, because orphans have no parent to be found by."""

    members: tuple[psutil.Process, ...]

    @classmethod
    def of(cls, pid: int) -> _Family:
        try:
            process = psutil.Process(pid)
            return cls((process, *process.children(recursive=True)))
        except psutil.NoSuchProcess:
            return cls(())

    def kill(self) -> None:
        for process in self.members:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
