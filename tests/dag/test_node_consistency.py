"""The DAG, run for real by Airflow: healthy, slow, flaky and broken nodes, from params to gate."""

from __future__ import annotations

import csv
import io
import json
import os
import subprocess
import sys
from typing import Any
from unittest.mock import Mock

import pytest

from tests.builders import make_result, make_spec
from tests.dag.conftest import load_dags, states, tasks_of
from tests.dag.sinks import connection, http_sink, smtp_sink
from tests.kube.after_fault import after_night
from trainbench.core.verdicts import Finding, Level, State, Why
from trainbench.orchestration import dag_tasks, plan_tasks
from trainbench.orchestration.plan_tasks import MAX_LINE
from trainbench.planning.plan import campaign_id
from trainbench.results.arrivals import PlannedCampaign

pytestmark = pytest.mark.slow
HEALTHY = ["gpu-a", "gpu-bb", "gpu-ccc"]
# Two rounds, so that the noise between runs is measured; the stand-in does not care for the rest.
CONF = {"device": "cuda", "model": "mistral-7b", "rounds": 2, "measured_steps": 50, "max_measured_steps": 200}


def run(dagbag: Any, **conf: Any) -> Any:
    return dagbag.dags["node_consistency"].test(run_conf=CONF | conf)


def campaign_of(store: Any, dag_run: Any) -> Any:
    return store.read_campaign(campaign_id("node_consistency", dag_run.run_id))


@pytest.mark.parametrize("dag_id", ["node_consistency", "strategy_scaling"])
def test_the_dag_parses_without_the_heavy_libraries(dag_id: str) -> None:
    """Each task of a night parses it in a process of its own: the Kubernetes client alone would be most of its work."""
    program = f"""
import sys
import runpy; runpy.run_path("dags/{dag_id}.py")
heavy = ("torch", "pandas", "matplotlib", "numpy", "kubernetes", "kubernetes_asyncio")
print([m for m in heavy if m in sys.modules])
"""
    on_cluster = os.environ | {"TRAINBENCH_LAUNCHER": "kubernetes", "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, env=on_cluster)

    assert done.stdout.strip().splitlines()[-1] == "[]"


def test_its_shape(dagbag: Any) -> None:
    dag = dagbag.dags["node_consistency"]

    assert dagbag.import_errors == {}
    assert [task.task_id for task in dag.topological_sort()] == [
        "ready", "plan", "divide", "benchmark", "judge", "confirm", "release", "publish", "alert", "gate",
    ]  # fmt: skip
    assert [task.task_id for task in dag.leaves] == ["gate"]
    assert (dag.catchup, dag.max_active_runs) == (False, 1)
    assert {run_type.value for run_type in dag.allowed_run_types} == {"manual", "scheduled"}
    retries = {task.task_id: task.retries for task in dag.tasks if task.retries}
    assert retries == {"ready": 3, "plan": 3, "release": 30, "judge": 3, "publish": 3, "alert": 3}
    assert dag.get_task("release").on_failure_fail_dagrun
    assert dag.render_template_as_native_obj is False


def test_notices_go_out_before_the_gate_which_alone_decides(airflow_db: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRAINBENCH_NOTIFY", json.dumps([{"kind": "webhook", "connection": "sink"}]))
    dag = load_dags().dags["node_consistency"]

    assert [task.task_id for task in dag.leaves] == ["gate"]
    assert dag.get_task("gate").upstream_task_ids == {"notify", "release"}
    assert dag.get_task("notify").retries == 3
    gate = dag.get_task("gate")
    assert (gate.is_teardown, gate.on_failure_fail_dagrun) == (True, True)  # a run marked failed by hand keeps its gate


def test_a_healthy_fleet_is_green_and_publishes_everything(dagbag: Any, store: Any) -> None:
    """Each pod is labelled by node, strategy and round; the micro-batch is left to the program."""
    nodes = [*HEALTHY, "gpu-dddd"]
    dag_run = run(dagbag, nodes=nodes, micro_batch_size="auto", gradient_checkpointing="auto")
    campaign = campaign_of(store, dag_run)
    labels = {ti.rendered_map_index for ti in dag_run.get_task_instances() if ti.task_id == "benchmark"}
    sizes = {(run.spec.work.micro_batch_size, run.effective_spec.work.micro_batch_size) for run in campaign.results}

    assert dag_run.state == "success"
    assert labels == {f"{node} / independent · round {round_}" for node in nodes for round_ in (1, 2)}
    assert tasks_of(campaign, dag_run) == {("benchmark", "mapped", index) for index in range(8)}
    assert sizes == {("auto", 8)}
    assert "notify" not in states(dag_run)  # no channel is configured
    assert [node.why for node in campaign.nodes] == [Why.WELL] * 4
    assert states(dag_run)["benchmark"] == ["success"] * 8
    assert states(dag_run)["confirm"] == ["skipped"]
    summary = store.root / "campaigns" / campaign.campaign_id / "summary"
    names = {"BENCHMARK_REPORT.md", "report.html", "COST_REPORT.md", "metrics.csv", "verdict.json"}
    assert names <= {path.name for path in summary.iterdir()}


def test_results_and_plan_are_in_the_store_before_anything_judges_them(dagbag: Any, store: Any) -> None:
    """The DAG run ends with its pods, as by `dagrun_timeout` or a killed scheduler: one node was silent."""
    dag = dagbag.dags["node_consistency"].partial_subset("benchmark", include_upstream=True)
    dag_run = dag.test(run_conf=CONF | {"rounds": 1, "nodes": ["gpu-a", "gpu-bb", "gpu-silent"]})
    name = campaign_id("node_consistency", dag_run.run_id)

    assert {"judge", "confirm", "publish"}.isdisjoint(task.task_id for task in dag.tasks)
    assert [result.spec.identity.node for result in store.read_results(name).results] == ["gpu-a", "gpu-bb"]
    assert PlannedCampaign.model_validate_json(store.read_plan(name)).plan.nodes == ("gpu-a", "gpu-bb", "gpu-silent")
    assert not store.has_verdict(name)


def test_publish_takes_from_the_store_what_airflow_no_longer_has(store: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Cleared after its XComs were deleted, or after the task was killed between storing and handing over."""
    stored = make_result("gpu-a")
    store.write_result(stored)
    specs = (stored.spec, make_spec(node="gpu-bb"))
    states = {"run-1": {"benchmark_0": "failed", "benchmark_1": "failed"}}
    ti = Mock(run_id="run-1", task_id="publish", xcom_pull=lambda **_: [None, None], get_task_states=lambda **_: states)
    monkeypatch.setattr(dag_tasks, "get_current_context", lambda: {"ti": ti})
    first, second = dag_tasks._collected("benchmark", specs)

    assert first == stored
    assert second.error is not None
    assert second.error.kind == "no_result"


def test_a_slow_node_is_confirmed_named_notified_and_turns_the_run_red(
    store: Any, airflow_db: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    channels = [
        {"kind": "mail", "to": ["oncall@example.org"]},
        {"kind": "webhook", "connection": "sink", "path": "hook"},
    ]
    monkeypatch.setenv("TRAINBENCH_NOTIFY", json.dumps(channels))
    with smtp_sink() as (smtp_port, mails), http_sink() as (http_port, posted):
        extra = {"disable_ssl": True, "disable_tls": True, "from_email": "bench@example.org"}
        smtp = connection(conn_type="smtp", host="127.0.0.1", port=smtp_port, extra=extra)
        monkeypatch.setenv("AIRFLOW_CONN_SMTP_DEFAULT", smtp)
        monkeypatch.setenv("AIRFLOW_CONN_SINK", connection(conn_type="http", host=f"http://127.0.0.1:{http_port}"))
        dag_run = run(load_dags(), nodes=[*HEALTHY, "gpu-slow"], rounds=1)
    campaign = campaign_of(store, dag_run)
    (slow,) = campaign.red_nodes

    assert dag_run.state == "failed"
    assert (slow.node, slow.why, slow.is_confirmed) == ("gpu-slow", Why.SLOW, True)
    assert states(dag_run)["confirm"] == ["success"] * 8  # the node and three controls, twice
    assert (states(dag_run)["alert"], states(dag_run)["gate"]) == (["success"], ["failed"])
    (alert,) = alerts_of(dag_run)
    assert alert.level is Level.ERROR
    assert alert.text.startswith("gpu-slow is slow: samples/s −")

    assert states(dag_run)["notify"] == ["success"]
    assert [mail["Subject"].split(":")[0] for mail in mails] == ["[trainbench] gpu-slow is slow"]
    assert [(path, body["notices"][0]["node"]) for path, body in posted] == [("/hook", "gpu-slow")]
    event = last_event("trainbench_breaches")
    assert (event["run_id"], event["num_red"], event["alerts"][0]["nodes"]) == (dag_run.run_id, 1, ["gpu-slow"])
    assert last_event("trainbench_results")["runs"] == {"total": 12, "ok": 12}


def test_a_node_that_its_re_runs_clear_is_looked_at_and_green(dagbag: Any, store: Any) -> None:
    dag_run = run(dagbag, nodes=[*HEALTHY, "gpu-flaky"], rounds=1)
    campaign = campaign_of(store, dag_run)
    flaky = next(node for node in campaign.nodes if node.node == "gpu-flaky")

    assert dag_run.state == "success"
    assert (flaky.state, flaky.why, flaky.is_confirmed) == (State.LOOK, Why.ONCE, False)


def test_a_drill_that_is_not_found_turns_the_run_red_and_says_why(
    dagbag: Any, store: Any, capfd: pytest.CaptureFixture[str]
) -> None:
    dag_run = run(dagbag, nodes=[*HEALTHY, "gpu-deaf"], drill_node="gpu-deaf", drill_slowdown_pct=20, rounds=1)
    out, err = capfd.readouterr()

    assert dag_run.state == "failed"
    assert campaign_of(store, dag_run).red_nodes == ()
    (alert,) = [alert for alert in alerts_of(dag_run) if alert.level is Level.ERROR]
    assert alert.text.startswith(
        "DRILL: gpu-deaf was slowed on purpose, and the check did not detect it: slowed by 20 %"
    )
    assert alert.text in out + err  # the gate's


def test_broken_results_fail_their_own_node_only(dagbag: Any, store: Any) -> None:
    broken = [f"gpu-{kind}" for kind in ("truncated", "nan", "foreign", "old-schema", "oversized", "silent", "oom")]
    dag_run = run(dagbag, nodes=[*HEALTHY, *broken], rounds=1)
    campaign = campaign_of(store, dag_run)
    by_node = {node.node: node for node in campaign.nodes}

    assert dag_run.state == "failed"
    assert {name for name, node in by_node.items() if node.why is Why.WELL} == set(HEALTHY)
    assert {name for name, node in by_node.items() if node.why is Why.FAILED} == set(broken)
    assert "schema_version 0" in by_node["gpu-old-schema"].reason
    assert "larger than the 16,000,000 bytes allowed" in by_node["gpu-oversized"].reason
    assert "result is not JSON" in by_node["gpu-truncated"].reason
    assert {f"gpu-{kind}" for kind in ("oversized", "silent")} == without_a_stored_result(dag_run)
    summary = store.root / "campaigns" / campaign.campaign_id / "summary"
    rows = list(csv.DictReader(io.StringIO((summary / "metrics.csv").read_text())))
    assert {row["node"]: row["status"] for row in rows}["gpu-oom"] == "oom"
    assert len(rows) == len(HEALTHY) + len(broken)
    is_green, planned = dag_run.state == "success", [*HEALTHY, *broken]
    after_night("old-schema", "nan", "oom", "foreign", planned=planned, campaign=campaign, is_green=is_green)


def test_a_plan_that_cannot_be_made_is_red_with_the_reason(
    dagbag: Any, store: Any, capfd: pytest.CaptureFixture[str]
) -> None:
    dag_run = run(dagbag, model="gpt9")
    out, err = capfd.readouterr()

    assert "not a known model" in out + err
    assert "no verdict: the task 'plan' failed: " in out + err
    assert_nobody_is_judged(dag_run, store)


def test_more_runs_than_airflow_maps_go_in_blocks(
    dagbag: Any, store: Any, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """3 runs, of which Airflow maps 2: two blocks of two places, and the last place has no run."""
    monkeypatch.setenv("AIRFLOW__CORE__MAX_MAP_LENGTH", "2")
    dag_run = run(dagbag, nodes=HEALTHY, rounds=1)
    out, err = capfd.readouterr()

    assert dag_run.state == "success"
    assert states(dag_run)["benchmark"] == ["success"] * 3 + ["skipped"]
    assert [result.spec.identity.node for result in campaign_of(store, dag_run).results] == HEALTHY
    assert max(map(len, (out + err).splitlines())) < MAX_LINE


def test_a_plan_that_was_stored_before_its_task_failed_judges_nobody(
    dagbag: Any, store: Any, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """Airflow's API server may allow fewer than this task reads in its own configuration: it refuses the places."""
    monkeypatch.setenv("AIRFLOW__CORE__MAX_MAP_LENGTH", "2")
    monkeypatch.setattr(plan_tasks, "max_map_length", lambda: 1024)
    dag_run = run(dagbag, nodes=HEALTHY, strategies=["single"])
    out, err = capfd.readouterr()

    assert "no verdict: the task 'plan' failed, its log says why" in out + err
    assert_nobody_is_judged(dag_run, store)


def assert_nobody_is_judged(dag_run: Any, store: Any) -> None:
    ran, name = states(dag_run), campaign_id("node_consistency", dag_run.run_id)
    assert dag_run.state == "failed"
    assert (ran["plan"], ran["gate"]) == (["failed"], ["failed"])
    assert (ran["judge"], ran["publish"], ran["alert"]) == (["upstream_failed"], ["skipped"], ["skipped"])
    assert not store.has_verdict(name)
    assert store.read_results(name).results == ()
    assert last_event("trainbench_breaches", of_run=dag_run.run_id) is None


def last_event(asset: str, of_run: str | None = None) -> Any:
    """The newest event's extra; with `of_run` of that DAG run, None if it sent none."""
    from airflow.models.asset import AssetEvent, AssetModel
    from airflow.settings import Session
    from sqlalchemy import select

    of_asset = select(AssetEvent.extra).join(AssetModel, AssetModel.id == AssetEvent.asset_id)
    if of_run is not None:
        of_asset = of_asset.where(AssetEvent.source_run_id == of_run)
    with Session() as session:
        return session.scalars(of_asset.where(AssetModel.name == asset).order_by(AssetEvent.id.desc())).first()


def without_a_stored_result(dag_run: Any) -> set[str]:
    """The nodes whose pod task left no return value in Airflow's database."""
    tis = [ti for ti in dag_run.get_task_instances() if ti.task_id == "benchmark"]
    return {
        ti.rendered_map_index.split(" / ")[0]
        for ti in tis
        if ti.xcom_pull(task_ids="benchmark", map_indexes=ti.map_index) is None
    }


def alerts_of(dag_run: Any) -> list[Finding]:
    (ti,) = [ti for ti in dag_run.get_task_instances() if ti.task_id == "alert"]
    value = ti.xcom_pull(task_ids="alert")
    return [Finding.model_validate(alert) for alert in (json.loads(value) if isinstance(value, str) else value)]
