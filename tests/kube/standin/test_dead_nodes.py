"""Pods of a node that is lost or dead."""

from __future__ import annotations

import os
import time
from typing import Any

import pytest
from kubernetes.client import ApiException
from urllib3.exceptions import HTTPError

from tests.kube.shell_pods import pod
from tests.kube.standin.seen import NS, condition, has_phase, processes, state
from tests.standin import StandinCluster

pytestmark = pytest.mark.slow
ENDLESS = f"4321.{os.getpid()}"  # seconds, by which its processes are known


def test_a_lost_node_takes_its_pods_with_it(cluster: StandinCluster, api: Any) -> None:
    cluster.add_node("gpu-0")
    api.create_namespaced_pod(NS, pod("p", "exec sleep 100", terminationGracePeriodSeconds=1))
    cluster.wait_for_pods(has_phase("Running"))
    cluster.add_node("gpu-0", ready=False, evict_after_s=0.1)

    cluster.wait_for_pods(lambda pods: not pods)
    (node,) = api.list_node().items
    assert next(c.status for c in node.status.conditions if c.type == "Ready") == "False"


@pytest.fixture
def on_dead_node(cluster: StandinCluster, api: Any) -> dict[str, Any]:
    """A pod whose machine is gone, once the taint manager wants it away; its deadline is over by then."""
    cluster.add_node("gpu-0")
    cluster.fault(action="lose_node", moment="running", deadline_s=1)
    manifest = pod("p", f"echo one; exec sleep {ENDLESS}", terminationGracePeriodSeconds=1, activeDeadlineSeconds=600)
    api.create_namespaced_pod(NS, manifest)
    (seen,) = cluster.wait_for_pods(lambda pods: "deletionTimestamp" in pods[0]["metadata"])
    return dict(seen)


def test_a_dead_node_s_pod_is_to_be_deleted_and_stays_as_it_was(
    on_dead_node: dict[str, Any], cluster: StandinCluster, api: Any
) -> None:
    (node,) = api.list_node().items
    ready = next(c for c in node.status.conditions if c.type == "Ready")
    assert (ready.status, ready.reason) == ("Unknown", "NodeStatusUnknown")
    taints = {(taint.key, taint.effect) for taint in node.spec.taints}
    assert taints == {("node.kubernetes.io/unreachable", effect) for effect in ("NoSchedule", "NoExecute")}
    assert on_dead_node["metadata"]["deletionGracePeriodSeconds"] == 1
    api.delete_namespaced_pod("p", NS)
    time.sleep(1.5)  # the grace period is over

    (seen,) = cluster.pods()
    assert seen["status"]["phase"] == "Running"
    assert "running" in state(seen)
    assert condition(seen, "Ready")["status"] == "False"
    assert condition(seen, "DisruptionTarget")["reason"] == "DeletionByTaintManager"
    assert {event.reason for event in api.list_namespaced_event(NS).items} >= {"NodeNotReady", "TaintManagerEviction"}


def test_nobody_can_look_into_a_dead_node_s_pod(on_dead_node: dict[str, Any], api: Any) -> None:
    with pytest.raises(ApiException, match=r"10250/containerLogs/trainbench/p/base.*no route to host") as log:
        api.read_namespaced_pod_log("p", NS, container="base")
    assert log.value.status == 500


def test_a_followed_log_breaks_when_the_node_dies(cluster: StandinCluster, api: Any) -> None:
    cluster.add_node("gpu-0")
    api.create_namespaced_pod(NS, pod("p", "echo one; exec sleep 100"))
    cluster.wait_for_pods(has_phase("Running"))
    followed = api.read_namespaced_pod_log("p", NS, follow=True, _preload_content=False).stream()
    assert next(followed) == b"one\n"
    cluster.kill_node("gpu-0")

    with pytest.raises(HTTPError):
        next(followed)


def test_force_removes_a_dead_node_s_pod_and_not_its_program(
    on_dead_node: dict[str, Any], cluster: StandinCluster, api: Any
) -> None:
    api.delete_namespaced_pod("p", NS, grace_period_seconds=0)
    assert cluster.pods() == []
    assert processes(ENDLESS)

    api.create_namespaced_pod(NS, pod("q"))
    (waits,) = cluster.wait_for_pods(lambda pods: bool(condition(pods[0], "PodScheduled")))
    assert "untolerated taint {node.kubernetes.io/unreachable: }" in condition(waits, "PodScheduled")["message"]


def test_a_node_that_answers_again_ends_the_pod(on_dead_node: dict[str, Any], cluster: StandinCluster) -> None:
    cluster.revive_node("gpu-0")
    cluster.wait_for_pods(lambda pods: not pods)
