"""The parts for one's own DAG: the example of docs/own-dag.md, run for real by Airflow with the local launcher."""

from __future__ import annotations

from typing import Any

import pytest

from tests.dag.conftest import EXAMPLES, load_dags
from tests.dag.sinks import connection, http_sink
from trainbench.airflow import read_result
from trainbench.core.verdicts import Why
from trainbench.planning.plan import campaign_id

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


@pytest.mark.slow
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
