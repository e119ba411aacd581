"""`python -m bench_image.seq2seq`: measures epochs of an encoder-decoder model on all GPUs of this machine.

It starts and supervises its ranks (`supervise`). Of the processes that torchrun starts, the first one does that, for as
many ranks as there are processes; the others end at once.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

from bench_image.contract.pod_io import RESULT_FILE
from bench_image.contract.result import RunResult, Status
from bench_image.data.atomic_file import write_atomic
from bench_image.parallel.visible_gpus import count_visible_gpus
from bench_image.process.exit_codes import BAD_SPEC, EXIT_CODES
from bench_image.process.parent_death import die_with_parent
from bench_image.process.rank_report import read_reports
from bench_image.process.supervisor import publish, supervise
from bench_image.seq2seq import bench_file
from bench_image.seq2seq.flags import FlagError, Launch, Plan, parser, plan

RUNS = "runs"  # folder of the results beside the bench files, one per run


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the benchmark that the flags describe; returns the exit status."""
    launch = Launch.of(os.environ)
    if launch:
        die_with_parent()
        if launch.rank:
            return 0
    try:
        flags = parser().parse_args(arguments)
        name = f"{datetime.now(UTC):%Y%m%dt%H%M%Sz}-{os.getpid()}"
        planned = plan(flags, launch, f"seq2seq-{name}", count_visible_gpus(os.environ))
        folder = _run_folder(flags.results_dir, name)
    except FlagError as error:
        sys.stderr.write(f"seq2seq: {error}\n")
        return BAD_SPEC
    sys.stderr.writelines(f"seq2seq: {note}\n" for note in planned.notes)
    return finish(planned, supervise(planned.spec, folder, os.environ), folder, flags.results_dir)


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


def _run_folder(results_dir: Path, name: str) -> Path:
    """Creates the folder of the run. Raises FlagError where that fails."""
    folder = results_dir.resolve() / RUNS / name
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise FlagError(f"--results-dir {results_dir} cannot be written to: {error}") from None
    return folder


if __name__ == "__main__":
    sys.exit(main())
