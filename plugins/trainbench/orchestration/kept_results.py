"""Keeps each pod's result and log in the store as soon as its task has them; reads the result once the pod is gone."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from trainbench.settings.environment import read_settings


def keep_result(manifest: Mapping[str, Any] | None, payload: object, log: Any, store: str | None = None) -> None:
    """Store the result. Errors are only logged: Airflow has the result too, and the judgement stores it again. `store`:
    an address; None: the settings'.
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


def keep_log(manifest: Mapping[str, Any] | None, text: str, log: Any, store: str | None = None) -> None:
    """Store the last part of the pod's log beside its result. Errors are only logged: a run never fails by its log."""
    from trainbench.results.arrivals import store_log
    from trainbench.results.artefacts import open_store

    try:
        store_log(open_store(store or read_settings().store), manifest or {}, text)
    except Exception as error:  # whatever the store's library raises
        log.warning("The pod's log is not kept beside its result: %s", error)


def kept_result(manifest: Mapping[str, Any] | None, pod_name: str, log: Any, store: str | None = None) -> Any:
    """This pod's result, where an earlier task stored it but could not push it to Airflow; None: no result or another
    pod's is stored. Errors are only logged.
    """
    from trainbench.results.arrivals import arrived_of_pod
    from trainbench.results.artefacts import open_store

    try:
        text = arrived_of_pod(open_store(store or read_settings().store), manifest or {}, pod_name)
    except Exception as error:  # whatever the store's library raises
        log.warning("The store is not read, the result is read from the pod: %s", error)
        return None
    return None if text is None else json.loads(text)
