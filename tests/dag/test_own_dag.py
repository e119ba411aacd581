"""The parts for one's own DAG: the example of docs/own-dag.md, run for real by Airflow with the local launcher."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from airflow.sdk import DAG, BaseOperator
from airflow.sdk.exceptions import AirflowFailException

from tests.dag.conftest import EXAMPLES, load_dags
from tests.dag.sinks import connection, http_sink
from trainbench.airflow import BenchmarkOperator, NodeCheck, NodesWellSensor, read_result
from trainbench.core.states import NodeState
from trainbench.core.verdicts import State, Why
from trainbench.orchestration.nodes_well import not_well
from trainbench.params.refusals import ParamsError
from trainbench.planning.plan import campaign_id

pytestmark = pytest.mark.slow
NODES = ["gpu-a", "gpu-bb", "gpu-ccc"]
CHECK = [
    "ready", "plan", "divide", "benchmark", "judge", "confirm", "release", "publish", "alert", "gate",
]  # fmt: skip


@pytest.fixture
def dags(airflow_db: None, store: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setenv("STANDIN_CLOCK", "real")
    bag = load_dags(EXAMPLES, "examples")
    assert bag.import_errors == {}
    return bag.dags


def states(dag_run: Any) -> dict[str, str]:
    return {ti.task_id: str(ti.state) for ti in dag_run.get_task_instances()}


def test_nodes_that_are_well_are_handed_over_and_train(dags: Any, store: Any) -> None:
    rollout = dags["driver_rollout"].test(run_conf={"nodes": NODES})
    campaign = store.read_campaign(campaign_id("driver_rollout", rollout.run_id))

    assert rollout.state == "success"
    assert states(rollout) == {
        "roll_out": "success",
        "hand_over": "success",
        **{f"check.{name}": "skipped" if name == "confirm" else "success" for name in CHECK},
    }
    assert [(node.node, node.why) for node in campaign.nodes] == [(node, Why.WELL) for node in NODES]
    assert "All 3 nodes are well" in note_of(rollout)

    training = dags["training"].test(run_conf={"nodes": NODES})
    assert training.state == "success"
    (ti,) = [ti for ti in training.get_task_instances() if ti.task_id == "measure"]
    result = read_result(ti.xcom_pull(task_ids="measure"))
    assert (result.spec.identity.node, result.status) == ("gpu-a", "ok")


def test_a_drill_fails_the_gate_tells_the_notifier_and_stops_what_follows(
    dags: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    with http_sink() as (port, posted):
        monkeypatch.setenv("AIRFLOW_CONN_CHAT", connection(conn_type="http", host=f"http://127.0.0.1:{port}"))
        rollout = dags["driver_rollout"].test(run_conf={"nodes": NODES, "drill_node": "gpu-bb"})
    ran = states(rollout)

    assert rollout.state == "failed"
    assert (ran["check.alert"], ran["check.gate"], ran["hand_over"]) == ("success", "failed", "upstream_failed")
    ((_, body),) = posted
    assert body["text"].startswith("driver_rollout: DRILL: gpu-bb ")

    training = dags["training"].test(run_conf={"nodes": NODES})
    assert training.state == "failed"
    assert states(training)["train"] == "upstream_failed"


def note_of(dag_run: Any) -> str:
    from airflow.models.dagrun import DagRun
    from airflow.settings import Session
    from sqlalchemy import select

    from trainbench.alerting.run_note import write_note

    with Session() as session:
        row = session.scalar(select(DagRun).where(DagRun.id == dag_run.id))
        write_note(row)  # as the scheduler does: `test` ends a run without its listeners
        note = str(row.note)
        session.rollback()
    return note


def test_what_follows_a_check_follows_its_gate_and_its_tasks_know_their_retries() -> None:
    with DAG("own", default_args={"retries": 7}) as dag:
        NodeCheck("check") >> BaseOperator(task_id="train")

    assert dag.get_task("train").upstream_task_ids == {"check.gate"}
    assert not dag.get_task("check.gate").is_teardown
    retries = {task.task_id: task.retries for task in dag.tasks}
    assert (retries["check.gate"], retries["check.plan"], retries["check.release"], retries["train"]) == (0, 3, 30, 7)


def test_a_check_that_cannot_run_is_an_import_error() -> None:
    with DAG("own"):
        with pytest.raises(
            ParamsError, match=r"noeds \(did you mean 'nodes'\?\) is not a parameter of node_consistency"
        ):
            NodeCheck("a", parameters={"noeds": ["gpu-1"]})
        with pytest.raises(ParamsError, match="rounds"):
            NodeCheck("b", parameters={"rounds": 0, "nodes": "{{ params.nodes }}"})
        with pytest.raises(ValueError, match="parameters has 'nodes'"):
            BenchmarkOperator(task_id="c", node="gpu-1", parameters={"nodes": ["gpu-2"]})
        with pytest.raises(ValueError, match="max_age_h is 0: give hours"):
            NodesWellSensor(task_id="d", nodes=["gpu-1"], max_age_h=0)
        NodeCheck("first")
        with pytest.raises(ValueError, match=r"the DAG 'own' has a NodeCheck already, with the task first\.gate: "):
            NodeCheck("second")


def test_a_node_without_a_fresh_verdict_stops_the_sensor(store: Any) -> None:
    sensor = NodesWellSensor(task_id="well", nodes="gpu-a, gpu-b", max_age_h=24)

    with pytest.raises(
        Exception, match=r"^gpu-a has no verdict of the last 24 h, and never had one \(next: run the check\); gpu-b has"
    ):
        NodesWellSensor(task_id="well", nodes=["gpu-a", "gpu-b"], max_age_h=24, mode="poke").execute({})
    assert sensor.mode == "reschedule"
    with pytest.raises(AirflowFailException, match="nodes is ' ,': name at least one node"):
        NodesWellSensor(task_id="none", nodes=" ,").poke({})


def test_each_node_that_is_not_well_is_told_with_since_when_and_what_next() -> None:
    at = datetime(2026, 11, 26, 2, tzinfo=UTC)
    states = [
        NodeState("gpu-1", State.WELL, Why.WELL, since=at),
        NodeState("gpu-2", State.NOT_CHECKED, Why.STALE, "last on 26 Nov 2026", at),
        NodeState("gpu-3", State.RED, Why.BROKEN_GPU, "Xid 79", at),
    ]

    assert not_well(states[:1], 24) == ""
    assert not_well(states, 24) == (
        "gpu-3 has a broken GPU: Xid 79, since 2026-11-26 02:00:00 UTC (next: drain the node and have the GPU tested); "
        "gpu-2 has no verdict of the last 24 h, its last is of 2026-11-26 02:00:00 UTC (next: run the check)"
    )
