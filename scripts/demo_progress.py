"""The demo's progress: one line for each change, and each line names its node.

Pure: task instances as Airflow's API lists them, and the pods that run now, go in; lines come out.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from trainbench.cluster.running_pods import LivePod
from trainbench.orchestration.plan_tasks import PlannedRun
from trainbench.pods.manifests import pod_name

ALL = "all nodes"
SHOWN = {"running", "success", "failed", "skipped", "upstream_failed"}
ENDED = {"success", "failed"}
PLANNED_BY = {"benchmark": "plan", "confirm": "judge"}  # pod task -> the task that hands out its runs
PHASES = {
    "import": "loading the libraries",
    "build": "building the model",
    "warmup": "warming up",
    "measure": "measuring, in turn with the other nodes",
}


class PlannedPod(NamedTuple):
    """One pod of the plan: its Kubernetes name and the node it measures."""

    name: str
    node: str


def planned_pods(runs: object) -> tuple[PlannedPod, ...]:
    """The pods of runs as a task hands them out, in their order; none of anything else."""
    if not isinstance(runs, list):
        return ()
    specs = [PlannedRun.model_validate_json(run).spec for run in runs]
    return tuple(PlannedPod(pod_name(spec), spec.identity.node) for spec in specs)


class Progress:
    """Remembers what was printed."""

    def __init__(self) -> None:
        self._states: dict[tuple[str, int], str] = {}
        self._phases: dict[str, str | None] = {}

    def of_tasks(
        self, instances: Iterable[Mapping[str, Any]], pods: Mapping[str, Sequence[PlannedPod]]
    ) -> tuple[str, ...]:
        """A line for each task whose state changed. `pods`: pod task -> its pods by map index."""
        lines = []
        for ti in sorted(instances, key=lambda ti: ti["start_date"] or "~"):
            key, now = (ti["task_id"], ti["map_index"]), ti["state"] or "waiting"
            if now != self._states.get(key) and now in SHOWN:
                took = f" after {ti['duration']:.1f} s" if ti["duration"] and now in ENDED else ""
                lines.append(f"{_node(ti, pods)}: {ti['task_id']}, {now.replace('_', ' ')}{took}")
            self._states[key] = now
        return tuple(lines)

    def of_pods(self, running: Iterable[LivePod], planned: Iterable[PlannedPod]) -> tuple[str, ...]:
        """A line for each pod of the plan that went on to another phase; pods of others are left out."""
        ours = {pod.name for pod in planned}
        lines = []
        for pod in running:
            phase = pod.progress.phase
            if pod.pod in ours and phase != self._phases.get(pod.pod) and (text := PHASES.get(phase or "")):
                lines.append(f"{pod.node}: {text}")
            self._phases[pod.pod] = phase
        return tuple(lines)


def _node(ti: Mapping[str, Any], pods: Mapping[str, Sequence[PlannedPod]]) -> str:
    """A mapped task's node. Airflow renders its own label only when the task is over."""
    index: int = ti["map_index"]
    of_task = pods.get(ti["task_id"], ())
    if 0 <= index < len(of_task):
        return of_task[index].node
    return str(ti["rendered_map_index"] or ALL).partition(" / ")[0]
