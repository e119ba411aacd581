"""Nodes: which node objects of a cluster count as nodes to benchmark."""

from __future__ import annotations

from typing import Any

from bench_control.nodes import gpu_nodes


def node(name: str, gpus: int = 8, *, ready: str = "True", cordoned: bool = False, **labels: str) -> dict[str, Any]:
    return {
        "metadata": {"name": name, "labels": labels},
        "spec": {"unschedulable": True} if cordoned else {},
        "status": {
            "allocatable": {"cpu": "64", "nvidia.com/gpu": str(gpus)} if gpus else {"cpu": "64"},
            "conditions": [{"type": "MemoryPressure", "status": "False"}, {"type": "Ready", "status": ready}],
        },
    }


def test_ready_schedulable_nodes_with_enough_gpus_count() -> None:
    nodes = [
        node("gpu-b"),
        node("gpu-a"),
        node("cpu-only", 0),
        node("small", 1),
        node("not-ready", ready="Unknown"),
        node("cordoned", cordoned=True),
    ]

    assert gpu_nodes(nodes, gpus_per_node=4) == ("gpu-a", "gpu-b")


def test_the_hostname_label_is_the_name_that_pods_are_pinned_by() -> None:
    assert gpu_nodes([node("ip-10-0-0-7.internal", **{"kubernetes.io/hostname": "gpu-7"})], 1) == ("gpu-7",)
