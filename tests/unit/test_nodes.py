"""Nodes: which node objects of a cluster count as nodes to benchmark."""

from __future__ import annotations

from typing import Any

from bench_control.nodes import GpuNode, gpu_nodes, named


def node(name: str, gpus: int = 8, *, ready: str = "True", cordoned: bool = False, **labels: str) -> dict[str, Any]:
    return {
        "metadata": {"name": name, "labels": labels},
        "spec": {"unschedulable": True} if cordoned else {},
        "status": {
            "allocatable": {"cpu": "64", "nvidia.com/gpu": str(gpus)} if gpus else {"cpu": "64"},
            "conditions": [{"type": "MemoryPressure", "status": "False"}, {"type": "Ready", "status": ready}],
        },
    }


def test_ready_schedulable_nodes_with_gpus_count() -> None:
    nodes = [
        node("gpu-b"),
        node("gpu-a"),
        node("cpu-only", 0),
        node("small", 1),
        node("not-ready", ready="Unknown"),
        node("cordoned", cordoned=True),
    ]

    assert [(n.name, n.num_gpus) for n in gpu_nodes(nodes)] == [("gpu-a", 8), ("gpu-b", 8), ("small", 1)]


def test_the_hostname_label_is_the_name_that_pods_are_pinned_by() -> None:
    (found,) = gpu_nodes([node("ip-10-0-0-7.internal", **{"kubernetes.io/hostname": "gpu-7"})])

    assert found.name == "gpu-7"


def test_the_labels_tell_product_and_memory_of_a_gpu() -> None:
    """24,576 MiB are 25,769,803,776 bytes."""
    labels = {"nvidia.com/gpu.product": "NVIDIA-A10", "nvidia.com/gpu.memory": "24576"}
    (known,) = gpu_nodes([node("a", **labels)])
    (unlabelled,) = gpu_nodes([node("b")])
    (odd,) = gpu_nodes([node("c", **{"nvidia.com/gpu.memory": "much"})])

    assert (known.gpu_product, known.gpu_memory_bytes) == ("NVIDIA-A10", 25_769_803_776)
    assert (unlabelled.gpu_product, unlabelled.gpu_memory_bytes) == (None, None)
    assert odd.gpu_memory_bytes is None


def test_named_nodes_keep_their_order_and_what_is_known_of_them() -> None:
    known = gpu_nodes([node("a", 4), node("b", 8)])

    assert named(["b", "c"], known) == (known[1], GpuNode(name="c"))
