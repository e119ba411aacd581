"""How a pod ended when it did not end well: its last state and what the operator said -> one cause.

The states are the Kubernetes API's (Pod, PodStatus).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from enum import StrEnum
from typing import Any

from bench_image.contract.frozen import Frozen
from bench_image.contract.result import Status
from bench_image.contract.result_lines import ABSENT
from trainbench.planning.nodes import not_ready, not_ready_s
from trainbench.pods.placement import MAKE_IT_FIT, never_fits
from trainbench.pods.time_limits import DEAD_AFTER_S, condition_of, due_of, has_ended, is_late, state_of

Object = Mapping[str, Any]  # of the API, as JSON
Cause = tuple["EndKind", str]


class EndKind(StrEnum):
    BUSY = "busy"  # its node's resources are taken by other work
    PREEMPTED = "preempted"  # other work took its place
    EVICTED = "evicted"  # the node could not keep it
    NODE_LOST = "node_lost"  # its node does not answer, or does not end it: a new pod there would wait for nothing
    WITHDRAWN = "withdrawn"  # its node was taken out of service: drained or cordoned. A new pod finds no place
    VANISHED = "vanished"  # deleted, nobody says by whom
    NOT_STORED = "not_stored"  # its result is still in the pod: the store did not take it
    API = "api"  # the API server gave no answer, or a wrong one
    UNAUTHORIZED = "unauthorized"  # the API server does not accept our token
    QUOTA = "quota"  # the namespace's quota is used up
    UNSCHEDULABLE = "unschedulable"  # no node may take it, or it fits not even the empty node
    NO_IMAGE = "no_image"
    NOT_STARTED = "not_started"
    OUT_OF_MEMORY = "host_out_of_memory"
    DEADLINE = "deadline"
    REFUSED = "refused"  # the API server does not allow it, or finds the manifest invalid
    NO_RESULT = "no_result"  # ended, and left nothing
    INVALID_RESULT = "invalid_result"  # left something that is too large, cut off or changed


# A new pod may do better: these are retried, and their figures never judged.
INFRASTRUCTURE = frozenset({
    EndKind.PREEMPTED, EndKind.EVICTED, EndKind.VANISHED, EndKind.API, EndKind.UNAUTHORIZED, EndKind.NOT_STORED,
})  # fmt: skip
# They tell of the control plane, not of the program: a result that is found later counts.
BESIDES_THE_PROGRAM = frozenset({EndKind.API, EndKind.UNAUTHORIZED, EndKind.NOT_STORED})
# The node was not free: it is counted, not judged.
NOT_FREE = frozenset({EndKind.BUSY, EndKind.PREEMPTED, EndKind.WITHDRAWN})
STATUSES = {
    EndKind.DEADLINE: Status.TIMEOUT,
    EndKind.OUT_OF_MEMORY: Status.ERROR,
    EndKind.REFUSED: Status.ERROR,
    EndKind.INVALID_RESULT: Status.ERROR,
}

EVICTIONS = ("Evicted", "NodeShutdown", "NodeLost", "Terminated", "UnexpectedAdmissionError", "NodeAffinity")
PREEMPTIONS = ("PreemptionByScheduler", "PreemptionByKubeScheduler")
EVENTS = {
    "Preempted": EndKind.PREEMPTED,
    "Preempting": EndKind.PREEMPTED,
    "Evicted": EndKind.EVICTED,
    "TaintManagerEviction": EndKind.EVICTED,
}
START_FAILURES = ("FailedMount", "FailedAttachVolume", "FailedCreatePodSandBox")
PULLS = ("ErrImagePull", "ImagePullBackOff", "InvalidImageName", "ErrImageNeverPull", "ImageInspectError")
# What the API server's refusal means: (HTTP status, pattern of its text, kind, sentence); the first that fits.
REFUSALS = (
    (401, "", EndKind.UNAUTHORIZED,
     "the Kubernetes API does not accept our token (401: {}): has it expired? Renew the credentials of the Airflow "
     "connection"),
    (403, "exceeded quota", EndKind.QUOTA,
     "the namespace's quota refused the pod, the node is not at fault: {}. Raise the ResourceQuota, or run fewer pods "
     "at once"),
    # A 403 that is no missing right: that one says which user cannot do what.
    (403, r'pods "[^"]*" is forbidden: (?!User )|denied the request', EndKind.REFUSED,
     "the cluster does not take the pod, the node is not at fault: {}. `trainbench doctor` says what to change"),
    (403, "", EndKind.REFUSED,
     "the Kubernetes API refused ({}): `trainbench doctor` names the missing right"),
    (400, "", EndKind.REFUSED, "the Kubernetes API did not take the pod: {}"),
    (422, "", EndKind.REFUSED, "the Kubernetes API did not take the pod: {}"),
)  # fmt: skip
SIGKILL_CODE = 137
END = "pod_end"  # XCom key of a `PodEnd`


class PodEnd(Frozen):
    """`message` is one sentence for the report: the fact and, where known, the next step."""

    kind: EndKind
    message: str
    pod: str | None = None  # its name, where a pod was made: what `release` finds of it afterwards counts

    def told(self, missing: str) -> PodEnd:
        """The end of a pod in whose log the reader of results missed this."""
        if self.kind is not EndKind.NO_RESULT or missing == ABSENT:
            return self
        return self.model_copy(update={"kind": EndKind.INVALID_RESULT, "message": f"the pod's log: {missing}"})

    @property
    def is_infrastructure(self) -> bool:
        return self.kind in INFRASTRUCTURE

    @property
    def status(self) -> Status:
        return STATUSES.get(self.kind, Status.INCOMPLETE)


def pod_end(
    pod: Object | None,
    base: str,
    api_message: str,
    http_status: int | None = None,
    events: Sequence[tuple[str, str]] = (),
    node: Object | None = None,
    now: datetime | None = None,
) -> PodEnd:
    """`pod`: its last state as the API's JSON, None when it is gone; `base`: the container that does the work;
    `api_message`: the operator's last words; `http_status`: of the API's answer, where that was what failed; `events`:
    reason and message of what is known of a pod that is gone or waits; `node`: the node it was made for, empty where
    the cluster has it no more, None where it could not be read; `now`: to see whether it should have ended by now.
    """

    def causes() -> Iterator[Cause]:
        """All that can be said of it, the cause first."""
        for status, pattern, kind, sentence in REFUSALS:
            if status == http_status and re.search(pattern, api_message):
                yield kind, sentence.format(api_message)
        if pod is None or not has_ended(pod, base) or http_status is not None:
            yield from _lost(pod, base, node, now)
        withdrawn = _withdrawn(node)
        if pod is None:
            if http_status not in (None, 404):
                yield EndKind.API, f"the Kubernetes API failed with {http_status}: {api_message}"
            told = [(EVENTS[reason], message or reason) for reason, message in events if reason in EVENTS]
            if withdrawn:  # an eviction by `kubectl drain` leaves no event
                why = f": {told[0][1]}" if told else ""
                yield EndKind.WITHDRAWN, f"{withdrawn}, and the pod had to leave it{why}"
            yield from ((kind, f"the pod had to leave its node: {why}") for kind, why in told)
            yield EndKind.VANISHED, "the pod was deleted before its result could be read: by whom, its node may say"
            return
        for kind, message in _disruptions(pod):
            is_drained = withdrawn and kind is EndKind.EVICTED
            yield (EndKind.WITHDRAWN, f"{withdrawn}: {message}") if is_drained else (kind, message)
        yield from _waits(pod, base)
        yield from _exits(pod, base)
        phase = (pod.get("status") or {}).get("phase")
        if phase == "Pending":
            yield from _pending(pod, api_message, events, node, withdrawn)
        yield EndKind.API, f"the pod is in phase {phase}, but its task gave up: {api_message}"

    return _end(*next(causes()))


def unplaceable(node: Object | None, now: datetime) -> PodEnd | None:
    """Why no pod will be placed on its node, as `pod_end` has it; None: nothing stands against it."""
    if withdrawn := _withdrawn(node):
        return _end(EndKind.WITHDRAWN, f"{withdrawn}, so no pod is placed there")
    if node and (not_ready_s(node, now) or 0) > DEAD_AFTER_S:
        return _end(EndKind.NODE_LOST, f"node {node['metadata']['name']} stopped answering ({not_ready(node)})")
    return None


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
        yield (
            EndKind.NODE_LOST,
            f"{moment.why}, and the pod should have been gone by {moment.at:%Y-%m-%d %H:%M:%S} UTC, but {name} did not "
            f"end it ({name} {state}): a process that cannot be killed, as of a hung GPU, keeps a pod",
        )


def _disruptions(pod: Object) -> Iterator[Cause]:
    status, target = pod.get("status") or {}, condition_of(pod, "DisruptionTarget")
    reason, message = str(status.get("reason", "")), status.get("message") or status.get("reason") or ""
    if reason == "DeadlineExceeded":
        yield EndKind.DEADLINE, "the cluster ended the pod at its deadline: the program hung, or never ran"
    if reason == "Preempting":
        yield EndKind.PREEMPTED, f"other work took the node: {message}"
    if reason in EVICTIONS or reason.startswith("OutOf"):
        yield EndKind.EVICTED, f"the node could not keep the pod: {message}"
    if target.get("status") == "True":
        said = target.get("message") or target.get("reason")
        if target.get("reason") in PREEMPTIONS:
            yield EndKind.PREEMPTED, f"other work took the node: {said}"
        yield EndKind.EVICTED, f"the pod had to leave its node: {said}"


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


def _exits(pod: Object, base: str) -> Iterator[Cause]:
    status, ended = pod.get("status") or {}, state_of(pod, base).get("terminated")
    if ended is None:
        if status.get("phase") == "Failed":
            message = status.get("message") or status.get("reason") or "no reason given"
            yield EndKind.EVICTED, f"the pod failed before its container ran: {message}"
        return
    code = ended.get("exitCode")
    if ended.get("reason") == "OOMKilled":
        advice = "raise the pod's memory (TRAINBENCH_MEMORY_GIB), or choose less work"
        yield EndKind.OUT_OF_MEMORY, f"the kernel killed the program for the host's memory: {advice}"
    if code == SIGKILL_CODE:
        why = "the program was killed (exit code 137) and left no result: the node's log says why"
        yield EndKind.NO_RESULT, why
    message = ended.get("message") or "the pod's log may say why"
    yield EndKind.NO_RESULT, f"the program ended with exit code {code} and left no result: {message}"


def _pending(
    pod: Object, said: str, events: Sequence[tuple[str, str]], node: Object | None, withdrawn: str | None
) -> Iterator[Cause]:
    """Busy only where other work holds what the pod needs: a pod that the empty node could not take is an error."""
    placed = condition_of(pod, "PodScheduled")
    if placed.get("status") == "True":
        why = [message for reason, message in events if reason in START_FAILURES][-1:]
        yield EndKind.NOT_STARTED, f"the container did not start in time: {'; '.join([*why, said])}"
    if withdrawn:
        yield EndKind.WITHDRAWN, f"{withdrawn}, so no pod is placed there"
    reason = placed.get("message") or said
    is_gated = placed.get("reason") == "SchedulingGated"
    if not is_gated and "Insufficient" not in reason:
        yield EndKind.UNSCHEDULABLE, f"no node may take the pod: {reason}"
    if not is_gated and node and (short := never_fits(pod, node)):
        where = f"node {node['metadata']['name']} even when it is empty"
        yield EndKind.UNSCHEDULABLE, f"the pod does not fit {where}: {short}: {MAKE_IT_FIT}"
    # GPUs and adapters, which other work may hold.
    limits = [
        (each.get("resources") or {}).get("limits") or {} for each in (pod.get("spec") or {}).get("containers", ())
    ]
    has_devices = any("/" in name and f"Insufficient {name}" in reason for of_one in limits for name in of_one)
    if is_gated or node or has_devices:
        yield EndKind.BUSY, f"no room on the node within the waiting time: {reason}"
    unread = "the node lacks what the pod requests, and could not be read to see whether it would fit when empty"
    yield EndKind.UNSCHEDULABLE, f"{unread}: {reason}"


def _end(kind: EndKind, message: str) -> PodEnd:
    return PodEnd(kind=kind, message=" ".join(message.split())[:2000])
