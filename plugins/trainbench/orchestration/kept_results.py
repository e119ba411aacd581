"""Keeps each pod's log in the store beside its result."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from trainbench.settings.environment import read_settings


def keep_log(manifest: Mapping[str, Any] | None, text: str, log: Any, store: str | None = None) -> None:
    """Store the last part of the pod's log. Errors are only logged: a run never fails by its log. `store`: an address;
    None: the settings'.
    """
    from trainbench.results.arrivals import store_log
    from trainbench.results.artefacts import open_store

    try:
        store_log(open_store(store or read_settings().store), manifest or {}, text)
    except Exception as error:  # whatever the store's library raises
        log.warning("The pod's log is not kept beside its result: %s", error)
