"""config_diagnosis and hardware_survey, run for real by Airflow with the stand-in image: one run each."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from bench_image.contract.result import Status
from tests.dag.conftest import states, tasks_of
from trainbench.params.campaign_kind import CampaignKind
from trainbench.params.variants import VARIANTS
from trainbench.planning.plan import campaign_id

pytestmark = pytest.mark.slow
DAGS = ("config_diagnosis", "hardware_survey")
CONF = {"device": "cuda", "measured_steps": 50, "max_measured_steps": 200}


def run(dagbag: Any, store: Any, dag_id: str, **conf: Any) -> tuple[Any, Any, str]:
    """The DAG run, its campaign, and its report."""
    dag_run = dagbag.dags[dag_id].test(run_conf=CONF | conf)
    campaign = store.read_campaign(campaign_id(dag_id, dag_run.run_id))
    summary = store.root / "campaigns" / campaign.campaign_id / "summary"
    return dag_run, campaign, (summary / "BENCHMARK_REPORT.md").read_text()


@pytest.mark.parametrize("dag_id", DAGS)
def test_its_shape(dagbag: Any, dag_id: str) -> None:
    from airflow.serialization.serialized_objects import DagSerialization

    dag = dagbag.dags[dag_id]

    assert dagbag.import_errors == {}
    assert [task.task_id for task in dag.topological_sort()] == [
        "ready", "plan", "divide", "benchmark", "release", "publish", "alert", "gate",
    ]  # fmt: skip
    assert [task.task_id for task in dag.leaves] == ["gate"]
    assert dag.get_task("benchmark").max_active_tis_per_dagrun == 1
    assert (dag.schedule, dag.catchup, bool(dag.doc_md)) == (None, False, True)
    # pods are mapped, not unrolled, and no task holds a copy of the form
    assert len(json.dumps(DagSerialization.serialize_dag(dag))) < 40_000
    assert "airflow" in Path(dag.fileloc).read_text().lower()  # or Airflow would not look into it


def test_each_form_has_the_fields_of_its_comparison(dagbag: Any) -> None:
    forms = {dag_id: set(dag.params) for dag_id, dag in dagbag.dags.items() if dag_id in (*DAGS, "node_consistency")}

    assert {"variants", "model", "rounds"} <= forms["config_diagnosis"]
    assert not {"models", "budgets_usd", "drill_node", "strategies", "levels"} & forms["config_diagnosis"]
    assert {"models", "recipes", "nodes_per_gpu_type", "budgets_usd", "world_sizes"} <= forms["hardware_survey"]
    assert not {"variants", "model", "recipe", "noise_floor", "gpus_per_node"} & forms["hardware_survey"]
    assert not {"variants", "models", "budgets_usd"} & forms["node_consistency"]


def test_six_fields_at_most_are_in_view_and_each_dag_says_what_it_answers(dagbag: Any) -> None:
    """Airflow opens the section of the fields that name none."""
    in_view = {
        dag_id: [name for name in dag.params if "section" not in dag.params.get_param(name).schema]
        for dag_id, dag in dagbag.dags.items()
        if dag_id not in ("housekeeping", "metrics")
    }

    assert in_view == {
        "node_consistency": ["nodes", "strategies", "model", "recipe", "quick", "drill_node"],
        "strategy_scaling": ["nodes", "strategies", "world_sizes", "model", "recipe", "quick"],
        "config_diagnosis": ["variants", "nodes", "model", "recipe", "quick"],
        "hardware_survey": ["models", "recipes", "nodes", "strategies", "world_sizes", "quick"],
        "interconnect": ["nodes", "model", "recipe", "quick"],
        "cost_report": ["month", "months", "usd_per_gpu_hour", "purchase_usd_per_gpu"],
    }
    assert all(list(dagbag.dags[dag_id].params)[: len(names)] == names for dag_id, names in in_view.items())
    texts = [dag.params.get_param(name).schema["description_md"] for dag in dagbag.dags.values() for name in dag.params]
    assert not [text for text in texts if "`" in text]  # Airflow's form draws code over its neighbours
    optimizer = dagbag.dags["node_consistency"].params.get_param("optimizer").schema
    assert optimizer["values_display"] == {"null": "automatic"}
    assert dagbag.dags["strategy_scaling"].description == "Which strategy should we train with?"
    assert all(dag.description.endswith("?") for dag in dagbag.dags.values())


def test_a_diagnosis_runs_in_turn_and_an_oom_is_a_row(dagbag: Any, store: Any) -> None:
    dag_run, campaign, report = run(
        dagbag,
        store,
        "config_diagnosis",
        model="mistral-7b",
        nodes=["gpu-tight"],
        variants=["fp16", "checkpointing off", "QLoRA + both"],
        rounds=2,
    )
    labels = [ti.rendered_map_index for ti in dag_run.get_task_instances() if ti.task_id == "benchmark"]

    assert dag_run.state == "success"
    assert sorted(labels) == sorted(
        f"gpu-tight / {name} · round {round_}"
        for round_ in (1, 2)
        for name in ("baseline", "fp16", "checkpointing off")
    )
    assert tasks_of(campaign, dag_run) == {("benchmark", "mapped", index) for index in range(6)}
    assert campaign.campaign_kind is CampaignKind.CONFIGURATIONS
    assert [campaign.labels[r.spec.identity.group_id] for r in campaign.results] == [
        "baseline",
        "fp16",
        "checkpointing off",
    ] * 2
    assert [r.status for r in campaign.results] == [Status.OK, Status.OK, Status.OOM] * 2
    words = re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", report)  # without its links
    assert "| failed | checkpointing off | oom: CUDA out of memory" in words
    assert "| no difference | fp16 | 1.0" in words
    assert VARIANTS["fp16"].tests in report
    assert "none: the work of baseline" in report


def test_a_survey_reports_and_then_turns_red_for_a_pod_that_failed(dagbag: Any, store: Any) -> None:
    dag_run, campaign, report = run(
        dagbag,
        store,
        "hardware_survey",
        nodes=["gpu-a", "gpu-silent"],
        models=["gpt2"],
        recipes=["lora"],
        world_sizes=["1", "2"],
        micro_batch_size=8,
        rounds=1,
    )
    seen = states(dag_run)

    assert (dag_run.state, seen["publish"], seen["alert"], seen["gate"]) == (
        "failed", ["success"], ["success"], ["failed"],
    )  # fmt: skip
    assert sorted(seen["benchmark"]) == ["failed", "failed", "success", "success"]
    assert campaign.campaign_kind is CampaignKind.HARDWARE
    assert {campaign.labels[r.spec.identity.group_id] for r in campaign.results} == {
        "gpt2 lora",
        "gpt2 lora, ddp on 2 GPUs",
    }
    assert "## Hardware, side by side" in report
    assert "### What a budget buys, rented" in report
