"""Gangs on two nodes by the real scheduler, triggerer and operator: our program and a command, by torchrun and gloo."""

from __future__ import annotations

import shlex
from typing import Any

import pytest

from bench_image.contract.result import Status
from tests.kube.after_fault import after_fault, after_night
from tests.kube.dag_runs import ENDLESS, SHORT, TINY, Runs, nodes
from tests.kube.e2e import IS_REAL
from tests.kube.own_pods import names_of_ours, wait_until_ours_are_gone
from trainbench.core.verdicts import NODE_OF_GANGS

pytestmark = pytest.mark.slow
OF_STANDIN = pytest.mark.skipif(IS_REAL, reason="a real cluster's nodes have names of their own")


def test_a_gang_meets_by_the_names_of_its_service(cluster: Any, runs: Runs) -> None:
    params = {"nodes": nodes(cluster, 2), "strategies": ["single", "ddp"], "world_sizes": ["1", "2"]}
    run_id = runs.start("strategy_scaling", **params, **TINY, **SHORT)
    state = runs.wait("strategy_scaling", run_id)
    results = runs.campaign("strategy_scaling", run_id).results

    assert [(r.spec.placement.strategy.value, r.status, r.error) for r in results] == [
        ("single", Status.OK, None), ("ddp", Status.OK, None),
    ]  # fmt: skip
    assert [rank.rank for rank in results[1].ranks] == [0, 1]
    assert state == "success"
    wait_until_ours_are_gone(cluster)


def test_a_command_of_ones_own_joins_two_nodes_by_torchrun(cluster: Any, runs: Runs) -> None:
    """Each step is an all-reduce over both; the log of node rank 0 alone has steps."""
    code = (
        "import torch, torch.distributed as dist; dist.init_process_group('gloo')\n"
        "for n, one in enumerate([torch.ones(1) for _ in range(9)]):\n    dist.all_reduce(one)\n"
        "    if dist.get_rank() == 0: print('trainbench: step=%d seconds=0.25 samples=%d' % (n, 4 * int(one)))\n"
        # Else the first rank to end closes a connection in which the other still waits.
        "dist.barrier(); dist.destroy_process_group()"
    )
    joined = "--nnodes {nodes} --node-rank {node_rank} --master-addr {master_addr} --master-port {master_port}"
    command = f"python -m torch.distributed.run {joined} --no-python python -c {shlex.quote(code)}"
    params = {"nodes": nodes(cluster, 2), "world_sizes": ["2"], "gpus_per_node": 1, "job_warmup_steps": 0}
    run_id = runs.start("strategy_scaling", **params, device="cpu", command=command, timeout_s=120)
    state = runs.wait("strategy_scaling", run_id)
    (result,) = runs.campaign("strategy_scaling", run_id).results

    assert (result.status, result.error, result.spec.placement.nodes) == (Status.OK, None, 2)
    assert result.performance.samples_per_second == pytest.approx(32)
    assert state == "success"
    wait_until_ours_are_gone(cluster)


@OF_STANDIN
def test_a_command_that_one_node_lacks_is_that_node_s_fault(cluster: Any, runs: Runs) -> None:
    """The other rank's program runs until its pod is deleted, and leaves no result: its task says that it ran."""
    names = ["sleep", "lacks"]  # the command is the node's name
    for name in names:
        cluster.add_node(name, gpus=1)
    params = {"nodes": names, "world_sizes": ["2"], "gpus_per_node": 1, "device": "cpu", "timeout_s": 300}
    run_id = runs.start("strategy_scaling", **params, command="{node} 600")
    state, campaign = runs.wait("strategy_scaling", run_id), runs.campaign("strategy_scaling", run_id)

    assert state == "failed"
    assert [(alarm.category, alarm.nodes) for alarm in campaign.alarms] == [(NODE_OF_GANGS, ("lacks",))]
    assert "the command 'lacks' was not found" in campaign.alarms[0].summary
    after_night("rank-lacks", planned=["sleep"], campaign=campaign, is_green=False)
    wait_until_ours_are_gone(cluster)


def test_a_killed_rank_and_a_dead_node_end_their_gangs_and_are_the_causes(cluster: Any, runs: Runs) -> None:
    """Of two gangs on two nodes, in one study. The peer of a dead node waits for it until the peer timeout, half of
    `timeout_s`.
    """
    for name in ("node-1", "node-2"):
        cluster.add_node(name, gpus=1)
    for strategy, action in (("ddp", "oom"), ("fsdp", "lose_node")):
        cluster.fault(action=action, moment="running", pod=f"tb-node-2-{strategy}", delay_s=4, n=1)
    run_id = runs.start("strategy_scaling", strategies=["ddp", "fsdp"], world_sizes=["2"], **TINY, **ENDLESS)
    state, campaign = runs.wait("strategy_scaling", run_id), runs.campaign("strategy_scaling", run_id)
    killed, lost = (result.error for result in campaign.results)

    assert killed is not None
    assert lost is not None
    assert (killed.kind, killed.message[:8]) == ("host_out_of_memory", "node-2: ")
    assert (lost.kind, lost.message[:8]) == ("node_lost", "node-2: ")
    assert "node node-2 stopped answering" in lost.message
    strategy_of = lambda run: run.spec.placement.strategy  # noqa: E731
    is_green, planned = state == "success", ["ddp", "fsdp"]
    after_night("rank-oom-killed", planned=planned, campaign=campaign, is_green=is_green, name=strategy_of)
    stays = [name for name in names_of_ours(cluster) if not name.startswith("tb-node-2-fsdp")]
    after_fault("rank-oom-killed", pods=stays)
