"""Pod ends: the last state that the API server shows becomes one cause, whatever the operator's last words were."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from bench_image.contract.result import Status
from tests.kube.after_fault import HEALTHY, SICK, after_night, is_green, night_with
from trainbench.pods.pod_end import EndKind, pod_end

WORDS = "Pod tb-1 returned a failure."  # what the provider's operator says in most of these cases


def container(name: str = "base", **state: Any) -> dict[str, Any]:
    return {"name": name, "image": "registry.example/bench:1", "state": state}


def pending(reason: str, message: str) -> dict[str, Any]:
    condition = {"type": "PodScheduled", "status": "False", "reason": reason, "message": message}
    spec = {"containers": [{"name": "base", "resources": {"limits": {"nvidia.com/gpu": "1", "amd.com/gpu": "1"}}}]}
    return {"spec": spec, "status": {"phase": "Pending", "conditions": [condition]}}


def waiting(reason: str, message: str, name: str = "base") -> dict[str, Any]:
    placed = {"type": "PodScheduled", "status": "True"}
    state = container(name, waiting={"reason": reason, "message": message})
    return {"status": {"phase": "Pending", "conditions": [placed], "containerStatuses": [state]}}


def ended(exit_code: int, reason: str = "Error", message: str | None = None) -> dict[str, Any]:
    state = container(terminated={"exitCode": exit_code, "reason": reason, "message": message})
    return {"status": {"phase": "Running", "containerStatuses": [state]}}


NO_GPU = "0/4 nodes are available: 1 Insufficient nvidia.com/gpu, 3 node(s) didn't match Pod's node affinity/selector."
CORDONED = "0/4 nodes are available: 1 node(s) were unschedulable, 3 node(s) didn't match Pod's node affinity/selector."
QUOTA = "exceeded quota: fence, requested: pods=1, used: pods=20, limited: pods=20"
DISRUPTED = {
    "status": {
        "phase": "Running",
        "conditions": [
            {
                "type": "DisruptionTarget",
                "status": "True",
                "reason": "PreemptionByScheduler",
                "message": "default-scheduler: preempting to accommodate a higher priority pod",
            }
        ],
    }
}
CASES: dict[str, tuple[dict[str, Any] | None, int | None, EndKind, str]] = {
    "busy": (pending("Unschedulable", NO_GPU), None, EndKind.BUSY, "no room on the node within the waiting time: 0/4"),
    "gated": (pending("SchedulingGated", "waits for its gate"), None, EndKind.BUSY, "no room"),
    "cordoned": (pending("Unschedulable", CORDONED), None, EndKind.UNSCHEDULABLE, "no node may take the pod: 0/4"),
    "preempted": (DISRUPTED, None, EndKind.PREEMPTED, "other work took the node: default-scheduler"),
    "evicted": (
        {"status": {"phase": "Failed", "reason": "Evicted", "message": "The node was low on resource: memory."}},
        None,
        EndKind.EVICTED,
        "the node could not keep the pod: The node was low on resource: memory.",
    ),
    "node says no": (
        {"status": {"phase": "Failed", "reason": "OutOfnvidia.com/gpu", "message": "Node didn't have enough"}},
        None,
        EndKind.EVICTED,
        "Node didn't have enough",
    ),
    "never ran": ({"status": {"phase": "Failed"}}, None, EndKind.EVICTED, "failed before its container ran"),
    "deadline": ({"status": {"phase": "Failed", "reason": "DeadlineExceeded"}}, None, EndKind.DEADLINE, "its deadline"),
    "no image": (
        waiting("ImagePullBackOff", "manifest unknown"),
        None,
        EndKind.NO_IMAGE,
        "the image 'registry.example/bench:1' of container 'base' cannot be pulled: manifest unknown",
    ),
    "no image of another": (
        waiting("ErrImagePull", "no route", "another"),
        None,
        EndKind.NO_IMAGE,
        "of container 'another'",
    ),
    "not created": (
        waiting("CreateContainerConfigError", "secret not found"),
        None,
        EndKind.NOT_STARTED,
        "container 'base' did not start: secret not found",
    ),
    "stuck": (waiting("ContainerCreating", ""), None, EndKind.NOT_STARTED, "the container did not start in time"),
    "host memory": (ended(137, "OOMKilled"), None, EndKind.OUT_OF_MEMORY, "the host's memory"),
    "killed": (ended(137), None, EndKind.NO_RESULT, "was killed (exit code 137)"),
    "failed": (
        ended(2, message="unknown model"),
        None,
        EndKind.NO_RESULT,
        "exit code 2 and left no result: unknown model",
    ),
    "silent": (ended(0, "Completed"), None, EndKind.NO_RESULT, "exit code 0 and left no result"),
    "gone": (None, None, EndKind.VANISHED, "deleted before its result could be read"),
    "not found": (None, 404, EndKind.VANISHED, "deleted before its result could be read"),
    "quota": (
        None,
        403,
        EndKind.QUOTA,
        "the namespace's quota refused the pod, the node is not at fault: exceeded quota: fence",
    ),
    "token expired": (None, 401, EndKind.UNAUTHORIZED, "does not accept our token (401: "),
    "forbidden": (None, 403, EndKind.REFUSED, "`trainbench doctor` names the missing right"),
    "invalid": (None, 422, EndKind.REFUSED, "did not take the pod"),
    "no answer": (None, 503, EndKind.API, "the Kubernetes API failed with 503"),
    "still running": ({"status": {"phase": "Running"}}, None, EndKind.API, "in phase Running, but its task gave up"),
}


@pytest.mark.parametrize("case", CASES)
def test_the_cause_is_read_from_the_pod_s_state(case: str) -> None:
    pod, http_status, kind, message = CASES[case]
    end = pod_end(pod, "base", QUOTA if case == "quota" else WORDS, http_status)

    assert end.kind is kind
    assert message in end.message


@pytest.mark.parametrize(
    ("message", "sentence"),
    [
        ('pods "tb-1" is forbidden: pod rejected: RuntimeClass "nvidia" not found', "the node is not at fault"),
        ('admission webhook "policy.example.org" denied the request: no owner', "the node is not at fault"),
        ('pods "tb-1" is forbidden: User "ci" cannot create resource "pods" in API group ""', "the missing right"),
        ('pods is forbidden: User "ci" cannot create resource "pods" in API group ""', "the missing right"),
    ],
)
def test_a_policy_of_the_cluster_is_no_missing_right(message: str, sentence: str) -> None:
    end = pod_end(None, "base", message, 403)

    assert end.kind is EndKind.REFUSED
    assert message in end.message
    assert sentence in end.message


def test_only_what_a_new_pod_may_cure_is_infrastructure() -> None:
    cured = {case for case, (pod, code, _, _) in CASES.items() if pod_end(pod, "base", "", code).is_infrastructure}

    assert cured == {
        "preempted", "evicted", "node says no", "never ran", "gone", "not found", "no answer", "still running",
        "token expired",
    }  # fmt: skip


def test_a_deadline_is_a_timeout() -> None:
    assert pod_end({"status": {"reason": "DeadlineExceeded"}}, "base", "").status is Status.TIMEOUT
    assert pod_end(None, "base", "").status is Status.INCOMPLETE


NO_CPU = "0/2 nodes are available: 1 Insufficient cpu, 1 node(s) didn't match Pod's node affinity/selector."


def two_cpu_node(**spec: Any) -> dict[str, Any]:
    return {
        "metadata": {"name": "node-1"},
        "spec": spec,
        "status": {
            "allocatable": {"cpu": "2", "nvidia.com/gpu": "1"},
            "conditions": [{"type": "Ready", "status": "True"}],
        },
    }


def requesting(cpu: str) -> dict[str, Any]:
    containers = [{"name": "base", "resources": {"requests": {"cpu": cpu}}}]
    return pending("Unschedulable", NO_CPU) | {"spec": {"containers": containers}}


def test_a_pod_that_never_fits_its_node_is_an_error_and_not_busy() -> None:
    """On the real cluster: 2.1 CPUs by the LimitRange, on nodes of 2: skipped every night, green."""
    end = pod_end(requesting("2100m"), "base", WORDS, node=two_cpu_node())

    assert end.kind is EndKind.UNSCHEDULABLE
    assert "does not fit node node-1 even when it is empty: cpu: requested 2.1, allocatable 2" in end.message


def test_a_pod_that_fits_the_empty_node_is_busy_whatever_is_taken() -> None:
    assert pod_end(requesting("2"), "base", WORDS, node=two_cpu_node()).kind is EndKind.BUSY


def test_without_a_look_at_the_node_only_missing_gpus_are_busy() -> None:
    assert pod_end(requesting("2"), "base", WORDS).kind is EndKind.UNSCHEDULABLE
    for resource in ("nvidia.com/gpu", "amd.com/gpu"):
        busy = pending("Unschedulable", NO_GPU.replace("nvidia.com/gpu", resource))
        assert pod_end(busy, "base", WORDS).kind is EndKind.BUSY


def test_a_drained_node_s_pod_did_not_vanish() -> None:
    end = pod_end(None, "base", WORDS, 404, node=two_cpu_node(unschedulable=True))

    assert end.kind is EndKind.WITHDRAWN
    assert "node node-1 is cordoned" in end.message
    assert not end.is_infrastructure, "a new pod would wait for a place on the cordoned node"
    assert pod_end(None, "base", WORDS, 404, node=two_cpu_node()).kind is EndKind.VANISHED


def test_an_image_that_cannot_be_pulled_is_named_by_our_container_not_by_another() -> None:
    """The API sorts container statuses by name: another container may come before base."""
    image = waiting("ImagePullBackOff", "manifest unknown")
    image["status"]["containerStatuses"].insert(
        0, container("another", waiting={"reason": "ImagePullBackOff", "message": "manifest unknown"})
    )
    assert "of container 'base'" in pod_end(image, "base", WORDS).message


NOW = datetime(2026, 11, 22, 3, 0, tzinfo=UTC)


def silent_node() -> dict[str, Any]:
    ready = {
        "type": "Ready",
        "status": "Unknown",
        "reason": "NodeStatusUnknown",
        "message": "Kubelet stopped posting node status.",
        "lastTransitionTime": "2026-11-22T02:13:00Z",
    }
    return {"metadata": {"name": "gpu-3"}, "status": {"conditions": [ready]}}


def ready_node() -> dict[str, Any]:
    return {"metadata": {"name": "gpu-3"}, "status": {"conditions": [{"type": "Ready", "status": "True"}]}}


def running_pod(**metadata: str) -> dict[str, Any]:
    status = {"phase": "Running", "containerStatuses": [container(running={})], "conditions": []}
    return {"metadata": metadata, "spec": {"nodeName": "gpu-3"}, "status": status}


def test_a_dead_node_is_the_cause_and_not_the_eviction_that_follows_from_it() -> None:
    """Its pod stays Running, with the taint manager's DisruptionTarget: an eviction would be retried, on that node."""
    evicted = {"type": "DisruptionTarget", "status": "True", "reason": "DeletionByTaintManager", "message": "taint"}
    pod = running_pod(deletionTimestamp="2026-11-22T02:18:20Z")
    pod["status"]["conditions"] = [evicted]
    end = pod_end(pod, "base", WORDS, node=silent_node(), now=NOW)

    assert (end.kind, end.is_infrastructure, end.status) == (EndKind.NODE_LOST, False, Status.INCOMPLETE)
    assert end.message == (
        "node gpu-3 stopped answering (not ready since 2026-11-22T02:13:00Z: Kubelet stopped posting node status.)"
    )


def test_a_ready_node_that_does_not_end_a_pod_is_named_with_the_moment() -> None:
    """Terminating for 41 min 40 s: a process in uninterruptible sleep, as after a GPU has hung."""
    end = pod_end(running_pod(deletionTimestamp="2026-11-22T02:18:20Z"), "base", "", node=ready_node(), now=NOW)

    assert end.kind is EndKind.NODE_LOST
    assert end.message.startswith(
        "its deletion was requested, and the pod should have been gone by 2026-11-22 02:18:20 UTC, but gpu-3 did not "
        "end it (gpu-3 is ready)"
    )
    night = night_with(None, end=end)
    after_night("node-keeps-pod", planned=[*HEALTHY, SICK], campaign=night, is_green=is_green(night))


def test_a_pod_on_its_way_out_of_a_ready_node_is_not_called_lost() -> None:
    leaving = running_pod(deletionTimestamp="2026-11-22T02:59:50Z")
    assert pod_end(leaving, "base", "", node=ready_node(), now=NOW).kind is EndKind.API


def test_an_end_that_the_node_reported_before_it_died_keeps_its_cause() -> None:
    assert pod_end(ended(3), "base", WORDS, node=silent_node(), now=NOW).kind is EndKind.NO_RESULT


def test_a_result_that_lies_on_a_dead_node_is_lost_with_the_node() -> None:
    """The program ended well; reading its result answers 500."""
    assert pod_end(ended(0), "base", "no route to host", 500, node=silent_node()).kind is EndKind.NODE_LOST


def test_a_pod_that_waits_for_a_dead_node_names_the_node_and_not_its_taint() -> None:
    taint = "0/1 nodes are available: 1 node(s) had untolerated taint {node.kubernetes.io/unreachable: }."
    assert pod_end(pending("Unschedulable", taint), "base", WORDS, node=silent_node()).kind is EndKind.NODE_LOST


def test_a_pod_that_waits_for_a_cordoned_node_names_the_cordon_and_not_labels_and_taints() -> None:
    waits = pod_end(pending("Unschedulable", CORDONED), "base", WORDS, node=two_cpu_node(unschedulable=True))

    assert waits.kind is EndKind.WITHDRAWN
    assert waits.message == ("node node-1 is cordoned (`kubectl drain` or `kubectl cordon`), so no pod is placed there")


def test_an_eviction_from_a_cordoned_node_is_a_drain_with_the_api_server_s_words() -> None:
    status = {"phase": "Failed", "reason": "Evicted", "message": "eviction by the API"}
    end = pod_end({"status": status}, "base", WORDS, node=two_cpu_node(unschedulable=True))

    assert end.kind is EndKind.WITHDRAWN
    assert end.message.endswith("the node could not keep the pod: eviction by the API")
