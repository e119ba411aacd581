"""A node's own rules: its taints, and the labels that the pods want."""

from __future__ import annotations

from typing import Any

import pytest

from trainbench.pods.placement import refused_by

DEDICATED = {"key": "dedicated", "value": "ml", "effect": "NoSchedule"}


def node(*taints: dict[str, str], **labels: str) -> dict[str, Any]:
    return {"metadata": {"labels": labels}, "spec": {"taints": list(taints)}}


def pod(*tolerations: dict[str, str], **selector: str) -> dict[str, Any]:
    return {"spec": {"tolerations": list(tolerations), "nodeSelector": selector}}


@pytest.mark.parametrize(
    "toleration",
    [
        {"key": "dedicated", "operator": "Exists"},
        {"key": "dedicated", "value": "ml", "effect": "NoSchedule"},
        {"operator": "Exists"},
    ],
)
def test_a_taint_that_is_tolerated_keeps_nobody_out(toleration: dict[str, str]) -> None:
    assert refused_by(node(DEDICATED), pod(toleration)) is None


@pytest.mark.parametrize(
    "toleration",
    [
        {"key": "nvidia.com/gpu", "operator": "Exists"},
        {"key": "dedicated", "value": "web"},
        {"key": "dedicated", "operator": "Exists", "effect": "NoExecute"},
    ],
)
def test_a_taint_that_is_not_tolerated_is_named(toleration: dict[str, str]) -> None:
    assert refused_by(node(DEDICATED), pod(toleration)) == "its taint dedicated=ml:NoSchedule is not tolerated"


def test_taints_of_the_node_s_state_and_mere_preferences_are_not_looked_at() -> None:
    state = {"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"}
    assert refused_by(node(state, DEDICATED | {"effect": "PreferNoSchedule"}), pod()) is None


def test_a_label_that_the_pods_want_is_named() -> None:
    assert refused_by(node(pool="a"), pod(pool="a")) is None
    assert refused_by(node(), pod(pool="a")) == "the pods' nodeSelector wants the label pool=a, it has none"
    assert refused_by(node(pool="b"), pod(pool="a")) == "the pods' nodeSelector wants the label pool=a, it has b"
