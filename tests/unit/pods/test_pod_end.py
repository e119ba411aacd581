"""Pod ends: the last state that the API server shows becomes one cause, whatever the operator's last words were."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any, NamedTuple

import pytest

from bench_image.contract.result import Status
from tests.builders import make_spec
from tests.kube.after_fault import HEALTHY, SICK, after_night, is_green, night_with
from trainbench.pods.manifests import PodSettings, manifest
from trainbench.pods.pod_end import INFRASTRUCTURE, EndKind, PodEnd, pod_end

WORDS = "Pod tb-1 returned a failure."  # what the provider's operator says in most of these cases
NOW = datetime(2026, 11, 22, 3, 0, tzinfo=UTC)


PINNED = {"affinity": manifest(make_spec(node="node-1"), PodSettings())["spec"]["affinity"]}


def container(name: str = "base", **state: Any) -> dict[str, Any]:
    return {"name": name, "image": "registry.example/bench:1", "state": state}


def pending(reason: str, message: str, cpu: str | None = None) -> dict[str, Any]:
    """`cpu`: requested; None: the pod has limits of GPUs only."""
    condition = {"type": "PodScheduled", "status": "False", "reason": reason, "message": message}
    gpus = {"limits": {"nvidia.com/gpu": "1", "amd.com/gpu": "1"}}
    resources = {"requests": {"cpu": cpu}} if cpu else gpus
    spec = {"containers": [{"name": "base", "resources": resources}]}
    return {"metadata": {}, "spec": spec | PINNED, "status": {"phase": "Pending", "conditions": [condition]}}


def waiting(reason: str, message: str, *names: str) -> dict[str, Any]:
    placed = {"type": "PodScheduled", "status": "True"}
    states = [container(name, waiting={"reason": reason, "message": message}) for name in names or ("base",)]
    return {"status": {"phase": "Pending", "conditions": [placed], "containerStatuses": states}}


def ended(exit_code: int, reason: str = "Error", message: str | None = None) -> dict[str, Any]:
    state = container(terminated={"exitCode": exit_code, "reason": reason, "message": message})
    return {"status": {"phase": "Running", "containerStatuses": [state]}}


def failed(reason: str, message: str = "") -> dict[str, Any]:
    return {"status": {"phase": "Failed", "reason": reason, "message": message}}


def running(deletion_at: str, *conditions: dict[str, str]) -> dict[str, Any]:
    """On its way out."""
    status = {"phase": "Running", "containerStatuses": [container(running={})], "conditions": list(conditions)}
    return {"metadata": {"deletionTimestamp": deletion_at}, "spec": {"nodeName": "node-1"}, "status": status}


def disrupted(reason: str, message: str) -> dict[str, str]:
    return {"type": "DisruptionTarget", "status": "True", "reason": reason, "message": message}


def event(reason: str, message: str) -> dict[str, str]:
    return {"reason": reason, "message": message}


def node(ready: str = "True", **spec: Any) -> dict[str, Any]:
    """Of two CPUs. `ready` "Unknown": its kubelet is silent."""
    condition = {"type": "Ready", "status": ready}
    if ready != "True":
        condition |= {"message": "Kubelet stopped posting node status.", "lastTransitionTime": "2026-11-22T02:13:00Z"}
    status = {"allocatable": {"cpu": "2", "nvidia.com/gpu": "1"}, "conditions": [condition]}
    return {"metadata": {"name": "node-1"}, "spec": spec, "status": status}


NO_GPU = "0/4 nodes are available: 1 Insufficient nvidia.com/gpu, 3 node(s) didn't match Pod's node affinity/selector."
NO_CPU = "0/2 nodes are available: 1 Insufficient cpu, 1 node(s) didn't match Pod's node affinity/selector."
CORDONED = "0/4 nodes are available: 1 node(s) were unschedulable, 3 node(s) didn't match Pod's node affinity/selector."
DEAD = "0/1 nodes are available: 1 node(s) had untolerated taint {node.kubernetes.io/unreachable: }."
UNBOUND = "0/2 nodes are available: pod has unbound immediate PersistentVolumeClaims."
QUOTA = "exceeded quota: fence, requested: pods=1, used: pods=20, limited: pods=20"
PREEMPTED = disrupted("PreemptionByScheduler", "default-scheduler: preempting to accommodate a higher priority pod")
READY, SILENT, SHUT = node(), node("Unknown"), node(unschedulable=True)
STOPPED = "node node-1 stopped answering (not ready since 2026-11-22T02:13:00Z: Kubelet stopped posting node status.)"
ALONE_CORDONED = "node node-1 is cordoned (`kubectl drain` or `kubectl cordon`), so no pod is placed there"


class Case(NamedTuple):
    """`kind` and `says` of the end of `pod`, which is None where it is gone; `status` and `words`: the API's answer."""

    pod: dict[str, Any] | None
    kind: EndKind
    says: str
    status: int | None = None
    node: dict[str, Any] | None = None
    words: str = WORDS
    events: tuple[dict[str, str], ...] = ()

    @property
    def end(self) -> PodEnd:
        return pod_end(self.pod, "base", self.words, self.status, self.events, self.node, NOW)


CASES = {
    "busy": Case(pending("Unschedulable", NO_GPU), EndKind.BUSY, "no room on the node within the waiting time: 0/4"),
    "busy amd": Case(pending("Unschedulable", NO_GPU.replace("nvidia", "amd")), EndKind.BUSY, "no room"),
    "gated": Case(pending("SchedulingGated", "waits for its gate"), EndKind.BUSY, "no room"),
    "no node": Case(pending("Unschedulable", CORDONED), EndKind.UNSCHEDULABLE, "no node may take the pod: 0/4"),
    # On the real cluster: 2.1 CPUs by the LimitRange, on nodes of 2: skipped every night, green.
    "never fits": Case(
        pending("Unschedulable", NO_CPU, "2100m"), EndKind.UNSCHEDULABLE,
        "does not fit node node-1 even when it is empty: cpu: requested 2.1, allocatable 2", node=READY,
    ),
    "fits the empty node": Case(pending("Unschedulable", NO_CPU, "2"), EndKind.BUSY, "no room", node=READY),
    "no such node": Case(pending("Unschedulable", NO_CPU), EndKind.NO_NODE, "no node 'node-1': is the name", node={}),
    "preempted": Case(
        {"status": {"phase": "Running", "conditions": [PREEMPTED]}}, EndKind.PREEMPTED,
        "other work took the node: default-scheduler",
    ),
    "evicted": Case(
        failed("Evicted", "The node was low on resource: memory."), EndKind.EVICTED,
        "the node could not keep the pod: The node was low on resource: memory.",
    ),
    "node says no": Case(failed("OutOfnvidia.com/gpu", "Node didn't have enough"), EndKind.EVICTED, "have enough"),
    "never ran": Case({"status": {"phase": "Failed"}}, EndKind.EVICTED, "failed before its container ran"),
    "deadline": Case(failed("DeadlineExceeded"), EndKind.DEADLINE, "its deadline"),
    "no image": Case(
        waiting("ImagePullBackOff", "manifest unknown"), EndKind.NO_IMAGE,
        "the image 'registry.example/bench:1' of container 'base' cannot be pulled: manifest unknown",
    ),
    "no image of another": Case(waiting("ErrImagePull", "no route", "another"), EndKind.NO_IMAGE, "of container 'ano"),
    # The API sorts container statuses by name.
    "no image of both": Case(waiting("ErrImagePull", "", "another", "base"), EndKind.NO_IMAGE, "of container 'base'"),
    "not created": Case(
        waiting("CreateContainerConfigError", "secret not found"), EndKind.NOT_STARTED,
        "container 'base' did not start: secret not found",
    ),
    "stuck": Case(
        waiting("ContainerCreating", ""), EndKind.NOT_STARTED,
        "the container did not start in time: MountVolume.SetUp failed; Pod tb-1",
        events=(event("Scheduled", "Successfully assigned"), event("FailedMount", "MountVolume.SetUp failed")),
    ),
    "claim not bound": Case(
        pending("Unschedulable", UNBOUND), EndKind.UNSCHEDULABLE, f"no node may take the pod: {UNBOUND}"
    ),
    "host memory": Case(ended(137, "OOMKilled"), EndKind.OUT_OF_MEMORY, "the host's memory"),
    "killed": Case(ended(137), EndKind.NO_RESULT, "exit code 137 and left no result: it was killed"),
    "failed": Case(
        ended(2, message="unknown model"), EndKind.NO_RESULT, "exit code 2 and left no result: unknown model"
    ),
    "silent": Case(ended(0, "Completed"), EndKind.NO_RESULT, "exit code 0 and left no result"),
    "gone": Case(None, EndKind.VANISHED, "deleted before its result could be read"),
    "gone from a node": Case(None, EndKind.VANISHED, "deleted before its result could be read", node=READY),
    "evicted and gone": Case(
        None, EndKind.EVICTED, "the node could not keep the pod: low on memory", node=READY,
        events=(event("Killing", ""), event("Evicted", "low on memory")),
    ),
    "preempted and gone": Case(
        None, EndKind.PREEMPTED, "other work took the node: Preempted", events=(event("Preempted", ""),)
    ),
    "quota": Case(
        None, EndKind.QUOTA, "the namespace's quota refused the pod, the node is not at fault: exceeded quota: fence",
        403, words=QUOTA,
    ),
    "token expired": Case(None, EndKind.UNAUTHORIZED, "does not accept our token (401: ", 401),
    "forbidden": Case(None, EndKind.REFUSED, f"({WORDS}): `trainbench doctor` names the missing right", 403),
    "invalid": Case(None, EndKind.REFUSED, "or what the cluster does not take", 422),
    "no namespace": Case(None, EndKind.REFUSED, "the node is not at fault", 404),
    "no answer": Case(None, EndKind.API, "no answer (503)", 503),
    "still running": Case({"status": {"phase": "Running"}}, EndKind.API, "in phase Running, but its task gave up"),
    # Its pod stays Running, with the taint manager's words: an eviction would be retried, on that node.
    "dead node": Case(
        running("2026-11-22T02:18:20Z", disrupted("DeletionByTaintManager", "taint")), EndKind.NODE_LOST, STOPPED,
        node=SILENT,
    ),
    # Terminating for 41 min 40 s: a process in uninterruptible sleep, as after a GPU has hung.
    "kept by its node": Case(
        running("2026-11-22T02:18:20Z"), EndKind.NODE_LOST,
        "its deletion was requested, and the pod should have been gone by 2026-11-22 02:18:20 UTC, but node-1 did not "
        "end it (node-1 is ready)", node=READY,
    ),
    "on its way out": Case(running("2026-11-22T02:59:50Z"), EndKind.API, "phase Running", node=READY),
    "ended before its node died": Case(ended(3), EndKind.NO_RESULT, "exit code 3", node=SILENT),
    "result on a dead node": Case(ended(0), EndKind.NODE_LOST, STOPPED, 500, SILENT, "no route to host"),
    "waits for a dead node": Case(pending("Unschedulable", DEAD), EndKind.NODE_LOST, STOPPED, node=SILENT),
    "drained": Case(None, EndKind.WITHDRAWN, "node node-1 is cordoned", node=SHUT),
    "removed": Case(None, EndKind.WITHDRAWN, "its node is no longer in the cluster, and the pod had to", node={}),
    "cordoned": Case(pending("Unschedulable", CORDONED), EndKind.WITHDRAWN, ALONE_CORDONED, node=SHUT),
    "evicted by a drain": Case(
        failed("Evicted", "eviction by the API"), EndKind.WITHDRAWN,
        "the node could not keep the pod: eviction by the API", node=SHUT,
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_the_cause_is_read_from_the_pod_s_state(case: Case) -> None:
    assert case.end.kind is case.kind
    assert case.says in case.end.message


def test_only_what_a_new_pod_may_cure_is_infrastructure_and_a_deadline_is_a_timeout() -> None:
    cured = {name for name, case in CASES.items() if case.end.kind in INFRASTRUCTURE}
    timed_out = {name for name, case in CASES.items() if case.end.status is Status.TIMEOUT}

    assert cured == {
        "preempted", "evicted", "node says no", "never ran", "gone", "gone from a node", "evicted and gone",
        "preempted and gone", "no answer", "still running", "token expired", "on its way out",
    }  # fmt: skip
    assert timed_out == {"deadline"}


def test_a_pod_that_its_ready_node_keeps_is_one_red_node_of_its_night() -> None:
    night = night_with(None, end=CASES["kept by its node"].end)
    after_night("node-keeps-pod", planned=[*HEALTHY, SICK], campaign=night, is_green=is_green(night))
