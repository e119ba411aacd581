"""Which nodes there are to benchmark, from the node objects of the Kubernetes API (as plain dicts)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

GPU_RESOURCE = "nvidia.com/gpu"
HOSTNAME = "kubernetes.io/hostname"


def gpu_nodes(nodes: Iterable[Mapping[str, Any]], gpus_per_node: int) -> tuple[str, ...]:
    """Host names of the ready, schedulable nodes with at least `gpus_per_node` allocatable GPUs, sorted."""
    return tuple(sorted(_hostname(node) for node in nodes if _usable(node, gpus_per_node)))


def _usable(node: Mapping[str, Any], gpus_per_node: int) -> bool:
    conditions = {c["type"]: c["status"] for c in node["status"].get("conditions", [])}
    allocatable = int(node["status"].get("allocatable", {}).get(GPU_RESOURCE, "0"))
    cordoned = bool(node.get("spec", {}).get("unschedulable"))
    return conditions.get("Ready") == "True" and not cordoned and allocatable >= gpus_per_node


def _hostname(node: Mapping[str, Any]) -> str:
    metadata = node["metadata"]
    return str(metadata.get("labels", {}).get(HOSTNAME, metadata["name"]))
