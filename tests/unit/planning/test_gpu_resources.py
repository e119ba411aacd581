"""GPUs by any name: MIG slices and other vendors' GPUs are found, planned, and never compared with whole ones."""

from __future__ import annotations

from typing import Any

import pytest

from bench_image.contract.spec import Placement
from trainbench.params.campaign_kind import CampaignKind
from trainbench.params.campaign_params import parse_params
from trainbench.planning.nodes import Fleet, GpuNode, fleet_of
from trainbench.planning.plan import PlanError, make_plan
from trainbench.planning.planners import PLANNERS
from trainbench.pods.manifests import PodSettings, manifest

EVERY = ("nvidia.com/gpu", "nvidia.com/mig-*", "amd.com/gpu")
SMALL, LARGE = "nvidia.com/mig-1g.10gb", "nvidia.com/mig-3g.40gb"


def node(name: str, resources: dict[str, int], **labels: str) -> dict[str, Any]:
    counts = {key: str(number) for key, number in resources.items()}
    ready = [{"type": "Ready", "status": "True"}]
    return {
        "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name, **labels}},
        "status": {"allocatable": counts, "capacity": counts, "conditions": ready},
    }


WHOLE = node("whole", {"nvidia.com/gpu": 8}, **{"nvidia.com/gpu.product": "NVIDIA-H100"})
SLICED = node("sliced", {SMALL: 7}, **{f"{SMALL}.product": "NVIDIA-H100-MIG-1g.10gb", f"{SMALL}.memory": "9984"})
AMD = node("amd", {"amd.com/gpu": 8}, **{"amd.com/gpu.product-name": "AMD_Instinct_MI300X"})


def test_nodes_of_every_listed_resource_are_found_with_their_own_labels() -> None:
    """9,984 MiB are 10,468,982,784 bytes: the slice's memory, not the GPU's."""
    by_name = {n.name: n for n in fleet_of([WHOLE, SLICED, AMD], (), EVERY).nodes}

    assert {n.name: (n.gpu_resource, n.num_gpus, n.gpu_product) for n in by_name.values()} == {
        "whole": ("nvidia.com/gpu", 8, "NVIDIA-H100"),
        "sliced": (SMALL, 7, "NVIDIA-H100-MIG-1g.10gb"),
        "amd": ("amd.com/gpu", 8, "AMD_Instinct_MI300X"),
    }
    assert by_name["sliced"].gpu_memory_bytes == 10_468_982_784


def test_of_several_resources_of_a_node_the_preferred_is_used_and_the_others_are_named() -> None:
    mixed = node("mixed", {"nvidia.com/gpu": 4, SMALL: 7, LARGE: 2})
    (as_listed,) = fleet_of([mixed], (), EVERY).nodes
    (slices,) = fleet_of([mixed], (), ("nvidia.com/mig-*",)).nodes

    assert (as_listed.gpu_resource, as_listed.other_gpu_resources) == ("nvidia.com/gpu", (LARGE, SMALL))
    assert (slices.gpu_resource, slices.num_gpus, slices.other_gpu_resources) == (LARGE, 2, (SMALL,))


def test_gpus_that_several_pods_share_are_not_measured() -> None:
    shared = node("shared", {"nvidia.com/gpu": 32}, **{"nvidia.com/gpu.replicas": "4"})
    whole = node("whole", {"nvidia.com/gpu": 8}, **{"nvidia.com/gpu.replicas": "1"})
    actual = fleet_of([shared, whole])

    assert [n.name for n in actual.nodes] == ["whole"]
    (absent,) = actual.absent
    assert absent.reason == "each of its GPUs is shared by 4 pods: other work would change the figures"
    assert not absent.expected


def test_a_node_that_lost_its_slices_is_absent_with_the_resources_that_were_looked_for() -> None:
    lost = node("lost", {SMALL: 0}) | {}
    lost["status"]["capacity"] = {SMALL: "7"}
    (absent,) = fleet_of([lost], (), ("nvidia.com/mig-*", "amd.com/gpu")).absent

    assert absent.reason.startswith("it has no allocatable nvidia.com/mig-* or amd.com/gpu: look at its device plugin")
    assert (absent.expected, absent.gpu_resource) == (True, SMALL)


def test_a_night_gives_each_kind_its_own_resource_and_its_own_group() -> None:
    """So that nodes are judged against nodes of the same resource only."""
    actual = fleet_of([WHOLE, SLICED, AMD], (), EVERY)
    params = parse_params({"strategies": ["independent"], "rounds": 1, "force": True, "model": "tier-a"})
    specs = make_plan(params, actual, "campaign-1").specs
    limits = {
        spec.identity.node: manifest(spec, PodSettings(gpu_resources=EVERY))["spec"]["containers"][0]["resources"]
        for spec in specs
    }

    assert limits == {
        "whole": {"limits": {"nvidia.com/gpu": "8"}},
        "sliced": {"limits": {SMALL: "1"}},  # CUDA sees one slice
        "amd": {"limits": {"amd.com/gpu": "8"}},
    }
    assert len({spec.identity.group_id for spec in specs}) == len({spec.fingerprint for spec in specs}) == 3
    keys = {manifest(spec, PodSettings())["spec"]["tolerations"][0]["key"] for spec in specs}
    assert keys == {"nvidia.com/gpu", "amd.com/gpu"}


def test_slices_are_not_joined_and_the_plan_says_why() -> None:
    actual = fleet_of([SLICED], (), EVERY)
    params = parse_params({"strategies": ["ddp", "single"], "rounds": 1, "force": True, "model": "tier-a"})
    (skipped,) = make_plan(params, actual, "campaign-1").skipped
    assert skipped.reason.endswith(f"a run takes one {SMALL}: CUDA and NCCL join no MIG slices")

    two = Fleet(nodes=tuple(GpuNode(name=name, gpu_resource=SMALL, num_gpus=7) for name in "ab"))
    form = {"strategies": ["single", "ddp"], "world_sizes": [1, 2], "force": True}
    planner = PLANNERS[CampaignKind.STRATEGIES]
    (ddp,) = planner.make(planner.params(form, locally=False), two, "campaign-1").skipped
    assert ddp.reason == f"needs 2 GPUs, the node has {SMALL}: CUDA and NCCL join no MIG slices"


def test_a_gang_of_two_resources_is_refused() -> None:
    planner = PLANNERS[CampaignKind.STRATEGIES]
    params = planner.params({"nodes": ["whole", "amd"], "force": True}, locally=False)
    with pytest.raises(PlanError, match=r"different kinds of GPU \(amd.com/gpu and nvidia.com/gpu\)"):
        planner.make(params, fleet_of([WHOLE, AMD], (), EVERY), "campaign-1")


def test_a_whole_nvidia_gpu_is_the_same_work_however_it_was_counted() -> None:
    assert "gpu_resource" not in Placement().canonical()
    assert Placement(gpu_resource="amd.com/gpu").canonical()["gpu_resource"] == "amd.com/gpu"
