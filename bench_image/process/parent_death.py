"""Process start times; ending a process when its parent dies."""

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
    """Asks the kernel for SIGKILL when the parent ends; Linux only.

    torchrun starts its ranks in sessions of their own, which killpg does not reach.
    """
    if sys.platform != "linux":
        return
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    # Removed from the environment, because the children of this process have another parent. The check finds a parent
    # that ended before prctl took effect.
    parent = os.environ.pop(PARENT_ENV, None)
    if parent is not None and int(parent) != os.getppid():
        sys.exit(f"the supervisor, process {parent}, ended before this process started")


def process_start() -> float:
    """Epoch seconds at which this process started, to 10 ms."""
    stat = Path("/proc/self/stat")
    if not stat.exists():
        return float(psutil.Process().create_time())
    ticks = int(stat.read_text().rpartition(")")[2].split()[19])
    # psutil adds the boot time, which Linux states in whole seconds only.
    age_s = time.clock_gettime(time.CLOCK_BOOTTIME) - ticks / os.sysconf("SC_CLK_TCK")
    return time.time() - age_s
