"""One training process (rank): imports the training stack, runs the phases of a benchmark, and ends with its report.

The training stack is imported in a phase of its own, not with this module: the seconds it takes are a result, and an
import that fails must be reported too.
"""

from __future__ import annotations

import gc
import os
import signal
import sys
import time
import traceback
from pathlib import Path

from bench_image.contract.parse import parse_spec
from bench_image.contract.pod_io import OUTPUT_DIR_ENV, SPEC_ENV
from bench_image.contract.result import Phase, RunError, Status
from bench_image.process.parent_death import die_with_parent
from bench_image.process.rank_report import Journal
from bench_image.process.training_imports import import_stack
from bench_image.training.oom import is_out_of_memory


class Terminated(BaseException):
    """SIGTERM arrived. Not an Exception, so that no library catches it as a fault of its own."""


def main() -> int:
    """Runs the spec of the environment. Returns 0 after a complete run, also one with an invalid loss; else 1, on
    which torchrun ends the other ranks.
    """
    first_line_at = time.time()
    die_with_parent()
    signal.signal(signal.SIGTERM, _on_sigterm)
    spec = parse_spec(os.environ[SPEC_ENV])
    journal = Journal(Path(os.environ[OUTPUT_DIR_ENV]), first_line_at)
    journal.enter(Phase.IMPORT, at=first_line_at)
    try:
        # Imports belong to the phase IMPORT, whose seconds are a result. What they make stays: to look for garbage
        # among it, again and again, takes a seventh of their time.
        gc.disable()
        import_stack(spec)
        from bench_image.process import phases

        gc.enable()
        error = phases.run(spec, journal)
    except Terminated:
        return _fail(journal, Status.INCOMPLETE, "SIGTERM", f"rank {journal.report.rank} was stopped by SIGTERM")
    except Exception as cause:
        traceback.print_exc()
        status = Status.OOM if is_out_of_memory(cause) else Status.ERROR
        return _fail(journal, status, type(cause).__name__, str(cause))
    journal.write(Status.INVALID_LOSS if error else Status.OK, error)
    return 0


def _on_sigterm(_signum: int, _frame: object) -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # a second one must not cut the last report short
    raise Terminated


def _fail(journal: Journal, status: Status, kind: str, message: str) -> int:
    report = journal.report
    journal.write(status, RunError(kind=kind, message=message[:4000], phase=report.phase, rank=report.rank))
    return 1


if __name__ == "__main__":
    code = main()
    sys.stdout.flush()
    sys.stderr.flush()
    # Everything is written. The libraries' own shutdown takes a second, and after a fault may wait for lost peers.
    os._exit(code)
