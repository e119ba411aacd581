"""Whether an empty node could take a pod: by its taints and labels, and by requests summed by hand."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest

from trainbench.pods.placement import never_fits, pod_requests, refused_by

DEDICATED = {"key": "dedicated", "value": "ml", "effect": "NoSchedule"}


def tainted(*taints: dict[str, str], **labels: str) -> dict[str, Any]:
    return {"metadata": {"labels": labels}, "spec": {"taints": list(taints)}}


def tolerant(*tolerations: dict[str, str], **selector: str) -> dict[str, Any]:
    return {"spec": {"tolerations": list(tolerations), "nodeSelector": selector}}


@pytest.mark.parametrize(
    ("toleration", "is_tolerated"),
    [
        ({"key": "dedicated", "operator": "Exists"}, True),
        ({"key": "dedicated", "value": "ml", "effect": "NoSchedule"}, True),
        ({"operator": "Exists"}, True),
        ({"key": "nvidia.com/gpu", "operator": "Exists"}, False),
        ({"key": "dedicated", "value": "web"}, False),
        ({"key": "dedicated", "operator": "Exists", "effect": "NoExecute"}, False),
    ],
)
def test_a_taint_that_is_not_tolerated_is_named(toleration: dict[str, str], is_tolerated: bool) -> None:
    refused = None if is_tolerated else "its taint dedicated=ml:NoSchedule is not tolerated"
    assert refused_by(tainted(DEDICATED), tolerant(toleration)) == refused


def test_taints_of_the_node_s_state_and_mere_preferences_are_not_looked_at() -> None:
    state = {"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"}
    assert refused_by(tainted(state, DEDICATED | {"effect": "PreferNoSchedule"}), tolerant()) is None


def test_a_label_that_the_pods_want_is_named() -> None:
    assert refused_by(tainted(pool="a"), tolerant(pool="a")) is None
    assert refused_by(tainted(), tolerant(pool="a")) == "the pods' nodeSelector wants the label pool=a, it has none"
    assert (
        refused_by(tainted(pool="b"), tolerant(pool="a")) == "the pods' nodeSelector wants the label pool=a, it has b"
    )


# --- requests --------------------------------------------------------------------------------------------------------

# The shipped LimitRange gives the program 2 CPUs; a proxy that a webhook adds brings 1m CPU and 10 MiB of its own.
PROGRAM = {"name": "base", "resources": {"limits": {"nvidia.com/gpu": "4"}, "requests": {"cpu": "2", "memory": "8Gi"}}}
PROXY = {"name": "proxy", "resources": {"requests": {"cpu": "1m", "memory": "10Mi"}}}


def pod(*containers: dict[str, Any], **spec: Any) -> dict[str, Any]:
    return {"spec": {"containers": list(containers), **spec}}


def node(**allocatable: str) -> dict[str, Any]:
    return {"status": {"allocatable": {name.replace("gpu", "nvidia.com/gpu"): v for name, v in allocatable.items()}}}


def test_requests_are_summed_over_all_containers_and_a_limit_alone_counts_as_one() -> None:
    """2 + 0.001 cores, and 0.25 overhead of a RuntimeClass; 8 x 2^30 + 10 x 2^20 bytes; 4 GPUs by their limit."""
    assert pod_requests(pod(PROGRAM, PROXY)) == {
        "cpu": Decimal("2.001"),
        "memory": Decimal(8 * 2**30 + 10 * 2**20),
        "nvidia.com/gpu": Decimal(4),
    }
    assert pod_requests(pod(PROGRAM, PROXY, overhead={"cpu": "250m"}))["cpu"] == Decimal("2.251")


def test_the_largest_init_container_counts_where_it_is_more_than_the_sum() -> None:
    """3 cores of the init container exceed 2.001; its 1 GiB does not exceed the 8 GiB of the others."""
    init = {"resources": {"requests": {"cpu": "3", "memory": "1Gi"}}}
    requests = pod_requests(pod(PROGRAM, PROXY, initContainers=[init]))
    assert requests["cpu"] == 3
    assert requests["memory"] == 8 * 2**30 + 10 * 2**20


def test_another_container_s_request_can_be_what_never_fits() -> None:
    assert never_fits(pod(PROGRAM), node(cpu="2", memory="64Gi", gpu="4")) is None
    assert (
        never_fits(pod(PROGRAM, PROXY), node(cpu="2", memory="64Gi", gpu="4"))
        == "cpu: requested 2.001 (base 2, proxy 0.001), allocatable 2"
    )


def test_every_resource_that_is_short_is_named_and_a_resource_the_node_has_not_counts_as_none() -> None:
    assert never_fits(pod(PROGRAM), node(cpu="1500m", memory="4Gi")) == (
        "cpu: requested 2, allocatable 1.5; memory: requested 8.0 GiB, allocatable 4.0 GiB; "
        "nvidia.com/gpu: requested 4, allocatable 0"
    )


def test_a_resource_that_is_left_out_is_not_compared_and_less_than_a_gib_is_written_in_mib() -> None:
    assert never_fits(pod(PROGRAM), node(cpu="2", memory="64Gi"), without=("nvidia.com/gpu",)) is None
    assert never_fits(pod(PROXY), node(cpu="1", memory="8Mi")) == "memory: requested 10 MiB, allocatable 8 MiB"
