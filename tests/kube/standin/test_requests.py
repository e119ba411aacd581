"""Requests to the API server: refusals, selectors, logs, rights, lost replies."""

from __future__ import annotations

import json
import os
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from kubernetes import client, config, watch  # type: ignore[import-untyped]
from kubernetes.client import ApiException

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


@pytest.mark.parametrize(
    ("manifest", "code", "message"),
    [
        (_with("spec.containers.0.imgae", "x"), 400, 'unknown field "spec.containers.0.imgae"'),
        (_with("spec.activeDeadlineSeconds", "soon"), 400, "cannot be handled as a Pod"),
        (_with("spec.containers", []), 422, "spec.containers: Required value"),
        (_with("spec.restartPolicy", "Sometimes"), 422, 'Unsupported value: "Sometimes"'),
        (_with("metadata.labels", {"a": "b c"}), 422, "a valid label must"),
        (_with("metadata.labels", {"a": "b" * 64}), 422, "must be no more than 63 bytes"),
        (_with("metadata.name", "Rank_0"), 422, "RFC 1123 subdomain"),
        (_with("spec.containers.0.volumeMounts", [{"name": "x", "mountPath": "/x"}]), 422, 'Not found: "x"'),
        (_with("spec.containers.0.resources", {"limits": {"memory": "lots"}}), 400, "quantities must match"),
        (_with("spec.containers.0.resources", {"limits": {GPU: "2"}, "requests": {GPU: "1"}}), 422, "must be equal"),
        (_with("spec.containers.0.resources", {"requests": {GPU: "1"}}), 422, "Limit must be set"),
        (_with("spec.containers.0.resources", {"limits": {GPU: "0.5"}}), 422, "must be an integer"),
        (_with("spec.hostname", "Rank_0"), 422, "RFC 1123 label"),
        (_with("spec.tolerations", [{"key": "a", "operator": "Exists", "value": "b"}]), 422, "value must be empty"),
        (_with("spec.priorityClassName", "none"), 403, "no PriorityClass with name none"),
        (_with("spec.serviceAccountName", "none"), 403, 'serviceaccount "none" not found'),
        (_with("metadata.namespace", "other"), 400, "does not match the namespace"),
        (_with("spec.securityContext", {"runAsUser": 1}), 403, "runAsNonRoot != true"),
        (_with("spec.containers.0.securityContext", {}), 403, "allowPrivilegeEscalation != false"),
    ],
)
def test_what_a_real_server_refuses_is_refused(api: Any, manifest: Any, code: int, message: str) -> None:
    with pytest.raises(ApiException) as refused:
        api.create_namespaced_pod(NS, manifest, dry_run="All")

    assert refused.value.status == code
    assert message in json.loads(refused.value.body)["message"]


def test_a_dry_run_stores_nothing_and_a_name_is_given_once(cluster: StandinCluster, api: Any) -> None:
    api.create_namespaced_pod(NS, pod("p"), dry_run="All")
    assert cluster.pods() == []

    api.create_namespaced_pod(NS, pod("p"))
    with pytest.raises(ApiException, match="AlreadyExists"):
        api.create_namespaced_pod(NS, pod("p"))
    with pytest.raises(ApiException, match="NotFound"):
        api.read_namespaced_pod("q", NS)


def test_selectors_patch_and_deletion_of_a_collection(cluster: StandinCluster, api: Any) -> None:
    for name, gang in (("a", "g1"), ("b", "g1"), ("c", "g2")):
        api.create_namespaced_pod(NS, pod(name, labels={"gang": gang}))
    api.patch_namespaced_pod("a", NS, {"metadata": {"labels": {"already_checked": "True"}}})

    def names(selector: str) -> list[str]:
        return [item.metadata.name for item in api.list_namespaced_pod(NS, label_selector=selector).items]

    assert names("gang=g1,already_checked!=True") == ["b"]
    assert names("gang in (g1,g2),!already_checked") == ["b", "c"]
    assert names("gang notin (g1)") == ["c"]
    api.delete_collection_namespaced_pod(NS, label_selector="gang=g1")
    assert names("") == ["c"]
    with pytest.raises(ApiException, match="field label not supported"):
        api.list_namespaced_pod(NS, field_selector="spec.image=x")


def test_logs_are_followed_until_the_container_ends(cluster: StandinCluster, api: Any) -> None:
    cluster.add_node("gpu-0")
    api.create_namespaced_pod(NS, pod("p", "echo one; sleep 1; echo two"))
    cluster.wait_for_pods(has_phase("Running"))

    lines = list(api.read_namespaced_pod_log("p", NS, follow=True, _preload_content=False))
    assert b"".join(lines) == b"one\ntwo\n"


def test_a_long_line_is_cut_by_the_container_runtime_and_the_tail_counts_its_pieces(run: Any, api: Any) -> None:
    """containerd cuts at 16 KiB: 40,000 bytes are pieces of 16,384, 16,384 and 7,232, the last with the newline."""
    run(pod("long", "head -c 40000 /dev/zero | tr '\\0' x; echo; echo end"))

    def log(**options: Any) -> str:
        return str(api.read_namespaced_pod_log("long", NS, _preload_content=False, **options).data.decode())

    assert log() == f"{'x' * 40_000}\nend\n"
    assert log(tail_lines=2) == f"{'x' * 7_232}\nend\n"
    assert log(timestamps=True).count("Z ") == 2


def test_a_service_account_may_do_what_its_roles_say(cluster: StandinCluster, api: Any) -> None:
    role = {
        "kind": "Role",
        "metadata": {"name": "r", "namespace": NS},
        "rules": [{"apiGroups": [""], "resources": ["pods", "pods/log"], "verbs": ["get", "list"]}],
    }
    path = cluster.kubeconfig_of(f"system:serviceaccount:{NS}:trainbench-airflow", [role])
    limited = client.CoreV1Api(config.new_client_from_config(str(path)))
    reviews = client.AuthorizationV1Api(limited.api_client)

    assert limited.list_namespaced_pod(NS).items == []
    with pytest.raises(ApiException) as refused:
        limited.list_namespaced_event(NS)
    assert json.loads(refused.value.body)["message"] == (
        'events is forbidden: User "system:serviceaccount:trainbench:trainbench-airflow" cannot list resource "events" '
        'in API group "" in the namespace "trainbench"'
    )
    with pytest.raises(ApiException, match="at the cluster scope"):
        limited.list_node()

    def allowed(verb: str, resource: str, subresource: str = "") -> bool:
        values = {"namespace": NS, "verb": verb, "resource": resource, "subresource": subresource}
        review = reviews.create_self_subject_access_review({"spec": {"resourceAttributes": values}})
        return bool(review.status.allowed)

    assert [allowed("get", "pods", "log"), allowed("create", "pods"), allowed("list", "events")] == [True, False, False]


def test_a_reply_can_be_lost_after_the_deed(cluster: StandinCluster, api: Any) -> None:
    cluster.fault(method="POST", path="/pods$", code=503, after=True)
    cluster.fault(method="DELETE", path="/pods/p$", drop=True)

    with pytest.raises(ApiException, match="503"):
        api.create_namespaced_pod(NS, pod("p"))
    assert [item["metadata"]["name"] for item in cluster.pods()] == ["p"]
    codes = [(entry["verb"], entry["code"]) for entry in cluster.requests()]
    assert codes == [("create", 503)]


def test_events_are_watched(cluster: StandinCluster, api: Any) -> None:
    cluster.add_node("gpu-0")
    seen: list[str] = []

    def follow() -> None:
        selector = "involvedObject.name=p"
        for event in watch.Watch().stream(api.list_namespaced_event, NS, field_selector=selector, timeout_seconds=600):
            seen.append(event["object"].reason)
            if seen[-1] == "Started":
                return

    following = threading.Thread(target=follow)
    following.start()
    api.create_namespaced_pod(NS, pod("p"))
    following.join(timeout=600)
    assert seen == ["Scheduled", "Pulled", "Created", "Started"]


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
