"""The tasks of a node check, for the DAG `node_consistency` and, as a task group, for anybody's DAG."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from airflow.sdk import TaskGroup
from airflow.sdk.definitions.xcom_arg import XComArg

from trainbench.orchestration import dag_tasks, plan_tasks, pod_tasks
from trainbench.params.campaign_kind import CampaignKind
from trainbench.params.campaign_params import parse_params, refuse_other_names
from trainbench.planning.planners import PLANNERS
from trainbench.settings.environment import Launcher, Settings, read_settings

DOC = "Benchmarks the nodes and judges them. Its task `gate` fails unless a verdict was found and no node is red."


class NodeCheck(TaskGroup):
    """The nightly check within a DAG of your own: what follows the group starts only after a verdict without a red
    node.

    Its tasks have the group's id before their names. The DAG's own params are not read: `parameters` are those of the
    check, and what they leave out has the default of `node_consistency`.
    """

    def __init__(
        self,
        group_id: str = "node_check",
        *,
        parameters: Mapping[str, Any] | None = None,
        on_failure_callback: Any = None,
        default_args: Mapping[str, Any] | None = None,
        **group: Any,
    ) -> None:
        """`parameters`: by the names of docs/parameters.md; a value may be another task's output or a template.
        `on_failure_callback`: a notifier of Airflow, or several, called once when the gate fails. `default_args`: of
        all tasks; the DAG's number of retries does not count, because each task knows whether a retry can help.
        `group`: other arguments of TaskGroup, such as tooltip. Raises ParamsError, and ValueError for a second check
        in the DAG.
        """
        shown = {"tooltip": "Benchmarks and judges nodes", "doc_md": DOC, **group}
        of_tasks: Any = {"retries": 0, **(default_args or {})}
        super().__init__(group_id, default_args=of_tasks, **shown)
        if others := [task.task_id for task in self.dag.tasks if task.task_id.endswith(f".{dag_tasks.GATE}")]:
            raise ValueError(
                f"the DAG '{self.dag.dag_id}' has a NodeCheck already, with the task {others[0]}: a DAG run has one "
                "campaign and one report; put the second check into a DAG of its own"
            )
        settings = read_settings()
        given = with_defaults(parameters or {}, settings)
        with self:
            self.gate = node_tasks(settings, CampaignKind.NODES, given, on_failure_callback)


def with_defaults(parameters: Mapping[str, Any], settings: Settings) -> Mapping[str, Any]:
    """The parameters of a check with the suite's defaults, checked as far as they are known when the DAG is read.
    Raises ParamsError.
    """
    refuse_other_names(parameters, CampaignKind.NODES)
    defaults = PLANNERS[CampaignKind.NODES].starts_with(locally=settings.launcher is Launcher.LOCAL)
    later = {name for name, value in parameters.items() if isinstance(value, XComArg) or "{{" in str(value)}
    parse_params({**defaults, **{name: value for name, value in parameters.items() if name not in later}})
    return {**defaults, **parameters}


def node_tasks(
    settings: Settings,
    campaign_kind: CampaignKind,
    given: Mapping[str, Any] | None = None,
    on_red: Any = None,
) -> Any:
    """Add the tasks of a check: pods on every node, judgement, re-runs of suspects, report, alert, gate. Returns the
    gate. `given`: the check's parameters; None: those of the DAG's form. `on_red`: callbacks of the gate.
    """
    planned: Any = plan_tasks.plan_pods(campaign_kind, given).as_setup()
    plan_tasks.check_ready(given) >> planned
    blocks: Any = plan_tasks.divide_runs()
    planned >> blocks
    benchmarks = pod_tasks.pods("benchmark", settings, planned.operator.task_id).expand(block=blocks, place=planned)
    suspects: Any = dag_tasks.judge()
    benchmarks >> suspects
    confirms = pod_tasks.pods("confirm", settings, suspects.operator.task_id).expand(block=blocks, place=suspects)
    published = dag_tasks.publish_nodes()
    released: Any = dag_tasks.release_campaign()
    [benchmarks, confirms] >> at_the_end(released, setups=planned)
    [confirms, released] >> published  # it may have found results that tasks could not read
    gate = alert_and_gate(published, settings, on_red)
    released >> gate
    return gate


def at_the_end(released: Any, setups: Any) -> Any:
    """The teardown that removes all pods. If it fails, the run fails, because pods may still run."""
    return released.as_teardown(setups=setups, on_failure_fail_dagrun=True)


def alert_and_gate(published: Any, settings: Settings, on_red: Any = None) -> Any:
    """Add the tasks alert, notices (where channels are set) and gate. Returns the gate."""
    last: Any = dag_tasks.raise_alert()
    published >> last
    if settings.notify:
        last = last >> dag_tasks.send_notices()
    gate: Any = dag_tasks.gate.override(on_failure_callback=on_red)() if on_red else dag_tasks.gate()
    return last >> gate
