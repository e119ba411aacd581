"""A barrier of independent ranks: each rank creates a file in their shared folder and waits for the others' files.

It needs no process group, so a dead rank cannot break it: the supervisor creates the file of a rank that has ended.
"""

from __future__ import annotations

import time
from pathlib import Path

TIMEOUT_S = 20.0  # the ranks do equal work from the same moment; a later rank is not waited for
POLL_S = 0.02
ARRIVED_FILE = "arrived-{}"


def arrive(folder: Path, rank: int) -> None:
    """Marks a rank as arrived, or as one that will never arrive."""
    (folder / ARRIVED_FILE.format(rank)).touch()


def wait_for_all(folder: Path, num_ranks: int, timeout_s: float = TIMEOUT_S) -> bool:
    """Waits until all ranks have arrived, at most `timeout_s` seconds; whether they have."""
    deadline = time.monotonic() + timeout_s
    while not all((folder / ARRIVED_FILE.format(rank)).exists() for rank in range(num_ranks)):
        if time.monotonic() > deadline:
            return False
        time.sleep(POLL_S)
    return True
