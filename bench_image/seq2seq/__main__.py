"""`python -m bench_image.seq2seq`: measures epochs of an encoder-decoder model on all GPUs of this machine.

Started without torchrun it starts and supervises its ranks (`supervise`). Under torchrun each process is a rank, and
rank 0 merges the reports at the end. If rank 0 is killed then, there is no result, so prefer the start without
torchrun.
"""

from __future__ import annotations

import os
import signal
import sys
import time
import warnings
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

from bench_image.contract.pod_io import OUTPUT_DIR_ENV, RESULT_FILE, SPEC_ENV
from bench_image.contract.result import RunResult, Status
from bench_image.contract.spec import RunSpec
from bench_image.data.atomic_file import write_atomic
from bench_image.parallel.visible_gpus import count_visible_gpus
from bench_image.process.exit_codes import BAD_SPEC, EXIT_CODES, ProcessExits
from bench_image.process.merge import merge
from bench_image.process.parent_death import process_start, start_ticks
from bench_image.process.rank_report import STARTED_ENV, RankReport, read_reports
from bench_image.process.supervisor import QUIET, publish, supervise
from bench_image.seq2seq import bench_file
from bench_image.seq2seq.flags import FlagError, Launch, Plan, parser, plan

RUNS = "runs"  # folder of the results beside the bench files, one per run
PEERS_END_S = 20.0  # less than the 30 s after which torchrun kills
PEERS_FAIL_S = 3.0


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the benchmark that the flags describe; returns the exit status."""
    launch = Launch.of(os.environ)
    is_first = launch is None or launch.rank == 0  # of several ranks one prints
    try:
        flags = parser().parse_args(arguments)
        name = _run_name(launch)
        planned = plan(flags, launch, f"seq2seq-{name}", count_visible_gpus(os.environ))
        folder = _run_folder(flags.results_dir, name)
    except FlagError as error:
        if is_first:
            sys.stderr.write(f"seq2seq: {error}\n")
        return BAD_SPEC
    if is_first:
        sys.stderr.writelines(f"seq2seq: {note}\n" for note in planned.notes)
    if launch:
        result = run_as_rank(planned.spec, launch, folder)
        if result is None:
            return 0
    else:
        result = supervise(planned.spec, folder, os.environ)
    return finish(planned, result, folder, flags.results_dir)


def run_as_rank(spec: RunSpec, launch: Launch, folder: Path) -> RunResult | None:
    """Runs this process's rank. Returns the merged result on rank 0, None on the others; a failed one exits here."""
    from bench_image.process import worker

    started = process_start(os.getppid())
    for variable, value in QUIET.items():
        os.environ.setdefault(variable, value)
    warnings.simplefilter("ignore")  # PYTHONWARNINGS is read when Python starts
    os.environ |= {SPEC_ENV: spec.model_dump_json(), OUTPUT_DIR_ENV: str(folder), STARTED_ENV: repr(started)}
    code = worker.main()
    if launch.rank:
        if code:
            leave(code)
        return None
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # torchrun sends it when another rank has failed
    reports = _reports_of(folder, launch.world_size, PEERS_FAIL_S if code else PEERS_END_S)
    return merge(spec, reports, ProcessExits({}), datetime.fromtimestamp(started, UTC), datetime.now(UTC))


def finish(planned: Plan, result: RunResult, folder: Path, results_dir: Path) -> int:
    """Writes the bench file and prints its table and path, or the error. Returns the exit status."""
    if result.status is not Status.OK:
        publish(result, folder)
        assert result.error is not None
        phase = result.error.phase.value
        sys.stderr.write(
            f"seq2seq: {result.status.value} in phase {phase}: {result.error.kind}: {result.error.message}\n"
            f"seq2seq: no bench file; the figures so far are in {folder / RESULT_FILE}\n"
        )
        return EXIT_CODES[result.status]
    path = bench_file.free_path(results_dir, result)
    write_atomic(path, result.model_dump_json(indent=1) + "\n")
    sys.stdout.write(f"{bench_file.table(planned, result, read_reports(folder)[0].windows)}{path}\n")
    return 0


def leave(code: int) -> None:
    """Exits without the libraries' own shutdown, which after a fault may wait for lost ranks."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def _run_name(launch: Launch | None) -> str:
    """A unique name of the run; under torchrun the same for all ranks, which have one parent process."""
    if launch is None:
        return f"{datetime.now(UTC):%Y%m%dt%H%M%Sz}-{os.getpid()}"
    parent = os.getppid()
    return f"torchrun-{parent}-{start_ticks(parent) or round(process_start(parent))}"


def _run_folder(results_dir: Path, name: str) -> Path:
    """Creates the folder of the run. Raises FlagError where that fails."""
    folder = results_dir.resolve() / RUNS / name
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise FlagError(f"--results-dir {results_dir} cannot be written to: {error}") from None
    return folder


def _reports_of(folder: Path, world_size: int, patience_s: float) -> tuple[RankReport, ...]:
    """The reports, once every rank has ended or after `patience_s` seconds."""
    deadline = time.monotonic() + patience_s
    while True:
        reports = read_reports(folder)
        ended = [report for report in reports if report.status is not None]
        if len(ended) == world_size or time.monotonic() > deadline:
            return reports
        time.sleep(0.1)


if __name__ == "__main__":
    status = main()
    if status and Launch.of(os.environ):
        leave(status)
    sys.exit(status)
