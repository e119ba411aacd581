"""The stand-in does what it is trusted with: where it is more lenient than a cluster, the other tests mean nothing."""

from __future__ import annotations

import contextlib
import json
import os
import re
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from kubernetes import client, config, watch  # type: ignore[import-untyped]
from kubernetes.client import ApiException
from kubernetes.stream import stream  # type: ignore[import-untyped]
from urllib3.exceptions import HTTPError

from tests.kube.shell_pods import IN_CONTAINER, container, pod
from tests.standin.fixture import SHELL, StandinCluster

NS = "trainbench"
pytestmark = pytest.mark.slow


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


def state(item: dict[str, Any], index: int = 0) -> Any:
    return item["status"]["containerStatuses"][index]["state"]


def waits_for(item: dict[str, Any], index: int = 0) -> str | None:
    statuses = item["status"].get("containerStatuses")
    return statuses[index]["state"].get("waiting", {}).get("reason") if statuses else None


def condition(item: dict[str, Any], kind: str) -> dict[str, Any]:
    return next((c for c in item["status"].get("conditions", []) if c["type"] == kind), {})


def has_phase(*phases: str) -> Callable[[list[Any]], bool]:
    return lambda pods: bool(pods) and all(p["status"]["phase"] in phases for p in pods)


# Containers ---------------------------------------------------------------------------------------------------------


def test_a_pod_runs_and_tells_how_it_ended(run: Any, api: Any) -> None:
    ended = run(pod("a", "echo one; echo two >&2; echo the cause > /dev/termination-log; exit 3"))

    assert ended["status"]["phase"] == "Failed"
    assert state(ended)["terminated"]["exitCode"] == 3
    assert state(ended)["terminated"]["reason"] == "Error"
    assert state(ended)["terminated"]["message"] == "the cause\n"
    assert condition(ended, "PodScheduled")["status"] == "True"
    assert api.read_namespaced_pod_log("a", NS, _preload_content=False).data == b"one\ntwo\n"
    stamped = api.read_namespaced_pod_log("a", NS, timestamps=True, tail_lines=1, _preload_content=False).data.decode()
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{9}Z two\n", stamped)
    reasons = [e.reason for e in api.list_namespaced_event(NS, field_selector="involvedObject.name=a").items]
    assert reasons == ["Scheduled", "Pulled", "Created", "Started"]


def test_a_container_sees_its_own_processes_its_user_and_nothing_of_the_host(run: Any, api: Any) -> None:
    script = f"echo pid $$; ps ax | wc -l; id -u; hostname; ls {Path(__file__).parent} || touch /usr/x"
    ended = run(pod("isolated", script))

    lines = api.read_namespaced_pod_log("isolated", NS, _preload_content=False).data.decode().splitlines()
    assert lines[:4] == ["pid 1", "4", "10001", "isolated"]
    assert "No such file or directory" in lines[4]
    assert "Read-only file system" in lines[5]
    assert ended["status"]["phase"] == "Failed"


def test_volumes_variables_and_the_read_only_root(run: Any, api: Any) -> None:
    mounts = {
        "volumeMounts": [{"name": "data", "mountPath": "/data"}, {"name": "data", "mountPath": "/tmp", "subPath": "t"}]
    }
    first = container("echo staged > /data/x", "stage", **mounts)
    second = container(
        "cat /data/x; touch /tmp/y && ls /data/t; touch /here; echo $A",
        env=[
            {"name": "NAME", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
            {"name": "A", "value": "$(NAME)-$(OTHER)-$$(NAME)"},
        ],
        **mounts,
    )
    second["securityContext"] = {**IN_CONTAINER, "readOnlyRootFilesystem": True}
    ended = run(pod("v", initContainers=[first], containers=[second], volumes=[{"name": "data", "emptyDir": {}}]))

    lines = api.read_namespaced_pod_log("v", NS, _preload_content=False).data.decode().splitlines()
    assert lines[:2] == ["staged", "y"]
    assert "Read-only file system" in lines[2]
    assert lines[3] == "v-$(OTHER)-$(NAME)"
    assert ended["status"]["initContainerStatuses"][0]["state"]["terminated"]["exitCode"] == 0


def test_a_failed_init_container_fails_the_pod_and_a_sidecar_does_not_keep_it(run: Any) -> None:
    failed = run(pod("init", initContainers=[container("exit 4", "stage")]))
    kept = run(
        pod(
            "side",
            initContainers=[container("trap 'exit 0' TERM; while :; do sleep 0.1; done", "s", restartPolicy="Always")],
        )
    )

    assert failed["status"]["phase"] == "Failed"
    assert "waiting" in state(failed)
    assert kept["status"]["phase"] == "Succeeded"


def test_a_program_that_is_not_there_does_not_start(run: Any) -> None:
    missing = {**container(""), "command": ["no-such-program"]}
    ended = run(pod("missing", containers=[missing]))

    assert state(ended)["terminated"]["reason"] == "StartError"
    assert state(ended)["terminated"]["exitCode"] == 128


def test_root_is_refused_where_the_pod_says_non_root(cluster: StandinCluster, api: Any) -> None:
    cluster.add_node("gpu-0")
    manifest = pod("root")
    del manifest["spec"]["securityContext"]["runAsUser"]
    api.create_namespaced_pod(NS, manifest)

    (waits,) = cluster.wait_for_pods(lambda pods: waits_for(pods[0]) == "CreateContainerConfigError")
    assert waits["status"]["phase"] == "Pending"


def test_gang_pods_find_each_other_by_the_headless_service(run: Any, cluster: StandinCluster, api: Any) -> None:
    labels = {"trainbench.io/rendezvous": "true"}
    name = f"g-r0.trainbench-rendezvous.{NS}.svc"
    serve = (
        "import socket\n"
        "server = socket.create_server((socket.gethostname(), 29500))\n"
        "print(server.accept()[0].recv(9).decode())"
    )
    ask = (
        "import socket, time\n"
        "for _ in range(100):\n"
        f"    try: peer = socket.create_connection(('{name}', 29500)); break\n"
        "    except OSError: time.sleep(0.1)\n"
        "peer.send(b'hello')"
    )
    gang = {"subdomain": "trainbench-rendezvous"}
    cluster.add_node("gpu-0")
    python = {"image": "test/python:1"}
    master = {**container(""), **python, "command": ["python", "-c", serve]}
    member = {**container(""), **python, "command": ["python", "-c", ask]}
    api.create_namespaced_pod(NS, pod("m", labels=labels, hostname="g-r1", containers=[member], **gang))
    run(pod("r0", labels=labels, hostname="g-r0", containers=[master], **gang))

    assert api.read_namespaced_pod_log("r0", NS, _preload_content=False).data == b"hello\n"


# The end of a pod ---------------------------------------------------------------------------------------------------


def test_a_program_without_a_handler_keeps_its_grace_period(cluster: StandinCluster, api: Any) -> None:
    """Process 1 of a container is not ended by a signal that it does not handle."""
    cluster.add_node("gpu-0")
    api.create_namespaced_pod(NS, pod("deaf", "sleep 100", terminationGracePeriodSeconds=2))
    api.create_namespaced_pod(NS, pod("polite", "trap 'exit 0' TERM; while :; do sleep 0.1; done"))
    cluster.wait_for_pods(has_phase("Running"))
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
    for event in watch.Watch().stream(api.list_namespaced_pod, NS, resource_version=version, timeout_seconds=30):
        if event["type"] == "DELETED":
            gone.append(event["raw_object"])
        if len(gone) == len(names):
            break
    return gone


def test_the_deadline_ends_a_pod(run: Any) -> None:
    ended = run(pod("late", "exec sleep 100", activeDeadlineSeconds=1, terminationGracePeriodSeconds=1))

    assert ended["status"]["phase"] == "Failed"
    assert ended["status"]["reason"] == "DeadlineExceeded"


def test_a_missing_image_keeps_the_whole_pod_pending(cluster: StandinCluster, api: Any) -> None:
    """Also after the other container has ended: a pod is Pending until each of its containers has started once."""
    cluster.add_node("gpu-0")
    api.create_namespaced_pod(NS, pod("p", containers=[container("true"), container("true", "side", "no/such:1")]))

    (waits,) = cluster.wait_for_pods(lambda pods: waits_for(pods[0], 1) == "ImagePullBackOff")
    assert "terminated" in state(waits)
    assert waits["status"]["phase"] == "Pending"
    with pytest.raises(ApiException, match="waiting to start: trying and failing to pull image"):
        api.read_namespaced_pod_log("p", NS, container="side")


@pytest.mark.parametrize(
    ("action", "reason", "disruption"),
    [("evict", "Evicted", "TerminationByKubelet"), ("oom", None, None)],
)
def test_an_injected_end_leaves_the_pod_with_its_cause(
    cluster: StandinCluster, api: Any, action: str, reason: str | None, disruption: str | None
) -> None:
    cluster.add_node("gpu-0")
    cluster.fault(action=action, moment="running")
    api.create_namespaced_pod(NS, pod("p", "exec sleep 100"))

    (ended,) = cluster.wait_for_pods(has_phase("Failed"))
    assert ended["status"].get("reason") == reason
    assert condition(ended, "DisruptionTarget").get("reason") == disruption
    assert state(ended)["terminated"]["exitCode"] == 137
    assert state(ended)["terminated"]["reason"] == ("OOMKilled" if action == "oom" else "Error")


@pytest.mark.parametrize(("action", "disruption"), [("preempt", "PreemptionByScheduler"), ("vanish", None)])
def test_an_injected_end_removes_the_pod(
    cluster: StandinCluster, api: Any, action: str, disruption: str | None
) -> None:
    cluster.add_node("gpu-0")
    cluster.fault(action=action, moment="running", delay_s=0.1, grace_s=1)
    version = api.list_namespaced_pod(NS).metadata.resource_version
    api.create_namespaced_pod(NS, pod("p", "exec sleep 100"))

    stream_of = watch.Watch().stream(api.list_namespaced_pod, NS, resource_version=version, timeout_seconds=30)
    last = next(event["raw_object"] for event in stream_of if event["type"] == "DELETED")
    assert condition(last, "DisruptionTarget").get("reason") == disruption
    assert cluster.pods() == []


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
    manifest = pod("p", "echo one; exec sleep 4321", terminationGracePeriodSeconds=1, activeDeadlineSeconds=2)
    api.create_namespaced_pod(NS, manifest)
    cluster.wait_for_pods(has_phase("Running"))
    cluster.kill_node("gpu-0", toleration_scale=0.01)
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
    with pytest.raises((ApiException, AttributeError)) as refused:  # the client stumbles over a refused websocket
        stream(api.connect_get_namespaced_pod_exec, "p", NS, command=["true"], container="base")
    assert "Handshake status 500" in str(refused.value.__context__)


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
    assert any(path.read_bytes() == b"sleep\x004321\x00" for path in Path("/proc").glob("[0-9]*/cmdline"))

    api.create_namespaced_pod(NS, pod("q"))
    (waits,) = cluster.wait_for_pods(lambda pods: bool(condition(pods[0], "PodScheduled")))
    assert "untolerated taint {node.kubernetes.io/unreachable: }" in condition(waits, "PodScheduled")["message"]


def test_a_node_that_answers_again_ends_the_pod(on_dead_node: dict[str, Any], cluster: StandinCluster) -> None:
    cluster.revive_node("gpu-0")
    cluster.wait_for_pods(lambda pods: not pods)


def test_a_pod_that_tolerates_a_dead_node_is_never_deleted(cluster: StandinCluster, api: Any) -> None:
    cluster.add_node("gpu-0")
    forever = [{"key": "node.kubernetes.io/unreachable", "operator": "Exists", "effect": "NoExecute"}]
    api.create_namespaced_pod(NS, pod("p", "exec sleep 100", tolerations=forever, activeDeadlineSeconds=1))
    cluster.wait_for_pods(has_phase("Running"))
    cluster.kill_node("gpu-0", toleration_scale=0.0)
    time.sleep(2)

    (seen,) = cluster.pods()
    assert "deletionTimestamp" not in seen["metadata"]
    assert seen["status"]["phase"] == "Running"


# Scheduling ---------------------------------------------------------------------------------------------------------


def test_the_scheduler_tells_why_a_pod_waits(cluster: StandinCluster, api: Any) -> None:
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


def test_gpus_come_free_when_a_pod_ends(run: Any, cluster: StandinCluster, api: Any) -> None:
    cluster.add_node("gpu-0", gpus=8)
    for name in ("a", "b"):
        api.create_namespaced_pod(NS, pod(name, "true", gpus=8))

    cluster.wait_for_pods(has_phase("Succeeded"))


# Requests -----------------------------------------------------------------------------------------------------------

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


def test_exec_runs_in_the_container_and_a_kill_stays_in_it(cluster: StandinCluster, api: Any) -> None:
    """The operator ends its XCom sidecar so; in the host's namespace the same command would end the tests."""
    cluster.add_node("gpu-0")
    sidecar = container('trap "exit 0" INT; while true; do sleep 0.1; done', "side")
    api.create_namespaced_pod(NS, pod("p", containers=[container("sleep 2"), sidecar]))
    cluster.wait_for_pods(has_phase("Running"))

    def execute(*command: str, **options: Any) -> Any:
        call = api.connect_get_namespaced_pod_exec
        return stream(
            call, "p", NS, container="side", command=list(command), stdout=True, stderr=True, tty=False, **options
        )

    failing = execute("sh", "-c", "echo out; echo err >&2; exit 7", stdin=False, _preload_content=False)
    failing.run_forever(timeout=10)
    assert (failing.read_stdout(), failing.read_stderr(), failing.returncode) == ("out\n", "err\n", 7)
    shell = execute("/bin/sh", stdin=True, _preload_content=False)
    shell.write_stdin("kill -2 $(pgrep -u $(id -u) -f sh)\n")
    shell.run_forever(timeout=10)

    (ended,) = cluster.wait_for_pods(has_phase("Succeeded"))
    assert [own["state"]["terminated"]["exitCode"] for own in ended["status"]["containerStatuses"]] == [0, 0]


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
        asked = {"namespace": NS, "verb": verb, "resource": resource, "subresource": subresource}
        review = reviews.create_self_subject_access_review({"spec": {"resourceAttributes": asked}})
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
        for event in watch.Watch().stream(api.list_namespaced_event, NS, field_selector=selector, timeout_seconds=20):
            seen.append(event["object"].reason)
            if seen[-1] == "Started":
                return

    following = threading.Thread(target=follow)
    following.start()
    api.create_namespaced_pod(NS, pod("p"))
    following.join(timeout=30)
    assert seen == ["Scheduled", "Pulled", "Created", "Started"]


@pytest.mark.parametrize("way", ["stopped", "killed"])
def test_no_process_outlives_the_stand_in(cluster: StandinCluster, tmp_path: Path, way: str) -> None:
    own = StandinCluster(tmp_path, {SHELL: {}})
    own.add_node("gpu-0")
    api = client.CoreV1Api(config.new_client_from_config(str(own.kubeconfig)))
    api.create_namespaced_pod(NS, pod("p", f"sleep 54321.{os.getpid()}; echo"))
    own.wait_for_pods(has_phase("Running"))
    assert _processes(f"54321.{os.getpid()}")
    if way == "stopped":
        own.stop()
    else:
        own.process.kill()
        own.process.wait()

    for _ in range(100):
        if not _processes(f"54321.{os.getpid()}"):
            return
        time.sleep(0.1)
    pytest.fail("the container's processes are still there")


def _processes(argument: str) -> list[str]:
    """The command lines of this machine that contain it."""
    lines = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            lines.append(path.read_bytes().replace(b"\0", b" ").decode(errors="replace"))
    return [line for line in lines if argument in line]


# Admission ----------------------------------------------------------------------------------------------------------


def refusal(api: Any, manifest: dict[str, Any], namespace: str = NS) -> tuple[int, str]:
    with pytest.raises(ApiException) as refused:
        api.create_namespaced_pod(namespace, manifest)
    return refused.value.status, json.loads(refused.value.body)["message"]


def test_the_shipped_quota_refuses_pods_of_other_priorities(api: Any) -> None:
    """Audit K15: test pods without the priority class ran on the stand-in and nowhere else."""
    plain = pod("p")
    del plain["spec"]["priorityClassName"]

    assert refusal(api, plain) == (
        403,
        'pods "p" is forbidden: exceeded quota: benchmark-priority-only, requested: pods=1, used: pods=0, '
        "limited: pods=0",
    )
    assert refusal(api, pod("q", priorityClassName="production"))[0] == 403


def test_a_quota_counts_the_requests_of_all_containers_and_no_pod_that_has_ended(
    run: Any, cluster: StandinCluster, api: Any
) -> None:
    """0.5 CPU for each of two containers: 1 CPU; another one of 0.5 is too much for a quota of 1.4."""
    hard = {"requests.cpu": "1400m", "requests.memory": "1Gi"}
    api.create_namespaced_resource_quota(NS, {"metadata": {"name": "cpus"}, "spec": {"hard": hard}})
    half = {"resources": {"requests": {"cpu": "500m", "memory": "64Mi"}}}
    two = {"containers": [container("sleep 100", **half), container("sleep 100", "side", **half)]}
    run(pod("ended", containers=[container("true", **half)]))
    api.create_namespaced_pod(NS, pod("a", **two))

    assert refusal(api, pod("b", containers=[container("true", **half)])) == (
        403,
        'pods "b" is forbidden: exceeded quota: cpus, requested: requests.cpu=500m, used: requests.cpu=1, '
        "limited: requests.cpu=1400m",
    )


def test_a_second_service_is_beyond_the_shipped_quota(api: Any) -> None:
    with pytest.raises(ApiException, match="exceeded quota: fence, requested: services=1, used: services=1"):
        api.create_namespaced_service(NS, {"metadata": {"name": "mine"}, "spec": {"ports": [{"port": 80}]}})


def test_the_shipped_limit_range_fills_in_what_each_container_leaves_out(api: Any) -> None:
    """The sidecar counts too: a pod of two bare containers asks for 4 CPUs and 16 GiB."""
    bare = [container("true", name, resources={}) for name in ("base", "side")]
    limited = container("true", "limited", resources={"limits": {"cpu": "1"}})
    api.create_namespaced_pod(NS, pod("p", containers=[*bare, limited]))
    stored = api.read_namespaced_pod("p", NS).spec.containers

    assert [c.resources.requests for c in stored] == [
        {"cpu": "2", "memory": "8Gi"}, {"cpu": "2", "memory": "8Gi"}, {"cpu": "1", "memory": "8Gi"},
    ]  # fmt: skip


def test_rights_are_looked_at_before_the_namespace_and_the_namespace_before_the_pod(
    cluster: StandinCluster, api: Any
) -> None:
    path = cluster.kubeconfig_of("ada", [])
    nobody = client.CoreV1Api(config.new_client_from_config(str(path)))
    bad = pod("p", restartPolicy="Sometimes", priorityClassName="none")

    assert refusal(nobody, bad, "nowhere") == (
        403,
        'pods is forbidden: User "ada" cannot create resource "pods" in API group "" in the namespace "nowhere"',
    )
    assert refusal(api, bad, "nowhere") == (404, 'namespaces "nowhere" not found')
    assert refusal(api, bad) == (403, 'pods "p" is forbidden: no PriorityClass with name none was found')
    assert refusal(api, pod("p", restartPolicy="Sometimes"))[0] == 422


def test_statuses_are_sorted_by_the_containers_names(run: Any) -> None:
    ended = run(pod("p", containers=[container("true"), container("true", "airflow-xcom-sidecar")]))
    assert [own["name"] for own in ended["status"]["containerStatuses"]] == ["airflow-xcom-sidecar", "base"]


def test_a_request_without_a_token_is_anonymous_and_one_with_a_wrong_token_is_nobody_s(
    cluster: StandinCluster,
) -> None:
    def answer(headers: dict[str, str]) -> tuple[int, dict[str, Any]]:
        request = urllib.request.Request(f"{cluster.url}/api/v1/namespaces/{NS}/pods", headers=headers)
        with pytest.raises(urllib.error.HTTPError) as refused:
            urllib.request.urlopen(request, timeout=10)
        return refused.value.code, json.load(refused.value)

    code, body = answer({})
    assert (code, body["message"].split(" cannot")[0]) == (403, 'pods is forbidden: User "system:anonymous"')
    assert answer({"Authorization": "Bearer expired"}) == (
        401,
        {
            "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "message": "Unauthorized",
            "reason": "Unauthorized", "code": 401,
        },
    )  # fmt: skip


# Disruption ---------------------------------------------------------------------------------------------------------


def last_state(api: Any, name: str, act: Callable[[], None]) -> dict[str, Any]:
    """Of a pod that `act` makes go."""
    version = api.list_namespaced_pod(NS).metadata.resource_version
    act()
    stream_of = watch.Watch().stream(api.list_namespaced_pod, NS, resource_version=version, timeout_seconds=30)
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


@pytest.mark.parametrize(
    ("toleration", "goes"),
    [
        ({}, True),
        ({"key": "maintenance", "operator": "Exists"}, False),
        ({"key": "maintenance", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 1}, True),
        ({"key": "maintenance", "operator": "Equal", "value": "other", "effect": "NoExecute"}, True),
        ({"key": "maintenance", "operator": "Exists", "effect": "NoSchedule"}, True),
    ],
)
def test_a_noexecute_taint_ends_the_pods_that_do_not_tolerate_it(
    cluster: StandinCluster, api: Any, toleration: dict[str, Any], goes: bool
) -> None:
    cluster.add_node("gpu-0")
    spec = {"tolerations": [toleration] if toleration else [], "terminationGracePeriodSeconds": 1}
    api.create_namespaced_pod(NS, pod("p", "exec sleep 100", **spec))
    cluster.wait_for_pods(has_phase("Running"))
    taint = {"spec": {"taints": [{"key": "maintenance", "value": "disk", "effect": "NoExecute"}]}}

    def act() -> None:
        api.patch_node("gpu-0", taint)
        if not goes:
            api.delete_namespaced_pod("p", NS)

    last = last_state(api, "p", act)
    reason = "DeletionByTaintManager" if goes else None
    assert condition(last, "DisruptionTarget").get("reason") == reason
