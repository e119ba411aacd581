"""Which nodes there are to benchmark, from the node objects of the Kubernetes API (as plain dicts)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from bench_image.contract import Frozen

GPU_RESOURCE = "nvidia.com/gpu"
HOSTNAME = "kubernetes.io/hostname"
# Labels of NVIDIA's GPU feature discovery; the memory is one GPU's, in MiB.
PRODUCT = "nvidia.com/gpu.product"
MEMORY = "nvidia.com/gpu.memory"


class GpuNode(Frozen):
    """A node as far as it is known before anything runs on it; None: nobody told."""

    name: str
    num_gpus: int | None = None
    gpu_product: str | None = None
    gpu_memory_bytes: int | None = None  # of one GPU


def gpu_nodes(nodes: Iterable[Mapping[str, Any]]) -> tuple[GpuNode, ...]:
    """The ready, schedulable nodes with allocatable GPUs, sorted by name."""
    usable = (_gpu_node(node) for node in nodes if _is_ready(node))
    return tuple(sorted((node for node in usable if node.num_gpus), key=lambda node: node.name))


def named(names: Iterable[str], known: Iterable[GpuNode] = ()) -> tuple[GpuNode, ...]:
    """One node for each name, in this order, with what `known` tells of it."""
    by_name = {node.name: node for node in known}
    return tuple(by_name.get(name, GpuNode(name=name)) for name in names)


def _is_ready(node: Mapping[str, Any]) -> bool:
    conditions = {c["type"]: c["status"] for c in node["status"].get("conditions", [])}
    return conditions.get("Ready") == "True" and not node.get("spec", {}).get("unschedulable")


def _gpu_node(node: Mapping[str, Any]) -> GpuNode:
    labels = node["metadata"].get("labels", {})
    mebibytes = str(labels.get(MEMORY, ""))
    return GpuNode(
        name=str(labels.get(HOSTNAME, node["metadata"]["name"])),
        num_gpus=int(node["status"].get("allocatable", {}).get(GPU_RESOURCE, "0")),
        gpu_product=labels.get(PRODUCT),
        gpu_memory_bytes=int(mebibytes) * 2**20 if mebibytes.isdecimal() else None,
    )
