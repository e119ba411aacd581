"""The stand-in itself: where it is more lenient than a cluster, the other tests show nothing."""

from __future__ import annotations

import contextlib
import json
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from kubernetes import client, config  # type: ignore[import-untyped]
from kubernetes.client import ApiException

from tests.kube.clusters import start_standin
from tests.kube.shell_pods import container, pod
from tests.standin import StandinCluster

pytestmark = pytest.mark.slow
NS = "trainbench"
ENDLESS = f"4321.{os.getpid()}"  # seconds, by which its processes are known


def api_of(cluster: StandinCluster) -> Any:
    return client.CoreV1Api(config.new_client_from_config(str(cluster.kubeconfig)))


@pytest.fixture
def api(cluster: Any) -> Any:
    if not cluster.simulated:
        pytest.skip("these tests are about the stand-in; E2E_KUBECONFIG names a real cluster")
    return api_of(cluster)


def refusal(api: Any, manifest: dict[str, Any], namespace: str = NS) -> tuple[int, str]:
    with pytest.raises(ApiException) as refused:
        api.create_namespaced_pod(namespace, manifest)
    return refused.value.status, json.loads(refused.value.body)["message"]


def has_phase(*phases: str) -> Callable[[list[Any]], bool]:
    return lambda pods: bool(pods) and all(p["status"]["phase"] in phases for p in pods)


def processes(argument: str) -> list[str]:
    """The command lines of this machine that contain it."""
    lines = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            lines.append(path.read_bytes().replace(b"\0", b" ").decode(errors="replace"))
    return [line for line in lines if argument in line]


# ---------------------------------------------------------------- admission


def test_the_shipped_quota_refuses_pods_of_other_priorities(api: Any) -> None:
    """Audit K15: test pods without the priority class ran on the stand-in and nowhere else."""
    plain = pod("p")
    del plain["spec"]["priorityClassName"]

    assert refusal(api, plain) == (
        403,
        'pods "p" is forbidden: exceeded quota: benchmark-priority-only, requested: pods=1, used: pods=0, limited: '
        "pods=0",
    )
    assert refusal(api, pod("q", priorityClassName="production"))[0] == 403


def test_the_shipped_limit_range_fills_in_what_each_container_leaves_out(api: Any) -> None:
    bare = [container("true", name, resources={}) for name in ("base", "side")]
    limited = container("true", "limited", resources={"limits": {"cpu": "1"}})
    api.create_namespaced_pod(NS, pod("p", containers=[*bare, limited]))
    stored = api.read_namespaced_pod("p", NS).spec.containers

    assert [c.resources.requests for c in stored] == [
        {"cpu": "2", "memory": "8Gi"}, {"cpu": "2", "memory": "8Gi"}, {"cpu": "1", "memory": "8Gi"},
    ]  # fmt: skip


# ---------------------------------------------------------------- containers and nodes


def test_a_container_sees_its_own_processes_its_user_and_nothing_of_the_host(cluster: Any, api: Any) -> None:
    cluster.add_node("gpu-0")
    listed = "ps ax > /tmp/list; wc -l < /tmp/list"  # a header, the shell and ps itself
    script = f"echo pid $$; {listed}; id -u; hostname; ls {Path(__file__).parent} || touch /usr/x; exit 3"
    api.create_namespaced_pod(NS, pod("isolated", script))
    (ended,) = cluster.wait_for_pods(has_phase("Succeeded", "Failed"))

    lines = api.read_namespaced_pod_log("isolated", NS, _preload_content=False).data.decode().splitlines()
    assert lines[:4] == ["pid 1", "3", "10001", "isolated"]
    assert "No such file or directory" in lines[4]
    assert "Read-only file system" in lines[5]
    assert ended["status"]["containerStatuses"][0]["state"]["terminated"]["exitCode"] == 3
    reasons = [e.reason for e in api.list_namespaced_event(NS, field_selector="involvedObject.name=isolated").items]
    assert reasons == ["Scheduled", "Pulled", "Created", "Started"]


def test_a_dead_node_s_pod_is_to_be_deleted_and_stays_as_it_was(cluster: StandinCluster, api: Any) -> None:
    """Its deadline and its grace period are over by then. Force removes the object, and not the program."""
    cluster.add_node("gpu-0")
    cluster.fault(action="lose_node", deadline_s=1)
    api.create_namespaced_pod(NS, pod("p", f"exec sleep {ENDLESS}", terminationGracePeriodSeconds=1))
    cluster.wait_for_pods(lambda pods: "deletionTimestamp" in pods[0]["metadata"])
    api.delete_namespaced_pod("p", NS)
    time.sleep(1.5)

    (seen,) = cluster.pods()
    assert seen["status"]["phase"] == "Running"
    assert "running" in seen["status"]["containerStatuses"][0]["state"]
    conditions = {each["type"]: (each["status"], each.get("reason")) for each in seen["status"]["conditions"]}
    assert conditions["Ready"][0] == "False"
    assert conditions["DisruptionTarget"] == ("True", "DeletionByTaintManager")
    with pytest.raises(ApiException, match=r"10250/containerLogs/trainbench/p/base.*no route to host"):
        api.read_namespaced_pod_log("p", NS, container="base")
    api.delete_namespaced_pod("p", NS, grace_period_seconds=0)
    assert cluster.pods() == []
    assert processes(ENDLESS)


def test_a_patch_of_an_older_version_is_a_conflict_and_a_list_of_taints_is_replaced(
    cluster: StandinCluster, api: Any
) -> None:
    """https://kubernetes.io/docs/reference/kubernetes-api/cluster-resources/node-v1/#NodeSpec"""
    taint = {"key": "dedicated", "value": "ml", "effect": "NoSchedule"}
    cluster.add_node("gpu-0", taints=[taint])
    stale = {"resourceVersion": api.read_node("gpu-0").metadata.resource_version}
    api.patch_node("gpu-0", {"metadata": {**stale, "labels": {"by": "somebody"}}})

    with pytest.raises(ApiException, match="the object has been modified") as refused:
        api.patch_node("gpu-0", {"metadata": stale, "spec": {"taints": None}})
    assert refused.value.status == 409
    api.patch_node("gpu-0", {"spec": {"taints": [taint | {"key": "ours"}]}})
    assert [each.key for each in api.read_node("gpu-0").spec.taints] == ["ours"]


def test_no_process_outlives_the_stand_in(api: Any, tmp_path: Path) -> None:
    own = start_standin(tmp_path)
    own.add_node("gpu-0")
    api_of(own).create_namespaced_pod(NS, pod("p", f"sleep 5{ENDLESS}; echo"))
    own.wait_for_pods(has_phase("Running"))
    assert processes(f"5{ENDLESS}")
    own.process.kill()
    own.process.wait()

    give_up = time.monotonic() + 600
    while processes(f"5{ENDLESS}"):
        assert time.monotonic() < give_up
        time.sleep(0.1)
