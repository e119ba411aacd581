"""PATCH of a node: a stale version is refused, the list of taints is replaced as a whole, and its rules hold."""

from __future__ import annotations

import json
from typing import Any

import pytest
from kubernetes.client import ApiException  # type: ignore[import-untyped]

from tests.standin import StandinCluster

pytestmark = pytest.mark.slow

OURS = {"key": "trainbench.io/breach", "value": "night-1", "effect": "NoSchedule"}
THEIRS = {"key": "dedicated", "value": "ml", "effect": "NoSchedule"}


@pytest.fixture
def node(cluster: StandinCluster, api: Any) -> Any:
    cluster.add_node("gpu-0", taints=[THEIRS])
    return api.read_node("gpu-0")


def refused(api: Any, patch: dict[str, Any]) -> tuple[int, str]:
    with pytest.raises(ApiException) as error:
        api.patch_node("gpu-0", patch)
    return error.value.status, json.loads(error.value.body)["message"]


def test_a_patch_of_an_older_version_is_a_conflict_and_changes_nothing(api: Any, node: Any) -> None:
    stale = {"resourceVersion": node.metadata.resource_version}
    api.patch_node("gpu-0", {"metadata": {**stale, "labels": {"by": "somebody"}}})

    assert refused(api, {"metadata": stale, "spec": {"taints": [OURS]}}) == (
        409,
        'Operation cannot be fulfilled on nodes "gpu-0": the object has been modified; please apply your changes to '
        "the latest version and try again",
    )
    assert [taint.key for taint in api.read_node("gpu-0").spec.taints] == ["dedicated"]


def test_the_list_of_taints_is_atomic_a_merge_replaces_it(api: Any, node: Any) -> None:
    """https://kubernetes.io/docs/reference/kubernetes-api/cluster-resources/node-v1/#NodeSpec"""
    api.patch_node("gpu-0", {"spec": {"taints": [OURS]}})
    assert [taint.key for taint in api.read_node("gpu-0").spec.taints] == ["trainbench.io/breach"]

    api.patch_node("gpu-0", {"spec": {"taints": None}, "metadata": {"annotations": {"a": "b"}}})
    patched = api.read_node("gpu-0")
    assert not patched.spec.taints
    assert patched.metadata.annotations == {"a": "b"}


@pytest.mark.parametrize(
    ("patch", "message"),
    [
        ({"spec": {"taints": [OURS, OURS]}}, "spec.taints[1]: Duplicate value"),
        ({"spec": {"taints": [OURS | {"effect": "Never"}]}}, 'spec.taints[0].effect: Unsupported value: "Never"'),
        ({"spec": {"taints": [OURS | {"value": "a b"}]}}, 'spec.taints[0].value: Invalid value: "a b"'),
        ({"spec": {"taints": [OURS | {"key": "a b"}]}}, 'spec.taints[0].key: Invalid value: "a b"'),
        ({"metadata": {"labels": {"trainbench.io/breach": "a" * 64}}}, "must be no more than 63 bytes"),
        ({"metadata": {"uid": "another"}}, "metadata.uid: Invalid value"),
    ],
)
def test_what_a_real_server_refuses_is_refused(api: Any, node: Any, patch: dict[str, Any], message: str) -> None:
    status, text = refused(api, patch)

    assert status == 422
    assert message in text
