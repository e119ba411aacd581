"""Which nodes there are to benchmark, and which there should be, from the Kubernetes API's nodes (as plain dicts)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any

from bench_image.contract.frozen import Frozen
from trainbench.core.ordering import natural

GPU_RESOURCE = "nvidia.com/gpu"
HOSTNAME = "kubernetes.io/hostname"
QUARANTINE = "trainbench.io/quarantine"  # its value is the reason
# Labels of NVIDIA's GPU feature discovery; the memory is one GPU's, in MiB.
PRESENT = "nvidia.com/gpu.present"
PRODUCT = "nvidia.com/gpu.product"
MEMORY = "nvidia.com/gpu.memory"


class GpuNode(Frozen):
    """A node as far as it is known before anything runs on it; None: unknown."""

    name: str
    num_gpus: int | None = None  # allocatable
    num_gpus_lost: int = 0  # of its capacity: unhealthy, as its device plugin sees it
    gpu_product: str | None = None
    gpu_memory_bytes: int | None = None  # of one GPU
    troubles: tuple[str, ...] = ()  # what is wrong with it though it is ready, as its conditions say


class AbsentNode(Frozen):
    """A GPU node that is not benchmarked. `expected`: nobody took it out on purpose, so somebody should look."""

    name: str
    reason: str
    expected: bool
    gpu_product: str | None = None


class Fleet(Frozen):
    """`nodes` can be benchmarked now; both are in natural order."""

    nodes: tuple[GpuNode, ...] = ()
    absent: tuple[AbsentNode, ...] = ()


def fleet(nodes: Iterable[Mapping[str, Any]], quarantine: Collection[str] = ()) -> Fleet:
    """The cluster's GPU nodes: those with allocatable GPUs that are ready and in use; the others with the reason."""
    usable, absent = [], []
    for node in nodes:
        if not _is_gpu_node(node):
            continue
        gpu_node = _gpu_node(node)
        reason, expected = _obstacle(node, gpu_node, quarantine)
        if reason:
            absent.append(
                AbsentNode(name=gpu_node.name, reason=reason, expected=expected, gpu_product=gpu_node.gpu_product)
            )
        else:
            usable.append(gpu_node)
    return Fleet(
        nodes=tuple(sorted(usable, key=lambda node: natural(node.name))),
        absent=tuple(sorted(absent, key=lambda node: natural(node.name))),
    )


def named(names: Iterable[str], known: Iterable[GpuNode] = ()) -> tuple[GpuNode, ...]:
    """One node for each name, in this order, with what `known` tells of it."""
    by_name = {node.name: node for node in known}
    return tuple(by_name.get(name, GpuNode(name=name)) for name in names)


def alike(nodes: Sequence[GpuNode]) -> tuple[GpuNode, ...]:
    """The nodes of the most common GPU, in their order: a gang of different GPUs runs at the pace of the slowest."""
    kinds = Counter(node.gpu_product for node in nodes)
    most = max(kinds, key=lambda kind: (kinds[kind], kind or ""), default=None)
    return tuple(node for node in nodes if node.gpu_product == most)


def _is_gpu_node(node: Mapping[str, Any]) -> bool:
    """It has GPUs, had them when its kubelet last counted, or is said to have them."""
    labels, status = node["metadata"].get("labels") or {}, node.get("status") or {}
    counted = (_count(status, "allocatable"), _count(status, "capacity"))
    return any(counted) or PRODUCT in labels or labels.get(PRESENT) == "true"


def _obstacle(node: Mapping[str, Any], gpu_node: GpuNode, quarantine: Collection[str]) -> tuple[str | None, bool]:
    """Why the node cannot be benchmarked, and whether it should be; (None, True): it can."""
    labels = node["metadata"].get("labels") or {}
    if QUARANTINE in labels:
        return f"in quarantine: {labels[QUARANTINE] or 'no reason given'}", False
    if gpu_node.name in quarantine:
        return "in quarantine by TRAINBENCH_QUARANTINE", False
    if node.get("spec", {}).get("unschedulable"):
        return "cordoned", False
    if trouble := not_ready(node):
        return trouble, True
    if not gpu_node.num_gpus:
        return f"it has no allocatable {GPU_RESOURCE}: look at its device plugin and driver", True
    return None, True


def not_ready_s(node: Mapping[str, Any], now: datetime) -> float | None:
    """For how long the node has not been ready; None: it is ready, or does not say since when it is not."""
    ready: Mapping[str, Any] = next((c for c in node["status"].get("conditions") or () if c["type"] == "Ready"), {})
    if ready.get("status") == "True" or not ready.get("lastTransitionTime"):
        return None
    return (now - datetime.fromisoformat(ready["lastTransitionTime"])).total_seconds()


def not_ready(node: Mapping[str, Any]) -> str | None:
    """Since when the node is not ready and what its condition says; None: it is ready. A node whose kubelet does not
    report has the status Unknown.
    """
    ready: Mapping[str, Any] = next((c for c in node["status"].get("conditions") or () if c["type"] == "Ready"), {})
    if ready.get("status") == "True":
        return None
    since = f" since {ready['lastTransitionTime']}" if ready.get("lastTransitionTime") else ""
    return f"not ready{since}: {ready.get('message') or ready.get('reason') or 'its kubelet does not report'}"


def _gpu_node(node: Mapping[str, Any]) -> GpuNode:
    labels, status = node["metadata"].get("labels") or {}, node.get("status") or {}
    allocatable = _count(status, "allocatable")
    mebibytes = str(labels.get(MEMORY, ""))
    return GpuNode(
        name=str(labels.get(HOSTNAME, node["metadata"]["name"])),
        num_gpus=allocatable,
        num_gpus_lost=max(_count(status, "capacity") - allocatable, 0),
        gpu_product=labels.get(PRODUCT),
        gpu_memory_bytes=int(mebibytes) * 2**20 if mebibytes.isdecimal() else None,
        troubles=_troubles(status.get("conditions") or ()),
    )


def _troubles(conditions: Iterable[Mapping[str, Any]]) -> tuple[str, ...]:
    """By the usual convention a condition names a trouble (MemoryPressure, KernelDeadlock, XidError) and is True when
    it is there; one that ends in Ready or Healthy names what is wanted.
    """
    parts = []
    for condition in conditions:
        name, status = str(condition.get("type", "")), condition.get("status")
        if name != "Ready" and status == ("False" if name.endswith(("Ready", "Healthy")) else "True"):
            wanted = "" if status == "True" else "not "
            why = condition.get("message") or condition.get("reason")
            parts.append(f"{wanted}{name}{f' ({why})' if why else ''}")
    return tuple(parts)


def _count(status: Mapping[str, Any], of: str) -> int:
    return int((status.get(of) or {}).get(GPU_RESOURCE, "0"))
