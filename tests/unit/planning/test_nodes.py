"""Nodes: which node objects of a cluster count as nodes to benchmark."""

from __future__ import annotations

from typing import Any

from trainbench.planning.nodes import AbsentNode, fleet_of


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

    assert [(n.name, n.num_gpus) for n in fleet_of(nodes).nodes] == [("gpu-a", 8), ("gpu-b", 8), ("small", 1)]


def test_a_node_that_other_work_is_kept_away_from_stays_in_the_fleet() -> None:
    kept_away = node("gpu-a", **{"trainbench.io/breach": "night-1"})
    kept_away["spec"]["taints"] = [{"key": "trainbench.io/breach", "value": "night-1", "effect": "NoSchedule"}]

    assert [usable.name for usable in fleet_of([kept_away]).nodes] == ["gpu-a"]


def test_the_labels_name_product_and_memory_of_a_gpu() -> None:
    """24,576 MiB are 25,769,803,776 bytes."""
    labels = {"nvidia.com/gpu.product": "NVIDIA-A10", "nvidia.com/gpu.memory": "24576"}
    (known,) = fleet_of([node("a", **labels)]).nodes
    (unlabelled,) = fleet_of([node("b")]).nodes
    (odd,) = fleet_of([node("c", **{"nvidia.com/gpu.memory": "much"})]).nodes

    assert (known.gpu_product, known.gpu_memory_bytes) == ("NVIDIA-A10", 25_769_803_776)
    assert (unlabelled.gpu_product, unlabelled.gpu_memory_bytes) == (None, None)
    assert odd.gpu_memory_bytes is None


def test_an_unused_gpu_node_is_listed_with_the_reason_and_whether_it_should_be_used() -> None:
    nodes = [
        node("gpu-1", ready="Unknown"),
        node("gpu-2", cordoned=True),
        node("gpu-10", **{"trainbench.io/quarantine": "new-driver"}),
        node("gpu-3"),
        node("gpu-4", 0, **{"nvidia.com/gpu.present": "true"}),
        node("web-1", 0),
    ]
    result = fleet_of(nodes, quarantine=["gpu-3"])

    assert result.nodes == ()
    assert result.absent == (
        AbsentNode(name="gpu-1", reason="not ready: its kubelet does not report", expected=True),
        AbsentNode(name="gpu-2", reason="cordoned", expected=False),
        AbsentNode(name="gpu-3", reason="in quarantine by TRAINBENCH_QUARANTINE", expected=False),
        AbsentNode(
            name="gpu-4",
            reason="it has no allocatable nvidia.com/gpu: look at its device plugin and driver",
            expected=True,
        ),
        AbsentNode(name="gpu-10", reason="in quarantine: new-driver", expected=False),
    )


def test_unhealthy_gpus_are_the_difference_to_the_capacity() -> None:
    one = node("a", 7)
    one["status"]["capacity"] = {"nvidia.com/gpu": "8"}

    assert (fleet_of([one]).nodes[0].num_gpus, fleet_of([one]).nodes[0].num_gpus_lost) == (7, 1)


def test_the_conditions_of_a_ready_node_may_report_trouble() -> None:
    """True is the trouble's own state, but for names that end in Ready or Healthy."""
    item = node("gpu-1")
    item["status"]["conditions"] += [
        {"type": "XidError", "status": "True", "message": "Xid 63", "reason": "RowRemap"},
        {"type": "AcceleratedHardwareReady", "status": "False", "reason": "NvidiaNVLinkError"},
        {"type": "NetworkingReady", "status": "True"},
        {"type": "KernelDeadlock", "status": "Unknown"},
    ]
    (known,) = fleet_of([item]).nodes

    assert known.troubles == ("XidError (Xid 63)", "not AcceleratedHardwareReady (NvidiaNVLinkError)")
    assert fleet_of([node("gpu-2")]).nodes[0].troubles == ()
