"""Marks a campaign of the command line as running: a lock on its stored plan, which ends with the process."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from trainbench.results.artefacts import Store
from trainbench.results.store_files import opened


@contextmanager
def marked_as_running(store: Store, campaign_id: str) -> Iterator[None]:
    """Hold the lock, where the store and its file system have locks.

    `is_running` may look in the microseconds between the plan's writing and its lock: it reports then that the campaign
    does not run, although it has just begun.
    """
    descriptor = None
    if store.is_local:
        with suppress(OSError):
            descriptor = os.open(store.plan_path(campaign_id).path, os.O_RDWR | os.O_NOFOLLOW)
            fcntl.flock(descriptor, fcntl.LOCK_EX)  # `is_running` may hold it, for microseconds
    try:
        yield
    finally:
        if descriptor is not None:
            os.close(descriptor)


def is_running(store: Store, campaign_id: str) -> bool | None:
    """Whether `trainbench run` is at work on the campaign; None: not known, because the store has no locks."""
    if not store.is_local:
        return None
    try:
        with opened(store.plan_path(campaign_id), store.root) as plan:
            fcntl.flock(plan, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return None
    return False
