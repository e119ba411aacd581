"""Finds leaked pods and expired artefacts, reports them and, where the mode says so, deletes them.

A pod of ours leaked when its DAG run is over. What it left is stored before it is deleted.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any

from bench_image.contract.frozen import Frozen
from trainbench.cluster.kubernetes_api import Cluster, ClusterError
from trainbench.cluster.pod_deletions import delete_pods
from trainbench.core.formats import NA, count, duration, listing
from trainbench.core.grouping import grouped
from trainbench.core.tables import Table, Tone, text_columns, text_row
from trainbench.pods.manifests import CONTAINER, Owner, owner_of
from trainbench.pods.time_limits import due_of, has_ended, moment_of
from trainbench.results.artefacts import NOUNS, Shelf, Store, Usage
from trainbench.results.store_files import StoreError
from trainbench.settings.environment import Housekeeping

DONE, LEFT, DUE, LOOK, KEPT = "deleted", "not deleted", "to be deleted", "to be looked at", "kept"
log = logging.getLogger(__name__)
MIN_AGE_S = 900.0  # younger pods stay, because their run may just have begun
KEEP_ENDED_S = 3 * 86_400.0  # an ended pod holds no GPU, and its log is useful
STUCK_S = 600  # a pod that should be gone for so long is on a node that does not answer


class Liveness(StrEnum):
    """State of the DAG run that a pod belongs to, as Airflow reports it."""

    LIVE = "live"
    ENDED = "ended"
    NOT_FOUND = "not found"  # deleted, or another Airflow's
    NOT_KNOWN = "not known"  # Airflow did not answer


class Action(StrEnum):
    RELEASE = "release"  # its run is over and it holds or awaits GPUs: the run's task `release` could not delete it
    DELETE = "delete"
    REPORT = "report"
    KEEP = "keep"


DELETED = {
    Housekeeping.REPORT: (),
    Housekeeping.RELEASE: (Action.RELEASE,),
    Housekeeping.DELETE: (Action.RELEASE, Action.DELETE),
}


OUTCOMES = {Action.RELEASE: DUE, Action.DELETE: DUE, Action.REPORT: LOOK, Action.KEEP: KEPT}


class Swept(Frozen):
    """A pod or folder that was examined. `what`: where and in which phase it is, or how large."""

    name: str
    what: str
    age: str
    outcome: str
    why: str

    def tried(self, error: Exception | None) -> Swept:
        """After its deletion was requested."""
        if error is None:
            return self.model_copy(update={"outcome": DONE})
        fault = error.message if isinstance(error, ClusterError) else error
        return self.model_copy(update={"outcome": LEFT, "why": f"{self.why}; {fault}"})


def sweep_pods(
    cluster: Cluster,
    labels: Mapping[str, str],
    liveness: Callable[[Owner], Liveness],
    mode: Housekeeping,
    store: Store,
    now: datetime,
    trusts_age: bool = False,
) -> tuple[Swept, ...]:
    """Sweep the pods with all of `labels`, the oldest first. `trusts_age`: see pod_verdict. Raises ClusterError when
    they cannot be listed; a pod that cannot be deleted is reported.
    """
    swept, due = [], {}
    for pod in sorted(cluster.pods(labels), key=lambda pod: _age_s(pod, now), reverse=True):
        name, phase = pod["metadata"]["name"], pod["status"].get("phase", "Unknown")
        if not labels or not labels.items() <= (pod["metadata"].get("labels") or {}).items():
            continue  # not ours, whatever the server listed
        action, reason = pod_verdict(pod, liveness, now, trusts_age)
        what = f"{phase} on {pod.get('spec', {}).get('nodeName') or 'no node'}"
        age = duration(_age_s(pod, now))
        swept.append(Swept(name=name, what=what, age=age, outcome=OUTCOMES[action], why=reason))
        if action in DELETED[mode]:
            due[name] = pod
    errors = delete_pods(cluster, due.values(), store, log.info, replaces=False)
    return tuple(item.tried(errors.get(item.name)) if item.name in due else item for item in swept)


def pod_verdict(
    pod: Mapping[str, Any], liveness: Callable[[Owner], Liveness], now: datetime, trusts_age: bool = False
) -> tuple[Action, str]:
    """What to do with a pod of ours, and why. `trusts_age`: a pod whose run is unknown counts as leaked by its age
    alone.
    """
    if gone_at := moment_of(pod["metadata"].get("deletionTimestamp")):  # the end of its grace
        late_s = (now - gone_at).total_seconds()
        if late_s < STUCK_S:
            return Action.KEEP, "is being deleted"
        node = pod.get("spec", {}).get("nodeName", "its node")
        return Action.REPORT, f"should be gone since {duration(late_s)}: {node} does not answer, look at that node"
    if _age_s(pod, now) < MIN_AGE_S:
        return Action.KEEP, f"younger than {duration(MIN_AGE_S)}"
    owner = owner_of(pod)
    run = f"its run {owner.dag_run_id} of {owner.dag_id}" if owner else ""
    if pod["status"].get("phase") in ("Succeeded", "Failed"):
        ended_s = (now - _ended_at(pod)).total_seconds()
        if ended_s < KEEP_ENDED_S:
            return Action.KEEP, f"has ended; its log is kept for {duration(KEEP_ENDED_S)}"
        if owner and liveness(owner) is Liveness.LIVE:
            return Action.KEEP, f"has ended; {run} is still on"
        return Action.DELETE, f"ended {duration(ended_s)} ago"
    # It holds GPUs or waits for them, also where its program has ended and another container has not.
    due, late = due_of(pod), ""
    if due and (late_s := (now - due.at).total_seconds()) > STUCK_S and not has_ended(pod, CONTAINER):
        late = f" Its deadline passed {duration(late_s)} ago: look at its node."
    if owner is None:
        return Action.REPORT, f"names no DAG run: started by hand?{late} Delete it by hand if nobody needs it"
    action, state = {
        Liveness.LIVE: (Action.REPORT if late else Action.KEEP, "is still on"),
        Liveness.ENDED: (Action.RELEASE, "is over"),
        Liveness.NOT_FOUND: (Action.REPORT, "is not in this Airflow"),
        Liveness.NOT_KNOWN: (Action.DELETE, "is unknown from here; deleted for its age, as requested")
        if trusts_age
        else (Action.REPORT, "is unknown from here"),
    }[liveness(owner)]
    return action, f"{run} {state}.{late}".rstrip(".")


def sweep_artefacts(store: Store, retention_days: int, deletes: bool, now: datetime) -> tuple[Swept, ...]:
    """Sweep the artefacts, the oldest first; the history's rows stay for trends. Raises StoreError where they cannot be
    read.
    """
    usages = [store.usage(shelf, name) for shelf in Shelf for name in store.names(shelf)]
    swept = []
    for usage in sorted(usages, key=lambda usage: usage.changed_at or now):
        action, reason = folder_verdict(usage, retention_days, now)
        age = count((now - usage.changed_at).days, "day") if usage.changed_at else NA
        name, what = f"{usage.shelf}/{usage.name}", f"{count(usage.num_files, 'file')}, {usage.num_bytes / 1e6:,.1f} MB"
        item = Swept(name=name, what=what, age=age, outcome=OUTCOMES[action], why=reason)
        if deletes and action is Action.DELETE:
            try:
                store.delete(usage.shelf, usage.name)
                item = item.tried(None)
            except StoreError as error:
                item = item.tried(error)
        swept.append(item)
    return tuple(swept)


def folder_verdict(usage: Usage, retention_days: int, now: datetime) -> tuple[Action, str]:
    """`retention_days` 0 keeps all; undated folders and those with others' files stay."""
    if retention_days == 0:
        return Action.KEEP, "kept for ever"
    if usage.changed_at is None:
        return Action.KEEP, "kept: it holds no file that can be dated"
    if now - usage.changed_at <= timedelta(days=retention_days):
        return Action.KEEP, f"kept until {retention_days} days after its last change"
    if usage.foreign:
        foreign = ", ".join(usage.foreign[:3])
        return Action.KEEP, f"kept: {foreign} in it is not of a {NOUNS[usage.shelf]}; move it away"
    return Action.DELETE, f"last changed more than {retention_days} days ago"


def table(swept: Sequence[Swept]) -> Table:
    """Without kept items, which may span a year."""
    tones = {LEFT: Tone.BAD, DONE: Tone.GOOD}
    rows = (
        text_row(each.name, each.what, each.age, each.outcome, each.why, tone=tones.get(each.outcome, Tone.WARN))
        for each in swept
        if each.outcome != KEPT
    )
    return Table(columns=text_columns("name", "what", "age", "outcome", "why", long="why"), rows=tuple(rows))


def names_by_outcome(swept: Sequence[Swept]) -> dict[str, list[str]]:
    """Without kept items."""
    return grouped((each.outcome, each.name) for each in swept if each.outcome != KEPT)


def summary(swept: Sequence[Swept], noun: str) -> str:
    """A summary: "5 pods: 1 deleted, 1 to be looked at"."""
    found = names_by_outcome(swept)
    results = ", ".join(f"{len(found[each])} {each}" for each in (DONE, DUE, LEFT, LOOK) if each in found)
    return f"{count(len(swept), noun)}: {results or 'nothing to do'}"


def faults(swept: Sequence[Swept]) -> str | None:
    """A sentence on items that should be deleted and are left; None: all are deleted."""
    left = [f"{each.name}: {each.why}" for each in swept if each.outcome == LEFT]
    return f"{len(left)} could not be deleted: {listing(left, most=3)}" if left else None


def _age_s(pod: Mapping[str, Any], now: datetime) -> float:
    return (now - datetime.fromisoformat(pod["metadata"]["creationTimestamp"])).total_seconds()


def _ended_at(pod: Mapping[str, Any]) -> datetime:
    """End of its last container; of an evicted pod, which has none, its creation."""
    states = [container.get("state", {}) for container in pod["status"].get("containerStatuses") or ()]
    ends = [moment_of(state.get("terminated", {}).get("finishedAt")) for state in states]
    return max(filter(None, ends), default=datetime.fromisoformat(pod["metadata"]["creationTimestamp"]))
