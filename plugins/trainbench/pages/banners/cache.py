"""Caches the last read of the banners: a slow or absent database delays no page, and one thread reads it."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable

from trainbench.history.notices import Notice

log = logging.getLogger(__name__)
KEEP_S = 3.0  # seconds until the next read
KEEP_FAILURE_S = 15.0
STALE_S = 120.0  # older banners are not shown while the database does not answer
WAIT_S = 0.25  # longest wait for a read


class BannerCache:
    def __init__(
        self,
        read: Callable[[], tuple[Notice, ...]],
        wait_s: float = WAIT_S,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._read, self._wait_s, self._clock = read, wait_s, clock
        self._lock = threading.Lock()
        self._known: tuple[Notice, ...] = ()
        self._read_at, self._until = -STALE_S, -STALE_S
        self._reading: threading.Event | None = None  # set when that read has ended

    def get(self) -> tuple[Notice, ...]:
        """The banners. Never raises. Waits at most WAIT_S for a read that it began itself, and not for an older one."""
        with self._lock:
            started = None
            if self._clock() >= self._until and self._reading is None:
                self._reading = started = threading.Event()
        if started is not None:
            threading.Thread(target=self._run, args=(started,), name="trainbench banners", daemon=True).start()
            started.wait(self._wait_s)
        with self._lock:
            return self._known if self._clock() - self._read_at < STALE_S else ()

    def forget(self) -> None:
        """Drop the cached read after a change."""
        with self._lock:
            self._until = -STALE_S

    def _run(self, ended: threading.Event) -> None:
        began_at = self._clock()
        try:
            rows, keep_s = self._read(), KEEP_S
        except Exception:
            # Airflow's home page must load without our database; the log has the reason for missing banners.
            log.exception("trainbench: the open notices cannot be read")
            rows, keep_s = None, KEEP_FAILURE_S
        with self._lock:
            if rows is not None:
                self._known, self._read_at = rows, began_at
            self._until, self._reading = self._clock() + keep_s, None
        ended.set()
