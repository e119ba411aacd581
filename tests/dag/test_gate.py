"""The gate: what turns a DAG run red, and in which words."""

from __future__ import annotations

from typing import Any
from unittest.mock import Mock

import pytest
from airflow.sdk.exceptions import AirflowFailException, AirflowSkipException

from tests.kube.after_fault import after_fault
from tests.unit.judging.test_checks import BUSY, NO_ROOM, PLAN, campaign_of, failed_runs
from trainbench.alerting.run_summary import alerts
from trainbench.core.verdicts import Finding, Level


@pytest.fixture
def gate(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Runs the gate over the states of a DAG run's tasks and the alerts that were raised."""
    from trainbench.orchestration import dag_tasks

    def run(states: dict[str, str], raised: list[dict[str, Any]] | None, group: str = "") -> None:
        ti = Mock(dag_id="nightly", run_id="r1", task_id=f"{group}gate")
        ti.get_task_states.return_value = {"r1": states}
        ti.xcom_pull.side_effect = lambda task_ids, key="return_value": raised if task_ids == f"{group}alert" else None
        monkeypatch.setattr(dag_tasks, "get_current_context", lambda: {"ti": ti})
        dag_tasks.gate.function()

    return run


def red_reason(gate: Any, states: dict[str, str], raised: list[dict[str, Any]] | None) -> str:
    """Empty where the gate is green."""
    try:
        gate(states, raised)
    except AirflowFailException as red:
        return str(red)
    return ""


def test_pods_that_could_not_be_removed_turn_a_good_night_red(gate: Any) -> None:
    """A failed release was invisible: the run was a success, and its pods held their GPUs."""
    gate({"release": "success", "alert": "success"}, [])
    with pytest.raises(
        AirflowFailException, match=r"pods of this run may still run, .*: release failed, .*`housekeeping` deletes them"
    ):
        gate({"release": "failed", "alert": "success"}, [])
    reason = red_reason(gate, {"release": "failed", "alert": "success"}, [])
    after_fault("release-fails", "pod-not-deletable", green=(not reason, ["release"]), cause=reason)


def test_a_run_marked_failed_by_hand_is_red_and_one_marked_successful_is_left_alone(gate: Any) -> None:
    """Audit K14: Airflow skips all tasks but the teardowns then, and the run ended as `success`."""
    skipped = {"judge": "skipped", "publish": "skipped", "alert": "skipped", "release": "success"}
    reason = red_reason(gate, {**skipped, "plan": "success", "benchmark_0": "failed"}, None)
    assert "marked failed by hand" in reason
    after_fault("marked-failed", green=(not reason, ["benchmark_0"]), cause=reason)
    gate({**skipped, "plan": "success", "benchmark_0": "success"}, None)
    with pytest.raises(AirflowFailException, match="the task 'plan' failed"):
        gate({**skipped, "plan": "failed", "benchmark_0": "upstream_failed"}, None)


def test_each_gang_that_could_not_be_removed_is_named(gate: Any) -> None:
    with pytest.raises(AirflowFailException, match=r"ddp_2_gpu\.release and fsdp_2_gpu\.release failed"):
        gate({"ddp_2_gpu.release": "failed", "single.release": "skipped", "fsdp_2_gpu.release": "failed"}, [])


def test_a_red_node_is_named_before_what_was_left_behind(gate: Any) -> None:
    slow = Finding(
        level=Level.ERROR, category="low_clock", nodes=("node-3",), measured="-20 %", expected="5 %",
        summary="is slow: samples/s -20 %", resolution="drain it",
    )  # fmt: skip
    with pytest.raises(AirflowFailException, match=r"^node-3 is slow: samples/s -20 %; pods of this run may still run"):
        gate({"release": "failed"}, [slow.model_dump(mode="json")])


def test_a_night_whose_report_is_written_and_whose_history_is_not_does_not_end_green(gate: Any) -> None:
    """`publish` writes the report first: `alert` reads it although the history failed."""
    assert red_reason(gate, {"publish": "failed", "alert": "success"}, []) == (
        "the task 'publish' failed, its log says why: the report may be older, and the history may lack this run"
    )


def test_a_night_in_which_every_node_was_busy_does_not_end_green(gate: Any) -> None:
    """Nothing was checked: the gate says so, and why, in one sentence."""
    campaign = campaign_of(PLAN, failed_runs(PLAN, BUSY, BUSY, BUSY, BUSY))
    raised = [alert.model_dump(mode="json") for alert in alerts(campaign)]

    with pytest.raises(AirflowFailException) as red:
        gate({"benchmark": "skipped", "release": "success", "alert": "success"}, raised)
    assert str(red.value) == f"night-7: no run gave a figure. 4 runs found no free node ({NO_ROOM})"


def test_within_a_group_only_the_tasks_of_the_group_count(gate: Any) -> None:
    others = {"publish": "failed", "other.release": "failed", "train": "failed"}
    gate({"check.release": "success", "check.publish": "success", **others}, [], "check.")
    with pytest.raises(AirflowFailException, match=r"check\.release failed, its log names them"):
        gate({"check.release": "failed", **others}, [], "check.")


def test_within_a_group_nothing_follows_without_a_verdict(gate: Any) -> None:
    """A gate that is green without a verdict would let the training start on nodes that nobody checked."""
    with pytest.raises(AirflowFailException, match="no verdict: a task before this check failed"):
        gate({"check.ready": "upstream_failed", "check.alert": "skipped"}, None, "check.")
    with pytest.raises(AirflowSkipException, match="the check was skipped, and so is what follows it"):
        gate({"check.ready": "skipped", "check.alert": "skipped"}, None, "check.")
    with pytest.raises(AirflowFailException, match="no verdict: the task 'alert' failed, its log says why"):
        gate({"check.ready": "success", "check.plan": "skipped", "check.alert": "skipped"}, None, "check.")
