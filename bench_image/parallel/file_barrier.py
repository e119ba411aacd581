"""Where independent ranks wait for each other: a file for each that has come, in the folder that they share.

Nothing of a training stack: a rank that died cannot break it, and the supervisor comes in place of the dead.
"""

from __future__ import annotations

import time
from pathlib import Path

PATIENCE_S = 20.0  # neighbours do the same work from the same moment: who is later than this is not waited for
POLL_S = 0.02
ARRIVED_FILE = "came-{}"


def arrive(folder: Path, rank: int) -> None:
    """This rank is there, or will never be."""
    (folder / ARRIVED_FILE.format(rank)).touch()


def wait_for_all(folder: Path, num_ranks: int, patience_s: float = PATIENCE_S) -> bool:
    """Whether all ranks have come within `patience_s`."""
    deadline = time.monotonic() + patience_s
    while not all((folder / ARRIVED_FILE.format(rank)).exists() for rank in range(num_ranks)):
        if time.monotonic() > deadline:
            return False
        time.sleep(POLL_S)
    return True
