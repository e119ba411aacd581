"""The local launcher's nodes: names for this machine, with the GPUs that its driver lists."""

from __future__ import annotations

import pytest

from trainbench.cluster import local_nodes as local_fleet
from trainbench.cluster.local_nodes import visible_gpus
from trainbench.params.campaign_params import parse_params
from trainbench.settings.environment import read_settings

LISTED = """\
0, GPU-5f3c0000-1, 143771, NVIDIA H200
1, GPU-5f3c0000-2, 143771, NVIDIA H200
2, GPU-77aa0000-3, 143771, NVIDIA H200
"""
SETTINGS = read_settings({"TRAINBENCH_LAUNCHER": "local"})


@pytest.mark.parametrize(
    ("environ", "count"),
    [({}, 3), ({"CUDA_VISIBLE_DEVICES": "0,2"}, 2), ({"CUDA_VISIBLE_DEVICES": "GPU-77aa"}, 1)],
)
def test_all_gpus_that_a_process_here_sees_are_counted(environ: dict[str, str], count: int) -> None:
    """143,771 MiB x 2^20 = 150,754,820,096 bytes."""
    gpus = visible_gpus(environ, lambda: LISTED)

    assert gpus
    assert (gpus.num_gpus, gpus.gpu_product, gpus.gpu_memory_bytes) == (count, "NVIDIA H200", 150_754_820_096)


@pytest.mark.parametrize(
    ("environ", "listed"),
    [({}, None), ({}, "No devices were found"), ({"CUDA_VISIBLE_DEVICES": ""}, LISTED)],
)
def test_without_a_listed_gpu_the_report_has_none(environ: dict[str, str], listed: str | None) -> None:
    assert visible_gpus(environ, lambda: listed) is None


def test_a_box_with_gpus_is_one_node_with_all_of_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local_fleet, "listed_gpus", lambda: LISTED)
    monkeypatch.setattr("socket.gethostname", lambda: "Workstation-7")
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    (node,) = local_fleet.local_fleet(SETTINGS, parse_params({"device": "cuda"})).nodes

    assert (node.name, node.num_gpus, node.gpu_product) == ("workstation-7", 3, "NVIDIA H200")
    (named,) = local_fleet.local_fleet(SETTINGS, parse_params({"nodes": ["box"]})).nodes
    assert (named.name, named.num_gpus) == ("box", 3)


def test_a_trial_on_the_cpu_has_four_nodes_and_calls_no_driver(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local_fleet, "listed_gpus", lambda: pytest.fail("it has no GPU to ask for"))
    nodes = local_fleet.local_fleet(SETTINGS, parse_params({"device": "cpu"})).nodes

    assert [(node.name, node.num_gpus) for node in nodes] == [(f"node-{i}", None) for i in range(1, 5)]


def test_a_host_s_name_that_no_node_can_have_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("socket.gethostname", lambda: "my_host")

    assert local_fleet.machine_name() == "this-machine"
