"""How a pod ended when it did not end well: its last state and what the operator said -> one cause.

The states are the Kubernetes API's (Pod, PodStatus).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from enum import StrEnum
from typing import Any

from bench_image.contract.frozen import Frozen
from bench_image.contract.result import Status
from bench_image.contract.result_lines import ABSENT
from trainbench.planning.nodes import not_ready
from trainbench.pods.manifests import node_of
from trainbench.pods.placement import MAKE_IT_FIT, never_fits
from trainbench.pods.time_limits import condition_of, due_of, has_ended, is_late, state_of

Object = Mapping[str, Any]  # of the API, as JSON
Cause = tuple["EndKind", str]


class EndKind(StrEnum):
    BUSY = "busy"  # its node's resources are taken by other work
    PREEMPTED = "preempted"  # other work took its place
    EVICTED = "evicted"  # the node could not keep it
    NODE_LOST = "node_lost"  # its node does not answer, or does not end it: a new pod there would wait for nothing
    WITHDRAWN = "withdrawn"  # its node was taken out of service: drained or cordoned. A new pod finds no place
    VANISHED = "vanished"  # deleted, nobody says by whom
    CUT_OFF = "cut_off"  # of a gang: its program ran until the pod was deleted, as where another pod failed
    NOT_STORED = "not_stored"  # its result is still in the pod: the store did not take it
    API = "api"  # the API server gave no answer, or a wrong one
    UNAUTHORIZED = "unauthorized"  # the API server does not accept our token
    QUOTA = "quota"  # the namespace's quota is used up
    NO_NODE = "no_node"  # the cluster has none of its node's name
    UNSCHEDULABLE = "unschedulable"  # no node may take it, or it fits not even the empty node
    NO_IMAGE = "no_image"
    NOT_STARTED = "not_started"
    OUT_OF_MEMORY = "host_out_of_memory"
    DEADLINE = "deadline"
    REFUSED = "refused"  # the API server does not allow it, or finds the manifest invalid
    NO_RESULT = "no_result"  # ended, and left nothing
    INVALID_RESULT = "invalid_result"  # left something that is too large, cut off or changed


# They tell of the control plane, not of the program: a result that is found later counts.
BESIDES_THE_PROGRAM = frozenset({EndKind.API, EndKind.UNAUTHORIZED, EndKind.NOT_STORED})
# A new pod may do better: these are retried, and their figures never judged.
INFRASTRUCTURE = BESIDES_THE_PROGRAM | {EndKind.PREEMPTED, EndKind.EVICTED, EndKind.VANISHED, EndKind.CUT_OFF}
# The node was not free, or not there: it is counted, not judged.
NOT_FREE = frozenset({EndKind.BUSY, EndKind.PREEMPTED, EndKind.WITHDRAWN, EndKind.NO_NODE})
# The node is at fault, where not all nodes of the run ended so.
OF_NODE = frozenset({EndKind.UNSCHEDULABLE, EndKind.NO_IMAGE, EndKind.NOT_STARTED, EndKind.NODE_LOST})

START_FAILURES = ("FailedMount", "FailedAttachVolume", "FailedCreatePodSandBox")
PULLS = ("ErrImagePull", "ImagePullBackOff", "InvalidImageName", "ErrImageNeverPull", "ImageInspectError")
END = "pod_end"  # XCom key of a `PodEnd`


class PodEnd(Frozen):
    """`message` is one sentence for the report: the fact and, where known, the next step."""

    kind: EndKind
    message: str
    pod: str | None = None  # its name, where a pod was made: what `release` finds of it afterwards counts

    @property
    def status(self) -> Status:
        if self.kind is EndKind.DEADLINE:
            return Status.TIMEOUT
        is_certain = self.kind in (EndKind.OUT_OF_MEMORY, EndKind.REFUSED, EndKind.INVALID_RESULT)
        return Status.ERROR if is_certain else Status.INCOMPLETE


def pod_end(
    pod: Object | None,
    base: str,
    said: str,
    http_status: int | None = None,
    events: Iterable[Object] = (),
    node: Object | None = None,
    now: datetime | None = None,
    missing: str = ABSENT,
) -> PodEnd:
    """`pod`: its last state as the API's JSON, None when it is gone; `base`: the container that does the work; `said`:
    the operator's last words, or the API server's; `http_status`: of its answer, where that was what failed; `events`:
    what is known of a pod that is gone or does not start; `node`: the node it was made for, empty where the cluster has
    it no more, None where it could not be read; `now`: to see whether it should have ended by now; `missing`: what the
    reader of results missed in its log.
    """
    is_over, withdrawn = pod is not None and has_ended(pod, base), _withdrawn(node)

    def causes() -> Iterator[Cause]:
        """All that can be said of it, the cause first."""
        yield from _refusals(http_status, said)
        if not is_over or http_status is not None:
            yield from _lost(pod, base, node, now)
        if http_status is not None:
            what = "its result could not be read, it is still in the pod" if is_over else f"no answer ({http_status})"
            yield EndKind.API, f"the Kubernetes API: {what}: {said}"
        for kind, message in _disruptions(pod, events):
            is_drained = withdrawn and kind is EndKind.EVICTED
            yield (EndKind.WITHDRAWN, f"{withdrawn}: {message}") if is_drained else (kind, message)
        if pod is None:
            if withdrawn:  # an eviction by `kubectl drain` leaves no event
                yield EndKind.WITHDRAWN, f"{withdrawn}, and the pod had to leave it"
            yield EndKind.VANISHED, "the pod was deleted before its result could be read: by whom, its node may say"
            return
        yield from _waits(pod, base)
        yield from _exits(pod, base, missing)
        if (phase := pod["status"].get("phase")) == "Pending":
            yield from _pending(pod, said, events, node)
        yield EndKind.API, f"the pod is in phase {phase}, but its task gave up: {said}"

    kind, message = next(causes())
    return PodEnd(kind=kind, message=" ".join(message.split())[:2000])


def _refusals(http_status: int | None, said: str) -> Iterator[Cause]:
    if http_status == 401:
        why = "has it expired? Renew the credentials of the Airflow connection"
        yield EndKind.UNAUTHORIZED, f"the Kubernetes API does not accept our token (401: {said}): {why}"
    if http_status == 403 and "exceeded quota" in said:
        why = f"the namespace's quota refused the pod, the node is not at fault: {said}"
        yield EndKind.QUOTA, f"{why}. Raise the ResourceQuota, or run fewer pods at once"
    if http_status in (400, 403, 404, 422):
        step = "`trainbench doctor` names the missing right, or what the cluster does not take"
        yield EndKind.REFUSED, f"the Kubernetes API refused, the node is not at fault ({said}): {step}"


def _withdrawn(node: Object | None) -> str | None:
    """A clause that says that somebody took the node out of service; None: nobody did."""
    if node == {}:
        return "its node is no longer in the cluster"
    if node and node.get("spec", {}).get("unschedulable"):
        return f"node {node['metadata']['name']} is cordoned (`kubectl drain` or `kubectl cordon`)"
    return None


def _lost(pod: Object | None, base: str, node: Object | None, now: datetime | None) -> Iterator[Cause]:
    """The node does not answer, or does not end a pod that should be over: the pod's state is out of date."""
    name = node["metadata"]["name"] if node else "its node"
    if node and (trouble := not_ready(node)):
        yield EndKind.NODE_LOST, f"node {name} stopped answering ({trouble})"
    moment = due_of(pod) if pod and not has_ended(pod, base) else None
    if moment and is_late(moment, now):
        state = "is ready" if node else "could not be read"
        late = f"{moment.why}, and the pod should have been gone by {moment.at:%Y-%m-%d %H:%M:%S} UTC"
        why = "a process that cannot be killed, as of a hung GPU, keeps a pod"
        yield EndKind.NODE_LOST, f"{late}, but {name} did not end it ({name} {state}): {why}"


def _disruptions(pod: Object | None, events: Iterable[Object]) -> Iterator[Cause]:
    """What took the pod's place: the states of a pod that is there, the events of one that is gone."""
    status = (pod or {}).get("status") or {}
    target = condition_of(pod or {}, "DisruptionTarget")
    gone = () if pod else [event for event in events if re.search("Preempt|Evict", event.get("reason") or "")]
    for told in (status, target if target.get("status") == "True" else {}, *gone):
        reason = told.get("reason") or ""
        why = told.get("message") or reason
        if reason == "DeadlineExceeded":
            yield EndKind.DEADLINE, "the pod was ended at its deadline: the program hung, or never ran"
        elif "Preempt" in reason:
            yield EndKind.PREEMPTED, f"other work took the node: {why}"
        elif reason:
            yield EndKind.EVICTED, f"the node could not keep the pod: {why}"


def _waits(pod: Object, base: str) -> Iterator[Cause]:
    status = pod.get("status") or {}
    containers = [*(status.get("initContainerStatuses") or ()), *(status.get("containerStatuses") or ())]
    # The API sorts containers by name: ours first, for others may wait for the same reason.
    for container in sorted(containers, key=lambda container: container["name"] != base):
        waiting = container.get("state", {}).get("waiting") or {}
        reason, name = waiting.get("reason", ""), container["name"]
        message = waiting.get("message") or reason
        if reason in PULLS:
            image = container.get("image", "")
            yield EndKind.NO_IMAGE, f"the image '{image}' of container '{name}' cannot be pulled: {message}"
        if reason.startswith("Create") or reason == "RunContainerError":
            yield EndKind.NOT_STARTED, f"container '{name}' did not start: {message}"


def _exits(pod: Object, base: str, missing: str) -> Iterator[Cause]:
    status, ended = pod["status"], state_of(pod, base).get("terminated")
    if ended is None:
        if status.get("phase") == "Failed":
            why = status.get("message") or "no reason given"
            yield EndKind.EVICTED, f"the pod failed before its container ran: {why}"
        return
    if ended.get("reason") == "OOMKilled":
        advice = "raise the pod's memory (TRAINBENCH_MEMORY_GIB), or choose less work"
        yield EndKind.OUT_OF_MEMORY, f"the kernel killed the program for the host's memory: {advice}"
    if missing != ABSENT:
        yield EndKind.INVALID_RESULT, f"the pod's log: {missing}"
    code = ended.get("exitCode")
    where = "it was killed, the node's log says why" if code == 137 else "the pod's log may say why"
    left = f"the program ended with exit code {code} and left no result"
    yield EndKind.NO_RESULT, f"{left}: {ended.get('message') or where}"


def _pending(pod: Object, said: str, events: Iterable[Object], node: Object | None) -> Iterator[Cause]:
    """Busy only where other work holds what the pod needs: a pod that the empty node could not take is an error."""
    placed = condition_of(pod, "PodScheduled")
    if placed.get("status") == "True":
        why = [event.get("message") or "" for event in events if event.get("reason") in START_FAILURES][-1:]
        yield EndKind.NOT_STARTED, f"the container did not start in time: {'; '.join([*why, said])}"
    reason = placed.get("message") or said
    if node == {}:
        unknown = f"the cluster has no node '{node_of(pod)}'"
        yield EndKind.NO_NODE, f"{unknown}: is the name misspelt, or was it removed or renamed?"
    if withdrawn := _withdrawn(node):
        yield EndKind.WITHDRAWN, f"{withdrawn}, so no pod is placed there"
    is_gated = placed.get("reason") == "SchedulingGated"
    if not is_gated and "Insufficient" not in reason:
        yield EndKind.UNSCHEDULABLE, f"no node may take the pod: {reason}"
    if not is_gated and node and (short := never_fits(pod, node)):
        where = f"node {node['metadata']['name']} even when it is empty"
        yield EndKind.UNSCHEDULABLE, f"the pod does not fit {where}: {short}: {MAKE_IT_FIT}"
    yield EndKind.BUSY, f"no room on the node within the waiting time: {reason}"
