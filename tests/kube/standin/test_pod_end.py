"""How a pod ends: grace period, deadline, missing image, injected ends."""

from __future__ import annotations

from typing import Any

import pytest
from kubernetes import watch  # type: ignore[import-untyped]
from kubernetes.client import ApiException

from tests.kube.shell_pods import container, pod
from tests.kube.standin.seen import NS, has_phase, state, wait_for_log, waits_for
from tests.standin import StandinCluster

pytestmark = pytest.mark.slow


def test_a_program_without_a_handler_keeps_its_grace_period(cluster: StandinCluster, api: Any) -> None:
    """Process 1 of a container is not ended by a signal that it does not handle."""
    cluster.add_node("gpu-0")
    api.create_namespaced_pod(NS, pod("deaf", "sleep 100", terminationGracePeriodSeconds=2))
    script = "trap 'exit 0' TERM; echo ready; while :; do sleep 0.1; done"
    api.create_namespaced_pod(NS, pod("polite", script, terminationGracePeriodSeconds=600))
    cluster.wait_for_pods(has_phase("Running"))
    wait_for_log(api, "polite", "base", b"ready")
    ends: dict[str, Any] = {}
    for event in _deletions(api, cluster, ("deaf", "polite")):
        ends[event["metadata"]["name"]] = state(event)["terminated"]["exitCode"]

    assert ends == {"polite": 0, "deaf": 137}
    assert cluster.pods() == []


def _deletions(api: Any, cluster: StandinCluster, names: tuple[str, ...]) -> list[Any]:
    """Deletes the pods, and hands back their last states in the order in which they went."""
    version = api.list_namespaced_pod(NS).metadata.resource_version
    gone: list[Any] = []
    for name in names:
        api.delete_namespaced_pod(name, NS)
    for event in watch.Watch().stream(api.list_namespaced_pod, NS, resource_version=version, timeout_seconds=600):
        if event["type"] == "DELETED":
            gone.append(event["raw_object"])
        if len(gone) == len(names):
            break
    return gone


def test_a_missing_image_keeps_the_whole_pod_pending(cluster: StandinCluster, api: Any) -> None:
    """Also after the other container has ended: a pod is Pending until each of its containers has started once."""
    cluster.add_node("gpu-0")
    api.create_namespaced_pod(NS, pod("p", containers=[container("true"), container("true", "side", "no/such:1")]))

    (waits,) = cluster.wait_for_pods(lambda pods: waits_for(pods[0], 1) == "ImagePullBackOff")
    assert "terminated" in state(waits)
    assert waits["status"]["phase"] == "Pending"
    with pytest.raises(ApiException, match="waiting to start: trying and failing to pull image"):
        api.read_namespaced_pod_log("p", NS, container="side")
