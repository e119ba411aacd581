"""A pod's result goes to the store as soon as its task has it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from trainbench.settings.environment import read_settings


def keep_result(manifest: Mapping[str, Any] | None, payload: object, log: Any, store: str | None = None) -> None:
    """Never fails the task: Airflow has the result too, and the judgement stores it again. `store`: an address, by
    default the settings'.
    """
    from trainbench.results.arrivals import store_arrival
    from trainbench.results.artefacts import open_store

    try:
        address = store_arrival(open_store(store or read_settings().store), manifest or {}, payload)
    except Exception as error:  # whatever the store's library raises
        log.warning("The result is not stored yet, the judgement will: %s", error)
    else:
        if address:
            log.info("Stored as %s", address)
