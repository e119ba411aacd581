"""Child processes of one pod: started together, waited for with a deadline, ended with all their descendants."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

import psutil

from bench_image.process.exit_codes import ProcessExits

POLL_S = 0.1
GRACE_S = 5.0  # between SIGTERM and SIGKILL, for a rank's last report
# The time that independent ranks get after the first has finished equal work; at least as long as it took.
LATER_S = 60.0

Process = subprocess.Popen[bytes]


class Child(NamedTuple):
    """A process to start: its arguments, its environment, and where it is another one than ours its folder and the
    descriptor that takes its output.
    """

    arguments: Sequence[str]
    environ: Mapping[str, str]
    folder: str | None = None
    output: int | None = None


class _StopRequest:
    """Signal handler that keeps the signal that is to stop this process."""

    def __init__(self) -> None:
        self.signum: signal.Signals | None = None

    def __call__(self, signum: int, _frame: object) -> None:
        self.signum = signal.Signals(signum)


def run_all(
    children: Sequence[Child], timeout_s: float, ended: Callable[[int], None] = lambda _: None, later_s: float = LATER_S
) -> ProcessExits:
    """Runs all children to their end, at most `timeout_s` seconds; one that fails or hangs ends no other.

    `ended` is called with a child's number as soon as it has ended. Once one child has exited with 0, the others have
    `later_s` seconds left, or as many as it took if these are more.
    """
    begin = time.monotonic()
    deadline, patience_s = begin + timeout_s, None
    with _stop_requests() as stop:
        running: dict[int, Process] = {}
        exits: dict[int, int] = {}
        try:
            for number, child in enumerate(children):
                # stdout is reserved for the result: whatever ranks and libraries print goes to stderr.
                running[number] = subprocess.Popen(
                    child.arguments,
                    env=child.environ,
                    cwd=child.folder,
                    stdout=sys.stderr if child.output is None else child.output,
                    stderr=child.output,
                    start_new_session=True,
                )
            while running and stop.signum is None and time.monotonic() < deadline:
                for number, code in [
                    (number, code) for number, one in running.items() if (code := one.poll()) is not None
                ]:
                    exits[number] = code
                    del running[number]
                    ended(number)
                    # A child that did its work sets the time that the others have left.
                    took_s = time.monotonic() - begin
                    if code == 0 and time.monotonic() + max(later_s, took_s) < deadline:
                        patience_s = max(later_s, took_s)
                        deadline = time.monotonic() + patience_s
                time.sleep(POLL_S)
            # Children that still run now are ended: first by SIGTERM, for a last report, then by SIGKILL.
            cut_off = frozenset(running)
            _terminate(running.values())
        finally:
            for process in running.values():
                if process.poll() is None:
                    _Family.of(process.pid).kill()
            exits |= {number: process.wait() for number, process in running.items()}
    stopped_by = stop.signum.name if stop.signum else None
    return ProcessExits(exits, bool(cut_off) and stopped_by is None, stopped_by, cut_off, patience_s)


@contextlib.contextmanager
def _stop_requests() -> Iterator[_StopRequest]:
    """Catches SIGTERM and SIGINT for the time of the context."""
    stop = _StopRequest()
    before = {signum: signal.signal(signum, stop) for signum in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield stop
    finally:
        for signum, handler in before.items():
            signal.signal(signum, handler)


def _terminate(processes: Iterable[Process]) -> None:
    """Sends SIGTERM to each process group, waits GRACE_S for the last reports, then SIGKILL to all descendants."""
    processes = [process for process in processes if process.poll() is None]
    families = [_Family.of(process.pid) for process in processes]
    for process in processes:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGTERM)
    deadline = time.monotonic() + GRACE_S
    for process in processes:
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(max(0.0, deadline - time.monotonic()))
    for family in families:
        family.kill()


class _Family(NamedTuple):
    """A process and its descendants, listed before it ends: orphans are not reachable from their parent."""

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
