"""The demo's lines: each names its node."""

from __future__ import annotations

from typing import Any

import pytest

from demo_progress import PlannedPod, Progress, planned_pods
from tests.builders import make_spec
from trainbench.cluster.running_pods import LivePod, parse_progress
from trainbench.orchestration.plan_tasks import chunk_key, hand_out
from trainbench.pods.manifests import Owner, PodSettings, manifest

NODES = ("node-1", "node-2")
PODS = {"benchmark": tuple(PlannedPod(f"pod-{node}", node) for node in NODES)}


def task(task_id: str, state: str | None, map_index: int = -1, **fields: Any) -> dict[str, Any]:
    known = {"start_date": "2026-11-22T14:00:00Z", "duration": None, "rendered_map_index": None}
    return {"task_id": task_id, "state": state, "map_index": map_index} | known | fields


def pod(node: str, *lines: str) -> LivePod:
    """`lines`: what its program has printed."""
    return LivePod(
        pod=f"pod-{node}",
        node=node,
        work="single",
        state="Running",
        why=None,
        age_s=1.0,
        progress=parse_progress(lines),
    )


def test_a_running_pod_is_named_before_airflow_renders_its_label() -> None:
    """It used to read "benchmark 1 running"."""
    assert Progress().of_tasks([task("benchmark", "running", 1)], PODS) == ("node-2: benchmark, running",)


@pytest.mark.parametrize("state", ["running", "success", "failed", "skipped", "upstream_failed"])
@pytest.mark.parametrize("map_index", [-1, 0, 1, 7])
def test_every_line_names_its_node_or_all_of_them(state: str, map_index: int) -> None:
    label = "node-3 / single · round 1" if map_index == 7 else None
    (line,) = Progress().of_tasks([task("benchmark", state, map_index, rendered_map_index=label)], PODS)

    who = {-1: "all nodes", 0: "node-1", 1: "node-2", 7: "node-3"}[map_index]
    assert line.startswith(f"{who}: benchmark, ")


def test_a_change_is_printed_once_and_waiting_pods_are_not() -> None:
    progress = Progress()
    assert progress.of_tasks([task("plan", None)], {}) == ()
    assert progress.of_tasks([task("plan", "success", duration=1.25)], {}) == ("all nodes: plan, success after 1.2 s",)
    assert progress.of_tasks([task("plan", "success", duration=1.25)], {}) == ()


def test_the_phases_of_a_pod_are_printed_once_with_its_node_and_its_windows_are_not() -> None:
    progress = Progress()
    printed = ["phase=import seconds_since_start=0.5"]
    assert progress.of_pods([pod("node-2", *printed)], PODS["benchmark"]) == ("node-2: loading the libraries",)
    assert progress.of_pods([pod("node-2", *printed)], PODS["benchmark"]) == ()

    printed += ["phase=measure seconds_since_start=9", "phase=measure window=2/3 steps=20 samples_per_s=41.25"]
    measuring = "node-2: measuring, in turn with the other nodes"
    assert progress.of_pods([pod("node-2", *printed)], PODS["benchmark"]) == (measuring,)
    printed += ["phase=measure window=3/3 steps=20 samples_per_s=41.25"]
    assert progress.of_pods([pod("node-2", *printed)], PODS["benchmark"]) == ()


def test_pods_of_another_run_on_this_machine_are_left_out() -> None:
    assert Progress().of_pods([pod("node-9", "phase=import seconds_since_start=0.5")], PODS["benchmark"]) == ()


def test_the_plan_s_runs_name_pods_and_nodes() -> None:
    """As the task `plan` hands them out: once it returned manifests, and the demo's lines lost their nodes."""

    class Task:
        def __init__(self) -> None:
            self.pushed: dict[str, Any] = {}

        def xcom_push(self, key: str, value: Any) -> None:
            self.pushed[key] = value

    ti, specs = Task(), [make_spec(node=node) for node in NODES]
    hand_out(ti, specs)
    pods = planned_pods(ti.pushed[chunk_key(0)])

    owner = Owner(dag_id="node_consistency", dag_run_id="manual")
    assert [pod.node for pod in pods] == list(NODES)
    assert [pod.name for pod in pods] == [manifest(spec, PodSettings(), owner)["metadata"]["name"] for spec in specs]
    assert planned_pods(None) == ()
