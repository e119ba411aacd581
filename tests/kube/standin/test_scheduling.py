"""Which node a pod goes to, and what takes it away from there."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from kubernetes import watch  # type: ignore[import-untyped]

from tests.kube.shell_pods import pod
from tests.kube.standin.seen import NS, condition, has_phase
from tests.standin import StandinCluster

pytestmark = pytest.mark.slow


def test_the_scheduler_says_why_a_pod_waits(cluster: StandinCluster, api: Any) -> None:
    for index in range(3):
        cluster.add_node(f"gpu-{index}")
    cluster.add_node("gpu-3", taints=[{"key": "dedicated", "value": "ci", "effect": "NoSchedule"}])
    cluster.add_node("gpu-4", unschedulable=True)
    api.create_namespaced_pod(NS, pod("holder", "exec sleep 100", 1, nodeSelector={"kubernetes.io/hostname": "gpu-0"}))
    cluster.wait_for_pods(has_phase("Running"))
    waits = pod("waits", "true", 1, nodeSelector={"kubernetes.io/hostname": "gpu-0"}, priorityClassName="production")
    api.create_namespaced_pod("default", waits)

    cluster.wait_for_pods(lambda pods: any(condition(p, "PodScheduled").get("status") == "False" for p in pods))
    (event,) = api.list_namespaced_event(
        "default", field_selector="involvedObject.name=waits,reason=FailedScheduling"
    ).items
    assert event.message == (
        "0/5 nodes are available: 1 Insufficient nvidia.com/gpu, 1 node(s) had untolerated taint {dedicated: ci}, "
        "1 node(s) were unschedulable, 2 node(s) didn't match Pod's node affinity/selector. preemption: 0/5 nodes are "
        "available: 1 No preemption victims found for incoming pod, 4 Preemption is not helpful for scheduling."
    )
    assert api.read_namespaced_pod_log("waits", "default", _preload_content=False).data == b""


def last_state(api: Any, name: str, act: Callable[[], None]) -> dict[str, Any]:
    """Of a pod that `act` makes go."""
    version = api.list_namespaced_pod(NS).metadata.resource_version
    act()
    stream_of = watch.Watch().stream(api.list_namespaced_pod, NS, resource_version=version, timeout_seconds=600)
    return next(
        dict(event["raw_object"])
        for event in stream_of
        if event["type"] == "DELETED" and event["raw_object"]["metadata"]["name"] == name
    )


def test_an_eviction_by_the_api_says_so_in_the_pod_and_leaves_no_event(cluster: StandinCluster, api: Any) -> None:
    """Audit K9: what `kubectl drain` does."""
    cluster.add_node("gpu-0")
    api.create_namespaced_pod(NS, pod("p", "exec sleep 100", terminationGracePeriodSeconds=1))
    cluster.wait_for_pods(has_phase("Running"))
    eviction = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "p"}}

    last = last_state(api, "p", lambda: api.create_namespaced_pod_eviction("p", NS, eviction))
    assert condition(last, "DisruptionTarget")["reason"] == "EvictionByEvictionAPI"
    assert "Evicted" not in {event.reason for event in api.list_namespaced_event(NS).items}
