"""When this process began, and that it ends with its parent."""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import time
from pathlib import Path

import psutil

PARENT_ENV = "TRAINBENCH_PARENT_PID"
PR_SET_PDEATHSIG = 1  # linux/prctl.h


def die_with_parent() -> None:
    """The kernel sends SIGKILL when the parent ends; torchrun starts its ranks in own sessions, which killpg misses."""
    if sys.platform != "linux":
        return
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    # Taken out of the environment: our own children have another parent.
    parent = os.environ.pop(PARENT_ENV, None)
    if parent is not None and int(parent) != os.getppid():
        sys.exit(f"the supervisor, process {parent}, was gone before this process could follow it")


def process_start(pid: int | None = None) -> float:
    """Epoch seconds at which this process, or that of another number, began, to 10 ms."""
    if (ticks := start_ticks(pid)) is None:
        return float(psutil.Process(pid).create_time())
    # psutil adds the boot time, which Linux states in whole seconds only.
    age_s = time.clock_gettime(time.CLOCK_BOOTTIME) - ticks / os.sysconf("SC_CLK_TCK")
    return time.time() - age_s


def start_ticks(pid: int | None = None) -> int | None:
    """Clock ticks from boot to the process's start: with its number they name it. None where there is no /proc."""
    stat = Path("/proc", "self" if pid is None else str(pid), "stat")
    return int(stat.read_text().rpartition(")")[2].split()[19]) if stat.exists() else None
