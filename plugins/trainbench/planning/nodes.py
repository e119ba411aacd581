"""The nodes to benchmark, and the absent ones, from the Kubernetes API's nodes (as plain dicts)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Any

from bench_image.contract.frozen import Frozen
from bench_image.contract.spec import WHOLE_GPU, is_slice
from trainbench.core.natural_order import natural

HOSTNAME = "kubernetes.io/hostname"
QUARANTINE = "trainbench.io/quarantine"  # its value is the reason
KEPT_AWAY = "trainbench.io/breach"  # key of the mark that keeps other work away from a node
# Labels of NVIDIA's GPU feature discovery; product and memory exist for each kind of MIG slice, too. AMD's labeller
# names the product only.
PRESENT = "nvidia.com/gpu.present"
REPLICAS = "nvidia.com/gpu.replicas"  # pods that share one GPU by time-slicing or MPS
PRODUCTS = (".product", ".product-name")  # suffixes to the name of the resource
MEMORY = ".memory"  # one GPU's, in MiB


class GpuNode(Frozen):
    """The facts about a node before anything runs on it; None: unknown."""

    name: str
    gpu_resource: str = WHOLE_GPU  # the extended resource of which one is one GPU
    other_gpu_resources: tuple[str, ...] = ()  # further GPU resources of the node; a run uses only one resource
    num_gpus: int | None = None  # allocatable
    num_gpus_lost: int = 0  # capacity minus allocatable: unhealthy by its device plugin
    gpu_product: str | None = None
    gpu_memory_bytes: int | None = None  # of one GPU
    topology: str | None = None  # the value of the installation's topology label
    troubles: tuple[str, ...] = ()  # faults of a ready node, from its conditions

    @property
    def num_gpus_per_run(self) -> int | None:
        """The most GPUs that one run can use together."""
        return self.num_gpus if self.num_gpus is None or not is_slice(self.gpu_resource) else min(self.num_gpus, 1)


class AbsentNode(Frozen):
    """A GPU node that is not benchmarked. `expected`: it was not taken out on purpose, so its absence is reported."""

    name: str
    reason: str
    expected: bool
    gpu_product: str | None = None
    gpu_resource: str = WHOLE_GPU


class Fleet(Frozen):
    """`nodes` can be benchmarked now; both are in natural order."""

    nodes: tuple[GpuNode, ...] = ()
    absent: tuple[AbsentNode, ...] = ()


def fleet_of(
    nodes: Iterable[Mapping[str, Any]],
    quarantine: Collection[str] = (),
    gpu_resources: Sequence[str] = (WHOLE_GPU,),
    topology_label: str | None = None,
) -> Fleet:
    """The cluster's GPU nodes: ready and schedulable ones with allocatable GPUs, and the others with the reason.

    `gpu_resources`: the extended resources that count as GPUs, the preferred first; a name may contain `*`.
    """
    usable, absent = [], []
    for node in nodes:
        gpu_node = _gpu_node(node, gpu_resources)
        if gpu_node is None:
            continue
        if topology_label and (place := (node["metadata"].get("labels") or {}).get(topology_label)):
            gpu_node = gpu_node.model_copy(update={"topology": str(place)})
        reason, expected = _obstacle(node, gpu_node, quarantine, gpu_resources)
        if reason:
            about = {name: getattr(gpu_node, name) for name in ("name", "gpu_product", "gpu_resource")}
            absent.append(AbsentNode(reason=reason, expected=expected, **about))
        else:
            usable.append(gpu_node)
    return Fleet(
        nodes=tuple(sorted(usable, key=lambda node: natural(node.name))),
        absent=tuple(sorted(absent, key=lambda node: natural(node.name))),
    )


def named_nodes(names: Iterable[str], known: Iterable[GpuNode] = ()) -> tuple[GpuNode, ...]:
    """One node for each name, in this order, with the facts of `known`."""
    by_name = {node.name: node for node in known}
    return tuple(by_name.get(name, GpuNode(name=name)) for name in names)


def nodes_with_commonest_gpu(nodes: Sequence[GpuNode]) -> tuple[GpuNode, ...]:
    """The nodes with the most common GPU, in order: a gang of different GPUs is as fast as the slowest."""
    kinds = Counter(node.gpu_product for node in nodes)
    most = max(kinds, key=lambda kind: (kinds[kind], kind or ""), default=None)
    return tuple(node for node in nodes if node.gpu_product == most)


def _obstacle(
    node: Mapping[str, Any], gpu_node: GpuNode, quarantine: Collection[str], gpu_resources: Sequence[str]
) -> tuple[str | None, bool]:
    """(why the node cannot be benchmarked, whether it is expected); (None, True): it can."""
    labels = node["metadata"].get("labels") or {}
    if QUARANTINE in labels:
        return f"in quarantine: {labels[QUARANTINE] or 'no reason given'}", False
    if gpu_node.name in quarantine:
        return "in quarantine by TRAINBENCH_QUARANTINE", False
    if node.get("spec", {}).get("unschedulable"):
        return "cordoned", False
    if trouble := not_ready(node):
        return trouble, True
    if str(labels.get(REPLICAS, "1")) not in ("0", "1"):
        return f"each of its GPUs is shared by {labels[REPLICAS]} pods: other work would change the figures", False
    if not gpu_node.num_gpus:
        return f"it has no allocatable {' or '.join(gpu_resources)}: look at its device plugin and driver", True
    return None, True


def not_ready(node: Mapping[str, Any]) -> str | None:
    """The time since which the node is not ready, and its condition's message; None: it is ready. Without reports of
    its kubelet a node has the status Unknown.
    """
    ready = next((c for c in node["status"].get("conditions") or () if c["type"] == "Ready"), {"status": "Unknown"})
    if ready.get("status") == "True":
        return None
    since = f" since {ready['lastTransitionTime']}" if ready.get("lastTransitionTime") else ""
    return f"not ready{since}: {ready.get('message') or ready.get('reason') or 'its kubelet does not report'}"


def _gpu_node(node: Mapping[str, Any], gpu_resources: Sequence[str]) -> GpuNode | None:
    """None for a node that has no GPUs now, by its last capacity, or by its labels."""
    labels, status = node["metadata"].get("labels") or {}, node.get("status") or {}
    allocatable = _counts(status, "allocatable", gpu_resources)
    capacity = _counts(status, "capacity", gpu_resources)
    offered = [name for name, number in allocatable.items() if number]
    had = [name for name, number in capacity.items() if number]
    is_labelled = labels.get(PRESENT) == "true" or any(f"{WHOLE_GPU}{product}" in labels for product in PRODUCTS)
    if not offered and not had and not (is_labelled and WHOLE_GPU in gpu_resources):
        return None
    resource = next(iter([*offered, *had]), WHOLE_GPU)
    products = (labels.get(f"{resource}{product}") for product in PRODUCTS)
    mebibytes = str(labels.get(f"{resource}{MEMORY}", ""))
    num_gpus = allocatable.get(resource, 0)
    return GpuNode(
        name=str(labels.get(HOSTNAME, node["metadata"]["name"])),
        gpu_resource=resource,
        other_gpu_resources=tuple(offered[1:]),
        num_gpus=num_gpus,
        num_gpus_lost=max(capacity.get(resource, 0) - num_gpus, 0),
        # Without a label the resource name identifies the kind, except for whole NVIDIA GPUs.
        gpu_product=next(filter(None, products), None if resource == WHOLE_GPU else resource),
        gpu_memory_bytes=int(mebibytes) * 2**20 if mebibytes.isdecimal() else None,
        troubles=_troubles(status.get("conditions") or ()),
    )


def _troubles(conditions: Iterable[Mapping[str, Any]]) -> tuple[str, ...]:
    """The faults in a node's conditions. By convention a condition names a fault (MemoryPressure, KernelDeadlock,
    XidError) that is present when True; one that ends in Ready or Healthy is a fault when False.
    """
    parts = []
    for condition in conditions:
        name, status = str(condition.get("type", "")), condition.get("status")
        if name != "Ready" and status == ("False" if name.endswith(("Ready", "Healthy")) else "True"):
            wanted = "" if status == "True" else "not "
            why = condition.get("message") or condition.get("reason")
            parts.append(f"{wanted}{name}{f' ({why})' if why else ''}")
    return tuple(parts)


def _counts(status: Mapping[str, Any], of: str, gpu_resources: Sequence[str]) -> dict[str, int]:
    """Resource -> number, in the order of `gpu_resources`; of resources that match one pattern, the largest slice
    first.
    """
    counts = status.get(of) or {}
    by_size = sorted(counts, key=natural, reverse=True)
    return {name: int(counts[name]) for pattern in gpu_resources for name in by_size if fnmatchcase(name, pattern)}
