"""The scaling study, run for real by Airflow with the stand-in image: gangs, what is not chosen, what fails."""

from __future__ import annotations

from typing import Any

import pytest

from bench_image.contract.result import Status
from tests.dag.conftest import states
from tests.kube.after_fault import after_night
from trainbench.planning.plan import campaign_id

pytestmark = pytest.mark.slow
# `dag.test()` runs a gang's pods one after another: the stand-in image does not wait for its peers.
CONF = {"device": "cuda", "model": "tier-a", "nodes": ["gpu-a", "gpu-bb"], "recipe": "full", "gpus_per_node": 1}


def run(dagbag: Any, **conf: Any) -> Any:
    return dagbag.dags["strategy_scaling"].test(run_conf=CONF | conf)


def campaign_of(store: Any, dag_run: Any) -> Any:
    return store.read_campaign(campaign_id("strategy_scaling", dag_run.run_id))


def test_its_shape(dagbag: Any) -> None:
    dag = dagbag.dags["strategy_scaling"]

    assert dagbag.import_errors == {}
    assert {name for name in dag.task_group_dict if name} == {
        "single_1_gpu", "own_1_gpu", "ddp_2_gpu", "fsdp_2_gpu", "zero2_2_gpu", "zero3_2_gpu", "own_2_gpu",
    }  # fmt: skip
    assert [task.task_id for task in dag.leaves] == ["gate"]
    # one gang at a time: each waits until the one before it is gone
    assert dag.get_task("fsdp_2_gpu.prepare").upstream_task_ids == {"ddp_2_gpu.release"}
    retried = {task.task_id.split(".")[-1] for task in dag.tasks if task.retries}
    assert retried == {"ready", "plan", "release", "publish", "alert"}
    assert "drill_node" not in dag.params


def test_each_rank_s_result_is_in_the_store_before_the_gang_is_joined(dagbag: Any, store: Any) -> None:
    dag = dagbag.dags["strategy_scaling"].partial_subset("ddp_2_gpu.rank", include_upstream=True)
    dag_run = dag.test(run_conf=CONF | {"strategies": ["ddp"], "world_sizes": ["2"]})
    name = campaign_id("strategy_scaling", dag_run.run_id)
    (result,) = store.read_results(name).results
    files = (store.root / "campaigns" / name / "runs" / result.spec.identity.run_id).iterdir()

    assert (result.status, result.spec.identity.peers) == (Status.OK, ("gpu-bb",))
    assert {path.name for path in files} == {"rank-0.json", "rank-0.log", "rank-1.json", "rank-1.log"}


def test_gangs_run_one_pod_per_node_and_the_report_has_them_all(dagbag: Any, store: Any) -> None:
    dag_run = run(dagbag, strategies=["single", "ddp", "fsdp"], world_sizes=["1", "2"])
    campaign = campaign_of(store, dag_run)
    seen = states(dag_run)

    assert dag_run.state == "success"
    assert seen["ddp_2_gpu.rank"] == ["success"] * 2
    assert seen["single_1_gpu.rank"] == ["success"]
    assert (seen["zero2_2_gpu.prepare"], seen["zero2_2_gpu.rank"]) == (["skipped"], ["skipped"])
    assert [(r.spec.placement.strategy.value, r.spec.placement.world_size, r.status) for r in campaign.results] == [
        ("single", 1, Status.OK), ("ddp", 2, Status.OK), ("fsdp", 2, Status.OK),
    ]  # fmt: skip
    assert campaign.groups == ()
    assert [(run.spec.identity.node, run.spec.identity.peers) for run in campaign.results][1] == ("gpu-a", ("gpu-bb",))


def test_a_gang_of_which_one_pod_fails_turns_the_run_red_with_the_cause(dagbag: Any, store: Any) -> None:
    dag_run = run(dagbag, nodes=["gpu-a", "gpu-silent"], strategies=["ddp", "fsdp"], world_sizes=["2"])
    campaign = campaign_of(store, dag_run)

    assert dag_run.state == "failed"
    assert [result.status for result in campaign.results] == [Status.INCOMPLETE, Status.INCOMPLETE]
    assert campaign.results[0].error.message.startswith("gpu-silent: ")
    assert states(dag_run)["fsdp_2_gpu.rank"] == ["success", "failed"]  # the next gang ran all the same
    assert states(dag_run)["ddp_2_gpu.release"] == ["success"]
    after_night(
        "rank-fails",
        planned=["ddp", "fsdp"],
        campaign=campaign,
        is_green=dag_run.state == "success",
        name=lambda result: result.spec.placement.strategy.value,
    )


def test_a_number_of_gpus_without_tasks_is_refused(dagbag: Any, store: Any) -> None:
    plan = dagbag.dags["strategy_scaling"].partial_subset("plan", include_upstream=True)
    dag_run = plan.test(run_conf=CONF | {"world_sizes": ["2", "16"]})

    assert dag_run.state == "failed"
    assert states(dag_run)["plan"] == ["failed"]
