"""The DAGs by the real scheduler, triggerer and operator: deferrable, or sync where TRAINBENCH_DEFERRABLE=false.

The README of the stand-in says what it leaves out. On a real cluster they run on its own nodes, on the CPU, so that
GPUs are left to those who pay for them.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from bench_image.contract.result import Status
from tests.kube.after_fault import after_fault, after_night
from tests.kube.clusters import ROOT
from tests.kube.dag_runs import ENDLESS, NIGHT, POOL, SHORT, TINY, WHILE_A_POD_RUNS, Runs, nodes, occupy
from tests.kube.e2e import IS_REAL
from tests.kube.own_pods import names_of_ours, wait_until_ours_are_gone
from tests.standin import scripted_image
from trainbench.core.verdicts import BAD_LINK, Level, Why
from trainbench.planning.plan import campaign_id
from trainbench.results.campaign import Campaign

pytestmark = pytest.mark.slow
OF_STANDIN = pytest.mark.skipif(IS_REAL, reason="a real cluster's links have no known fault")


def use_standin_image(cluster: Any, folder: Path, run_s: int) -> None:
    """A made result after some seconds, by the node's name. A real cluster has no such thing."""
    folder.chmod(0o755)
    program = ROOT / "tests" / "dag" / "standin_image.py"
    made = scripted_image(folder, program, ROOT, PYTHONPATH=f"{ROOT}:{ROOT / 'plugins'}", STANDIN_S=f"{run_s}")
    cluster.set_images({"trainbench/bench:0.2.0": made})


def test_a_night_on_a_shared_cluster(cluster: Any, runs: Runs, tmp_path: Path) -> None:
    """Of three healthy nodes one loses its pod to other work once; a fourth is busy all night; one is not ready. The
    healthy ones are tainted: the installation's Pod template opens them.
    """
    use_standin_image(cluster, tmp_path, run_s=8)
    tainted = [{"key": "dedicated", "value": "ml", "effect": "NoSchedule"}]
    for name, taints in {"gpu-a": tainted, "gpu-bb": tainted, "gpu-ccc": tainted, "gpu-dddd": []}.items():
        cluster.add_node(name, gpus=1, product="NVIDIA-H200", memory_mib=143771, taints=taints)
    cluster.add_node("gpu-e", gpus=1, ready=False)
    occupy(cluster, "gpu-dddd")
    cluster.fault(action="preempt", moment="running", pod="tb-gpu-bb-", n=1)
    run_id = runs.start("node_consistency", rounds=1)
    state = runs.wait("node_consistency", run_id)
    campaign = runs.campaign("node_consistency", run_id)

    assert {node.node: node.why for node in campaign.nodes} == {
        "gpu-a": Why.WELL, "gpu-bb": Why.WELL, "gpu-ccc": Why.WELL, "gpu-dddd": Why.BUSY,
    }  # fmt: skip
    assert state == "success"
    planned = [node.node for node in campaign.nodes]
    after_night("preempted-once", "busy", planned=planned, campaign=campaign, is_green=state == "success")
    assert "Insufficient nvidia.com/gpu" in next(n.reason for n in campaign.nodes if n.node == "gpu-dddd")
    assert [f.subject for f in campaign.findings if f.category == "absent_node"] == ["gpu-e"]
    benchmarks = [state for (task, _), state in runs.tasks("node_consistency", run_id).items() if task == "benchmark"]
    assert sorted(benchmarks) == ["skipped", "success", "success", "success"]
    wait_until_ours_are_gone(cluster)
    assert [pod["status"]["phase"] for pod in cluster.pods()] == ["Running"]  # production was left alone
    # Once for each time that results are published, and never because of itself.
    (cost_run,) = runs.cost_reports_after(run_id)
    assert runs.wait("cost_report", cost_run) == "success"
    report = json.loads(
        (runs.state / "store" / "cost" / campaign_id("cost_report", cost_run) / "costs.json").read_text()
    )
    assert report["spend"][-1]["total"]["num_runs"] >= len(campaign.results)
    assert "cost_report" not in runs.causes_of_cost_reports()


def test_a_campaign_file_and_parts_of_ones_own_dag_wait_for_pods_as_our_dags_do(
    cluster: Any, runs: Runs, tmp_path: Path
) -> None:
    """The DAG of a file, a NodeCheck, and a sensor with a BenchmarkOperator behind it, which may go on by then."""
    use_standin_image(cluster, tmp_path, run_s=8)
    for name in POOL:
        cluster.add_node(name, gpus=1, product="NVIDIA-H200", memory_mib=143771)
    for dag_id, conf, waiting in (
        ("pool-by-night", {}, ("benchmark", 0)),
        ("driver_rollout", {"nodes": POOL}, ("check.benchmark", 0)),
        ("training", {"nodes": POOL}, ("measure", -1)),
    ):
        runs.wait_until_known(dag_id)
        run_id = runs.start(dag_id, **conf)
        runs.wait_for_task(dag_id, run_id, waiting, WHILE_A_POD_RUNS)
        state = runs.wait(dag_id, run_id)
        tasks = runs.tasks(dag_id, run_id)
        assert state == "success", tasks
        if dag_id != "training":
            assert {node.node: node.why for node in runs.campaign(dag_id, run_id).nodes} == dict.fromkeys(
                POOL, Why.WELL
            )
        wait_until_ours_are_gone(cluster)


@pytest.mark.skipif(
    not IS_REAL, reason="the stand-in runs the same pod in test_a_gang_meets_by_the_names_of_its_service"
)
def test_a_night_on_one_node(cluster: Any, runs: Runs) -> None:
    """The benchmark program itself, on whatever node there is."""
    params = {"nodes": nodes(cluster, 1), **NIGHT}
    run_id = runs.start("node_consistency", **params, **TINY, **SHORT)
    runs.wait("node_consistency", run_id)
    (result,) = runs.campaign("node_consistency", run_id).results

    assert (result.status, result.error) == (Status.OK, None)
    wait_until_ours_are_gone(cluster)


def test_a_run_marked_failed_by_hand_leaves_no_pod_and_stays_failed(cluster: Any, runs: Runs) -> None:
    """Audit K14: it ended as `success`."""
    params = {"nodes": nodes(cluster, 1), **NIGHT}
    run_id = runs.start("node_consistency", **params, **TINY, **ENDLESS)
    cluster.wait_for_pods(lambda pods: [pod["status"]["phase"] for pod in pods] == ["Running"])
    runs.mark_run("node_consistency", run_id, "failed")
    wait_until_ours_are_gone(cluster)
    runs.wait_for_task("node_consistency", run_id, ("gate", -1), "failed")

    assert runs.wait("node_consistency", run_id) == "failed"
    arrived = runs.store.read_results(campaign_id("node_consistency", run_id)).results
    after_fault("marked-failed", results=([], [run.spec.identity.node for run in arrived]), pods=names_of_ours(cluster))


# The search for bad links, gangs side by side.


def searched(cluster: Any, runs: Runs, folder: Path) -> tuple[str, Campaign, list[str]]:
    """State, campaign and the skipped tasks of a search over all nodes."""
    use_standin_image(cluster, folder, run_s=2)
    run_id = runs.start("interconnect", timeout_s=60)
    state = runs.wait("interconnect", run_id)
    skipped = [task for (task, _), told in runs.tasks("interconnect", run_id).items() if told == "skipped"]
    wait_until_ours_are_gone(cluster)
    return state, runs.campaign("interconnect", run_id), skipped


def blamed(campaign: Campaign) -> dict[tuple[str, ...], Level]:
    return {finding.nodes: finding.level for finding in campaign.findings if finding.category == BAD_LINK}


@OF_STANDIN
def test_a_slow_node_is_named_although_a_node_turns_busy_and_a_pod_dies(
    cluster: Any, runs: Runs, tmp_path: Path
) -> None:
    """Nine nodes in three groups. The group with the busy node runs again without it, in the second round, where one of
    its pods dies; in parts it passes, and nobody is blamed for it.
    """
    names = (*(f"gpu-{letter}" for letter in "abcdefgh"), "gpu-lame")
    for name in names:
        cluster.add_node(name, gpus=2, product="NVIDIA-H200", memory_mib=143771)
    occupy(cluster, "gpu-b")
    cluster.fault(action="oom", moment="running", pod="-r2-", delay_s=1, n=1)
    state, campaign, skipped = searched(cluster, runs, tmp_path)

    assert state == "failed"
    assert blamed(campaign) == {("gpu-lame",): Level.ERROR, ("gpu-a", "gpu-c"): Level.WARNING}
    assert [f.nodes for f in campaign.findings if f.category == "left_out_of_gangs"] == [("gpu-b",)]
    assert "round_14.rank" in skipped
