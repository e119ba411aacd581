"""The kept part of a pod's log: its last lines, of bounded size and without control characters."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterable

from bench_image.contract.result_lines import is_part
from trainbench.core.formats import count, visible

MAX_LOG_BYTES = 64_000  # a run that ends well logs less than a tenth
MAX_LINE = 10_000  # characters
POD_LOG = "pod.log"
LOG_FILE = re.compile(r"pod\.log|rank-[0-9]{1,6}\.log")


def log_file(rank: int | None) -> str:
    """Name of the kept log of a run's pod. `rank`: node rank within a gang; None: the run's only pod."""
    return POD_LOG if rank is None else f"rank-{rank}.log"


class LogTail:
    """The last lines of a log, at most `most_bytes` of UTF-8; earlier lines are counted and dropped, and those of a
    result, which is stored as a file, are left out.
    """

    def __init__(self, lines: Iterable[str] = (), most_bytes: int = MAX_LOG_BYTES) -> None:
        self._lines: deque[bytes] = deque()
        self._most_bytes, self._num_bytes, self._num_dropped = most_bytes, 0, 0
        for line in lines:
            self.add(line)

    def add(self, line: str) -> None:
        if is_part(line):
            return
        # A surrogate, which UTF-8 cannot hold, is not printable either.
        kept = visible(line[:MAX_LINE]).rstrip().encode()
        self._lines.append(kept)
        self._num_bytes += len(kept) + 1
        while self._num_bytes > self._most_bytes:
            self._num_bytes -= len(self._lines.popleft()) + 1
            self._num_dropped += 1

    @property
    def text(self) -> str:
        """The lines; empty where there was none."""
        if not self._lines:
            return ""
        left_out = [f"... {count(self._num_dropped, 'earlier line')} left out"] if self._num_dropped else []
        return "\n".join([*left_out, *(line.decode() for line in self._lines)]) + "\n"
