"""Finds leaked pods and expired artefacts, reports them and, where the mode says so, deletes them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Any

from bench_image.contract.frozen import Frozen
from trainbench.cluster import leaked_pods as leaked
from trainbench.cluster import retention
from trainbench.cluster.kubernetes_api import Cluster, ClusterError, Refused
from trainbench.cluster.leaked_pods import Action, Liveness, PodVerdict, Rules
from trainbench.cluster.retention import Expiry
from trainbench.core.formats import NA, count, duration
from trainbench.core.tables import Table, Tone, text_columns, text_row
from trainbench.pods.manifests import Owner
from trainbench.results.artefacts import Shelf, Store
from trainbench.results.store_files import StoreError
from trainbench.settings.environment import Housekeeping


class Swept(Frozen):
    """A pod or folder that was examined. `is_leaked`: to be deleted; `fault`: why it could not be."""

    name: str
    is_leaked: bool
    is_deleted: bool = False
    is_notable: bool = False  # kept, but reported
    fault: str | None = None
    num_bytes: int = 0
    cells: tuple[str, ...]
    reason: str

    @property
    def outcome(self) -> str:
        if self.fault:
            return f"not deleted: {self.fault}"
        if self.is_leaked:
            return "deleted" if self.is_deleted else "to be deleted"
        return "look at it" if self.is_notable else "kept"


def sweep_pods(
    cluster: Cluster,
    labels: Mapping[str, str],
    liveness: Callable[[Owner], Liveness],
    rules: Rules,
    mode: Housekeeping,
    now: datetime,
) -> tuple[Swept, ...]:
    """Sweep the pods. Raises ClusterError when they cannot be listed; a pod that cannot be deleted is reported."""
    verdicts = leaked.pod_verdicts(cluster.pods(labels), labels, liveness, rules, now)
    return tuple(_sweep_pod(cluster, verdict, mode) for verdict in verdicts)


def sweep_artefacts(store: Store, retention_days: int, deletes: bool, now: datetime) -> tuple[Swept, ...]:
    """Sweep the artefacts; the history's rows stay for trends. Raises StoreError when the store cannot be read."""
    usages = [store.usage(shelf, name) for shelf in Shelf for name in store.names(shelf)]
    return tuple(_sweep_folder(store, expiry, deletes) for expiry in retention.expiries(usages, retention_days, now))


def pods_table(swept: Sequence[Swept]) -> Table:
    return _table("Pods", ("pod", "node", "phase", "age"), swept)


def artefacts_table(swept: Sequence[Swept]) -> Table:
    return _table("Artefacts", ("folder", "files", "size", "age"), swept)


def summary(swept: Sequence[Swept], noun: str) -> str:
    """A summary: "5 pods: 1 deleted, 1 to be looked at"."""
    due = [item for item in swept if item.is_leaked]
    parts = [
        (sum(item.is_deleted for item in due), "deleted"),
        (sum(not item.is_deleted and item.fault is None for item in due), "to be deleted"),
        (sum(item.fault is not None for item in due), "could not be deleted"),
        (sum(item.is_notable for item in swept), "to be looked at"),
    ]
    results = ", ".join(f"{number} {what}" for number, what in parts if number) or "nothing to do"
    num_bytes = sum(item.num_bytes for item in due)
    return f"{count(len(swept), noun)}: {results}" + (f" ({_size(num_bytes)})" if num_bytes else "")


def document(swept: Sequence[Swept]) -> dict[str, Any]:
    """The result as JSON, for scripts and later tasks."""
    return {
        "deleted": [item.name for item in swept if item.is_deleted],
        "to_delete": [item.name for item in swept if item.is_leaked and not item.is_deleted],
        "to_look_at": {item.name: item.reason for item in swept if item.is_notable},
        "faults": {item.name: item.fault for item in swept if item.fault},
        "bytes": sum(item.num_bytes for item in swept if item.is_leaked),
        "looked_at": len(swept),
    }


def faults(swept: Sequence[Swept]) -> str | None:
    """A sentence on items that should be deleted and are left; None: all are deleted."""
    reasons = [f"{item.name}: {item.fault}" for item in swept if item.fault]
    return f"{len(reasons)} could not be deleted: {'; '.join(reasons[:3])}" if reasons else None


def _sweep_pod(cluster: Cluster, verdict: PodVerdict, mode: Housekeeping) -> Swept:
    swept = Swept(
        name=verdict.name,
        is_leaked=verdict.action in (Action.RELEASE, Action.DELETE),
        is_notable=verdict.action is Action.REPORT,
        cells=(verdict.name, verdict.node or NA, verdict.phase, duration(verdict.age_s)),
        reason=verdict.reason,
    )
    if not (
        (mode is Housekeeping.DELETE and swept.is_leaked)
        or (mode is Housekeeping.RELEASE and verdict.action is Action.RELEASE)
    ):
        return swept
    try:
        cluster.delete_pod(verdict.name, verdict.uid)
    except Refused as refused:
        return swept.model_copy(update={"fault": refused.message})
    except ClusterError as error:
        return swept.model_copy(update={"fault": str(error)})
    return swept.model_copy(update={"is_deleted": True})


def _sweep_folder(store: Store, expiry: Expiry, deletes: bool) -> Swept:
    age = NA if expiry.age_days is None else count(int(expiry.age_days), "day")
    name = f"{expiry.shelf}/{expiry.name}"
    swept = Swept(
        name=name,
        is_leaked=expiry.is_expired,
        num_bytes=expiry.num_bytes,
        cells=(name, str(expiry.num_files), _size(expiry.num_bytes), age),
        reason=expiry.reason,
    )
    if not (expiry.is_expired and deletes):
        return swept
    try:
        store.delete(expiry.shelf, expiry.name)
    except StoreError as error:
        return swept.model_copy(update={"fault": str(error)})
    return swept.model_copy(update={"is_deleted": True})


def _table(title: str, columns: tuple[str, ...], swept: Sequence[Swept]) -> Table:
    """The table without kept items, which may span a year."""
    rows = tuple(
        text_row(
            *(*item.cells, item.outcome, item.reason),
            tone=Tone.BAD if item.fault else Tone.WARN if item.is_notable or not item.is_deleted else Tone.GOOD,
        )
        for item in swept
        if item.is_leaked or item.is_notable
    )
    headings = text_columns(*columns, "outcome", "why", numbers=("files", "size"))
    return Table(columns=headings, rows=rows, title=title)


def _size(num_bytes: int) -> str:
    for unit, scale in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if num_bytes >= scale:
            return f"{num_bytes / scale:,.1f} {unit}"
    return f"{num_bytes} B"
