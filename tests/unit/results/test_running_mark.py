"""A campaign of the command line is marked as running by a lock on its plan."""

from __future__ import annotations

import fcntl
import threading
from pathlib import Path

from trainbench.results.arrivals import is_running, marked_as_running
from trainbench.results.artefacts import open_store


def test_a_campaign_runs_as_long_as_it_is_marked(tmp_path: Path) -> None:
    store = open_store(str(tmp_path))
    store.write_plan("night-1", "{}")

    assert is_running(store, "night-1") is False
    with marked_as_running(store, "night-1"):
        assert is_running(store, "night-1") is True
    assert is_running(store, "night-1") is False


def test_a_campaign_that_begins_while_somebody_looks_is_marked_nevertheless(tmp_path: Path) -> None:
    """Who looks holds a lock too: to give up at once would leave the campaign without a mark to its end."""
    store = open_store(str(tmp_path))
    plan = Path(store.write_plan("night-1", "{}"))
    begun, has_looked = threading.Event(), threading.Event()

    def run() -> None:
        with marked_as_running(store, "night-1"):
            begun.set()
            has_looked.wait()

    campaign = threading.Thread(target=run, daemon=True)
    with plan.open() as looked_at:
        fcntl.flock(looked_at, fcntl.LOCK_SH)
        campaign.start()
        begun.wait(0.2)
    begun.wait()

    assert is_running(store, "night-1") is True
    has_looked.set()
    campaign.join()
