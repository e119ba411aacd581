"""Child processes of one pod: started together, waited for with a deadline, ended with all their descendants."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
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


def run_all(
    children: Sequence[Child],
    timeout_s: float,
    ended: Callable[[int], None] = lambda _: None,
    later_s: float = LATER_S,
    cutting: Callable[[], None] = lambda: None,
) -> ProcessExits:
    """Runs all children to their end, at most `timeout_s` seconds; one that fails or hangs ends no other.

    `ended` is called with a child's number as soon as it has ended, `cutting` before those that still run are ended.
    Once one child has exited with 0, the others have `later_s` seconds left, or as many as it took if these are more.
    """
    begin = time.monotonic()
    deadline, patience_s = begin + timeout_s, None
    stops: list[signal.Signals] = []  # signals that are to stop this process
    running: dict[int, Process] = {}
    exits: dict[int, int] = {}
    before = {
        signum: signal.signal(signum, lambda signum, _frame: stops.append(signal.Signals(signum)))
        for signum in (signal.SIGTERM, signal.SIGINT)
    }
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
        while running and not stops and time.monotonic() < deadline:
            for number, code in [(number, code) for number, one in running.items() if (code := one.poll()) is not None]:
                exits[number] = code
                del running[number]
                ended(number)
                # A child that did its work sets the time that the others have left.
                took_s = time.monotonic() - begin
                if code == 0 and time.monotonic() + max(later_s, took_s) < deadline:
                    patience_s = max(later_s, took_s)
                    deadline = time.monotonic() + patience_s
            time.sleep(POLL_S)
    finally:
        cut_off = frozenset(running)
        if cut_off:
            cutting()
        _end(running.values())
        for signum, handler in before.items():
            signal.signal(signum, handler)
    exits |= {number: process.wait() for number, process in running.items()}
    stopped_by = stops[-1].name if stops else None
    return ProcessExits(exits, bool(cut_off) and stopped_by is None, stopped_by, cut_off, patience_s)


def _end(processes: Iterable[Process]) -> None:
    """Sends SIGTERM to each process group, waits GRACE_S for the last reports, then SIGKILL to all descendants."""
    processes = [process for process in processes if process.poll() is None]
    families: list[psutil.Process] = []  # listed before they end: orphans are not reachable from their parent
    for process in processes:
        with contextlib.suppress(psutil.NoSuchProcess):
            parent = psutil.Process(process.pid)
            families += [parent, *parent.children(recursive=True)]
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGTERM)
    deadline = time.monotonic() + GRACE_S
    for process in processes:
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(max(0.0, deadline - time.monotonic()))
    for member in families:
        with contextlib.suppress(psutil.NoSuchProcess):
            member.kill()
