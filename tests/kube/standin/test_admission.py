"""Admission in the API server's order: rights, namespace, LimitRange, priority, validity, quota."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from typing import Any

import pytest
from kubernetes import client, config  # type: ignore[import-untyped]
from kubernetes.client import ApiException

from tests.kube.shell_pods import container, pod
from tests.kube.standin.seen import NS
from tests.standin import StandinCluster

pytestmark = pytest.mark.slow


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
    """A pod of two bare containers asks for 4 CPUs and 16 GiB."""
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


def test_a_request_without_a_token_is_anonymous_and_one_with_a_wrong_token_is_nobody_s(
    cluster: StandinCluster,
) -> None:
    def answer(headers: dict[str, str]) -> tuple[int, dict[str, Any]]:
        request = urllib.request.Request(f"{cluster.url}/api/v1/namespaces/{NS}/pods", headers=headers)
        with pytest.raises(urllib.error.HTTPError) as refused:
            urllib.request.urlopen(request, timeout=600)
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
