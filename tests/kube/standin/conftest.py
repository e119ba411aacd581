"""Tests of the stand-in itself: where it is more lenient than a cluster, the other tests show nothing."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from kubernetes import client, config  # type: ignore[import-untyped]

from tests.kube.standin.seen import NS
from tests.standin import StandinCluster


@pytest.fixture
def cluster(cluster: Any) -> Any:
    if not cluster.simulated:
        pytest.skip("these tests are about the stand-in; E2E_KUBECONFIG names a real cluster")
    return cluster


@pytest.fixture
def api(cluster: StandinCluster) -> Any:
    return client.CoreV1Api(config.new_client_from_config(str(cluster.kubeconfig)))


@pytest.fixture
def run(cluster: StandinCluster, api: Any) -> Callable[..., dict[str, Any]]:
    """Creates a pod on a node of its own size and waits until it has ended."""

    def run_pod(manifest: dict[str, Any]) -> dict[str, Any]:
        cluster.add_node("gpu-0", gpus=8)
        api.create_namespaced_pod(NS, manifest)
        cluster.wait_for_pods(lambda pods: all(p["status"]["phase"] in ("Succeeded", "Failed") for p in pods))
        return next(p for p in cluster.pods() if p["metadata"]["name"] == manifest["metadata"]["name"])

    return run_pod
