"""Judges which of our pods leaked: those whose DAG run is over. Only these are deleted."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any

from bench_image.contract.frozen import Frozen
from trainbench.core.formats import duration
from trainbench.pods.manifests import DAG_ID, DAG_RUN_ID, Owner

ENDED_PHASES = ("Succeeded", "Failed")
STUCK_S = 600  # a pod still being deleted so long after its grace period is on a node that does not answer


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


class Rules(Frozen):
    """The rules of leaks. `trust_age`: a pod whose run is unknown counts as leaked by its age alone."""

    min_age_s: float = 900.0  # younger pods stay, because their run may just have begun
    keep_ended_s: float = 3 * 86_400.0  # an ended pod holds no GPU, and its log is useful
    trust_age: bool = False


class PodVerdict(Frozen):
    name: str
    uid: str
    node: str | None
    phase: str
    age_s: float
    owner: Owner | None
    action: Action
    reason: str


def pod_verdicts(
    pods: Iterable[Mapping[str, Any]],
    labels: Mapping[str, str],
    liveness: Callable[[Owner], Liveness],
    rules: Rules,
    now: datetime,
) -> tuple[PodVerdict, ...]:
    """One verdict for each pod with all of `labels`, oldest first; other pods are ignored."""
    verdicts = [_verdict(pod, liveness, rules, now) for pod in pods if _is_ours(pod, labels)]
    return tuple(sorted(verdicts, key=lambda verdict: -verdict.age_s))


def owner_of(pod: Mapping[str, Any]) -> Owner | None:
    """The DAG run that made the pod; None: no DAG run made it, or its annotations are gone."""
    annotations = pod["metadata"].get("annotations") or {}
    if DAG_ID not in annotations or DAG_RUN_ID not in annotations:
        return None
    return Owner(dag_id=annotations[DAG_ID], dag_run_id=annotations[DAG_RUN_ID])


def _is_ours(pod: Mapping[str, Any], labels: Mapping[str, str]) -> bool:
    carried = pod["metadata"].get("labels") or {}
    return bool(labels) and all(carried.get(key) == value for key, value in labels.items())


def _verdict(pod: Mapping[str, Any], liveness: Callable[[Owner], Liveness], rules: Rules, now: datetime) -> PodVerdict:
    metadata, status = pod["metadata"], pod.get("status") or {}
    age_s = (now - _moment(metadata["creationTimestamp"])).total_seconds()
    owner = owner_of(pod)
    phase = status.get("phase", "Unknown")
    if decision := _on_its_way_out(pod, now) or _too_young(age_s, rules):
        action, reason = decision
    elif phase in ENDED_PHASES:
        action, reason = _ended(pod, owner, liveness, rules, now)
    else:
        action, reason = _holding(pod, owner, liveness, rules, now)
    return PodVerdict(
        name=metadata["name"],
        uid=metadata["uid"],
        node=pod.get("spec", {}).get("nodeName"),
        phase=phase,
        age_s=age_s,
        owner=owner,
        action=action,
        reason=reason,
    )


def _on_its_way_out(pod: Mapping[str, Any], now: datetime) -> tuple[Action, str] | None:
    deadline = pod["metadata"].get("deletionTimestamp")  # the end of the grace period
    if deadline is None:
        return None
    late_s = (now - _moment(deadline)).total_seconds()
    if late_s < STUCK_S:
        return Action.KEEP, "is being deleted"
    node = pod.get("spec", {}).get("nodeName", "its node")
    return Action.REPORT, f"should be gone since {duration(late_s)}: {node} does not answer, look at that node"


def _too_young(age_s: float, rules: Rules) -> tuple[Action, str] | None:
    return (Action.KEEP, f"younger than {duration(rules.min_age_s)}") if age_s < rules.min_age_s else None


def _ended(
    pod: Mapping[str, Any], owner: Owner | None, liveness: Callable[[Owner], Liveness], rules: Rules, now: datetime
) -> tuple[Action, str]:
    """The verdict on an ended pod: kept for its log, then deleted unless its run is still active."""
    ended_s = (now - _ended_at(pod)).total_seconds()
    if ended_s < rules.keep_ended_s:
        return Action.KEEP, f"has ended; its log is kept for {duration(rules.keep_ended_s)}"
    if owner and liveness(owner) is Liveness.LIVE:
        return Action.KEEP, f"has ended; its run {_name(owner)} is still on"
    return Action.DELETE, f"ended {duration(ended_s)} ago"


def _holding(
    pod: Mapping[str, Any], owner: Owner | None, liveness: Callable[[Owner], Liveness], rules: Rules, now: datetime
) -> tuple[Action, str]:
    """The verdict on a pod that holds GPUs or waits for them."""
    late = _past_deadline(pod, now)
    if owner is None:
        return Action.REPORT, f"names no DAG run: started by hand?{late} Delete it by hand if nobody needs it"
    state = liveness(owner)
    if state is Liveness.LIVE:
        return (Action.REPORT if late else Action.KEEP), f"its run {_name(owner)} is still on.{late}".rstrip(".")
    if state is Liveness.ENDED:
        return Action.RELEASE, f"its run {_name(owner)} is over.{late}".rstrip(".")
    unsure = "is not in this Airflow" if state is Liveness.NOT_FOUND else "is unknown from here"
    if rules.trust_age and state is Liveness.NOT_KNOWN:
        return Action.DELETE, f"its run {_name(owner)} {unsure}; deleted for its age, as requested.{late}".rstrip(".")
    return Action.REPORT, f"its run {_name(owner)} {unsure}.{late}".rstrip(".")


def _past_deadline(pod: Mapping[str, Any], now: datetime) -> str:
    """Whether a pod outlived the deadline at which its kubelet ends it, so that its node does not answer."""
    seconds, started = pod.get("spec", {}).get("activeDeadlineSeconds"), (pod.get("status") or {}).get("startTime")
    if seconds is None or started is None:
        return ""
    grace_s = pod["spec"].get("terminationGracePeriodSeconds", 30)
    late_s = (now - _moment(started)).total_seconds() - seconds - grace_s
    return f" Its deadline passed {duration(late_s)} ago: look at its node." if late_s > STUCK_S else ""


def _ended_at(pod: Mapping[str, Any]) -> datetime:
    """End of its last container; of an evicted pod, which has none, its creation."""
    statuses = pod["status"].get("containerStatuses") or ()
    ends = [s.get("state", {}).get("terminated", {}).get("finishedAt") for s in statuses]
    return max([_moment(end) for end in ends if end], default=_moment(pod["metadata"]["creationTimestamp"]))


def _name(owner: Owner) -> str:
    return f"{owner.dag_run_id} of {owner.dag_id}"


def _moment(text: str) -> datetime:
    at = datetime.fromisoformat(text)
    return at if at.tzinfo else at.replace(tzinfo=UTC)
