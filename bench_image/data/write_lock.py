"""A lock file: one writer at a time, over processes, pods and hosts.

Creating a file with O_EXCL is atomic on NFS too, where flock may not work. The lock only saves double work: all writers
write the same bytes and rename them into place, so a lock that is taken over too early does no harm.
"""

from __future__ import annotations

import contextlib
import os
import socket
import time
from pathlib import Path

import psutil

STALE_S = 90.0  # longer than NFS clients cache a file's times (60 s)
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
        """Whether this process got the lock. Raises OSError where the file cannot be created."""
        with contextlib.suppress(FileExistsError):
            with os.fdopen(os.open(self.path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o644), "w") as file:
                file.write(self._token)
            return True
        return False

    def beat(self) -> None:
        """Shows that the owner is alive, at most once a second; does nothing when the lock was taken over."""
        if time.monotonic() - self._beaten_at >= BEAT_S:
            self._beaten_at = time.monotonic()
            with contextlib.suppress(OSError):
                os.utime(self.path)

    def release(self) -> None:
        state = self._state()
        if state and state[0] == self._token:
            self.path.unlink(missing_ok=True)

    def wait(self) -> float:
        """Sleeps POLL_S. Returns the seconds for which the lock file has not changed."""
        time.sleep(POLL_S)
        state = self._state()
        if state != self._seen:
            self._seen, self._seen_at = state, time.monotonic()
        return time.monotonic() - self._seen_at

    def break_if_dead(self, silent_s: float) -> None:
        """Removes the lock of an owner that no longer runs on this host, or that did not touch it for STALE_S."""
        state = self._state()
        if state and (silent_s >= STALE_S or _is_gone(state[0])):
            self.path.unlink(missing_ok=True)

    def _state(self) -> tuple[str, int] | None:
        """Content and modification time of the file, None without one. Opening it makes NFS query the server."""
        try:
            with self.path.open() as file:
                return file.read(), os.fstat(file.fileno()).st_mtime_ns
        except OSError:
            return None


def _is_gone(token: str) -> bool:
    """Whether the owner was a process of this host that no longer runs."""
    host, _, rest = token.partition(" ")
    pid = rest.partition(" ")[0]
    return host == socket.gethostname() and pid.isdigit() and not psutil.pid_exists(int(pid))
