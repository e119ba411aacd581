"""Faults that tests inject: an image that one node does not find, an eviction's resource, a fault for some time."""

from __future__ import annotations

import time
from typing import Any

import pytest
from kubernetes.client import ApiException

from tests.kube.shell_pods import pod
from tests.kube.standin.seen import NS, has_phase, waits_for
from tests.standin import StandinCluster

pytestmark = pytest.mark.slow


def test_one_node_does_not_find_the_image_that_others_have(cluster: StandinCluster, api: Any) -> None:
    cluster.add_node("gpu-0")
    cluster.fault(action="no_image", moment="scheduled", pod="^without", n=0)
    api.create_namespaced_pod(NS, pod("without"))
    api.create_namespaced_pod(NS, pod("with"))
    pods = cluster.wait_for_pods(lambda pods: {p["status"]["phase"] for p in pods} == {"Pending", "Succeeded"})

    assert {p["metadata"]["name"]: waits_for(p) for p in pods}["without"] in ("ErrImagePull", "ImagePullBackOff")


def test_an_eviction_names_the_resource(cluster: StandinCluster, api: Any) -> None:
    cluster.add_node("gpu-0")
    cluster.fault(action="evict", moment="running", resource="ephemeral-storage")
    api.create_namespaced_pod(NS, pod("full", "exec sleep 100"))
    (evicted,) = cluster.wait_for_pods(has_phase("Failed"))

    assert evicted["status"]["reason"] == "Evicted"
    assert "low on resource: ephemeral-storage" in evicted["status"]["message"]


def test_a_fault_for_some_time_is_over_by_itself(cluster: StandinCluster, api: Any) -> None:
    cluster.fault(path="/pods", code=503, n=0, for_s=3600)
    with pytest.raises(ApiException, match="503"):
        api.list_namespaced_pod(NS)
    cluster.reset()
    cluster.fault(path="/pods", code=503, n=0, for_s=0.1)
    time.sleep(0.2)

    assert api.list_namespaced_pod(NS).items == []
