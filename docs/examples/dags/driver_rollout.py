"""An example: nodes with a new driver are checked, and training starts only on nodes that are well."""

from __future__ import annotations

from typing import Any

from airflow.providers.http.notifications.http import HttpNotifier
from airflow.sdk import DAG, Asset, Param, get_current_context, task

from trainbench.airflow import BenchmarkOperator, NodeCheck, NodesWellSensor

DRIVER = Asset(name="gpu_driver", uri="x-gpus://driver")
NODES = Param(["gpu-1", "gpu-2", "gpu-3"], type="array", items={"type": "string"}, title="Nodes")
DRILL = Param(None, type=["null", "string"], title="Slow this node on purpose, to see that training does not start")


@task
def roll_out() -> dict[str, Any]:
    """Yours: install the driver, and say on which nodes."""
    params = get_current_context()["params"]
    return {"nodes": params["nodes"], "drill_node": params["drill_node"]}


@task(outlets=[DRIVER])
def hand_over() -> None:
    """Its event starts the DAG `training`."""


with DAG("driver_rollout", schedule=None, params={"nodes": NODES, "drill_node": DRILL}):
    rolled: Any = roll_out()
    check = NodeCheck(
        "check",
        parameters={"nodes": rolled["nodes"], "drill_node": rolled["drill_node"], "rounds": 2},
        on_failure_callback=HttpNotifier(http_conn_id="chat", json={"text": "{{ dag.dag_id }}: {{ exception }}"}),
    )
    check >> hand_over()

with DAG("training", schedule=[DRIVER], params={"nodes": NODES}):
    well = NodesWellSensor(task_id="nodes_are_well", nodes="{{ params.nodes | join(',') }}", max_age_h=24)
    measured = BenchmarkOperator(task_id="measure", node="{{ params.nodes[0] }}")

    @task
    def train(result: Any) -> None:
        """Yours."""

    well >> measured >> train(measured.output)
