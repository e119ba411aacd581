"""One writer at a time, over processes, pods and hosts, by a file that only one of them can create.

Creating with O_EXCL is atomic on NFS as well; flock is not everywhere. What the lock saves is double work: writers
make the same bytes and rename them into place, so that a lock taken over too early does no harm.
"""

from __future__ import annotations

import contextlib
import os
import socket
import time
from pathlib import Path

STALE_S = 90.0  # longer than NFS clients remember a file's times (60 s)
BEAT_S = 1.0
POLL_S = 0.2


class WriteLock:
    """The file holds 'host pid time'; its owner touches it while at work."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._token = f"{socket.gethostname()} {os.getpid()} {time.time_ns()}"
        self._beaten_at = 0.0
        self._seen: tuple[str, int] | None = None
        self._seen_at = time.monotonic()

    def take(self) -> bool:
        """False: someone else has it. Raises OSError where the file cannot be created."""
        with contextlib.suppress(FileExistsError):
            with os.fdopen(os.open(self.path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o644), "w") as file:
                file.write(self._token)
            return True
        return False

    def beat(self) -> None:
        """Says that the owner is alive; cheap, at most once a second. A lock that was taken over is left alone."""
        if time.monotonic() - self._beaten_at >= BEAT_S:
            self._beaten_at = time.monotonic()
            with contextlib.suppress(OSError):
                os.utime(self.path)

    def release(self) -> None:
        state = self._state()
        if state and state[0] == self._token:
            self.path.unlink(missing_ok=True)

    def wait(self) -> float:
        """Sleeps a moment. Returns the seconds for which this process has seen no sign of life."""
        time.sleep(POLL_S)
        state = self._state()
        if state != self._seen:
            self._seen, self._seen_at = state, time.monotonic()
        return time.monotonic() - self._seen_at

    def break_if_dead(self, silent_s: float) -> None:
        """Removes the file of an owner that is gone from this host, or that was silent for STALE_S."""
        state = self._state()
        if state and (silent_s >= STALE_S or _is_gone(state[0])):
            self.path.unlink(missing_ok=True)

    def _state(self) -> tuple[str, int] | None:
        """Content and time of the file, None without one. Opening it makes NFS ask the server."""
        try:
            with self.path.open() as file:
                return file.read(), os.fstat(file.fileno()).st_mtime_ns
        except OSError:
            return None


def _is_gone(token: str) -> bool:
    """Whether the owner was a process of this host that runs no more."""
    host, _, rest = token.partition(" ")
    pid = rest.partition(" ")[0]
    if host != socket.gethostname() or not pid.isdigit():
        return False
    try:
        os.kill(int(pid), 0)
    except ProcessLookupError:
        return True
    except PermissionError:
        return False
    return False
