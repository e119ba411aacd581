"""Requests to the API server: refusals, selectors, logs, rights, lost replies."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import pytest
from kubernetes import client, config  # type: ignore[import-untyped]

from tests.kube.clusters import SHELL, start_standin
from tests.kube.shell_pods import pod
from tests.kube.standin.seen import NS, has_phase, processes
from tests.standin import StandinCluster

pytestmark = pytest.mark.slow


GPU = "nvidia.com/gpu"


def _with(path: str, value: Any) -> dict[str, Any]:
    manifest: Any = pod("p")
    *parents, last = path.split(".")
    item = manifest
    for key in parents:
        item = item[int(key) if key.isdecimal() else key]
    item[last] = value
    return dict(manifest)


@pytest.mark.parametrize("way", ["stopped", "killed"])
def test_no_process_outlives_the_stand_in(cluster: StandinCluster, tmp_path: Path, way: str) -> None:
    own = start_standin(tmp_path, {SHELL: {}})
    own.add_node("gpu-0")
    api = client.CoreV1Api(config.new_client_from_config(str(own.kubeconfig)))
    api.create_namespaced_pod(NS, pod("p", f"sleep 54321.{os.getpid()}; echo"))
    own.wait_for_pods(has_phase("Running"))
    assert processes(f"54321.{os.getpid()}")
    if way == "stopped":
        own.stop()
    else:
        own.process.kill()
        own.process.wait()

    for _ in range(6000):
        if not processes(f"54321.{os.getpid()}"):
            return
        time.sleep(0.1)
    pytest.fail("the container's processes are still there")
