"""Makes DAGs from suites and campaign files, and the tasks of a node check for anybody's DAG."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any

from airflow.sdk import DAG, Param, TaskGroup, TriggerRule, get_parsing_context
from airflow.sdk.definitions.param import ParamsDict
from airflow.sdk.definitions.xcom_arg import XComArg
from pydantic import Field

from bench_image.contract.frozen import Frozen
from bench_image.contract.work import Device
from trainbench.orchestration import dag_tasks, plan_tasks, pod_tasks
from trainbench.orchestration.dag_ids import DagIdTaken, our_dag
from trainbench.params.campaign_kind import CampaignKind
from trainbench.params.campaign_params import applies_to, form, parse_params, refuse_other_names
from trainbench.params.form_fields import shown_fields
from trainbench.planning.link_search import MOST_ROUNDS
from trainbench.planning.plan import ScalingCell, scaling_cells
from trainbench.planning.planners import PLANNERS
from trainbench.settings.campaign_file import CampaignFileError, read_campaign_file, with_campaign
from trainbench.settings.environment import CAMPAIGNS_ENV, DAGS, Launcher, Settings, campaign_files, read_settings

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
            self.gate = run_tasks(settings, CampaignKind.NODES, given, on_failure_callback)


def with_defaults(parameters: Mapping[str, Any], settings: Settings) -> Mapping[str, Any]:
    """The parameters of a check with the suite's defaults, checked as far as they are known when the DAG is read.
    Raises ParamsError.
    """
    refuse_other_names(parameters, CampaignKind.NODES)
    defaults = PLANNERS[CampaignKind.NODES].starts_with(locally=settings.launcher is Launcher.LOCAL)
    later = {name for name, value in parameters.items() if isinstance(value, XComArg) or "{{" in str(value)}
    parse_params({**defaults, **{name: value for name, value in parameters.items() if name not in later}})
    return {**defaults, **parameters}


def run_tasks(
    settings: Settings,
    campaign_kind: CampaignKind,
    given: Mapping[str, Any] | None = None,
    on_red: Any = None,
) -> Any:
    """Add the tasks of runs on one node each: of a check on all nodes at once, judgement and re-runs of suspects; of a
    comparison one after another, so that none shares a host. Then report, alert, gate. Returns the gate. `given`: the
    campaign's parameters; None: those of the DAG's form. `on_red`: callbacks of the gate.
    """
    is_check = campaign_kind is CampaignKind.NODES
    planned: Any = plan_tasks.plan_runs(campaign_kind, given).as_setup()
    plan_tasks.check_ready(given) >> planned
    blocks: Any = plan_tasks.divide_runs()
    planned >> blocks
    tasks = pod_tasks.pods("benchmark", settings, planned.operator.task_id, in_turn=not is_check)
    pods = [tasks.expand(block=blocks, place=planned)]
    if is_check:
        suspects: Any = dag_tasks.judge()
        pods[0] >> suspects
        tasks = pod_tasks.pods("confirm", settings, suspects.operator.task_id)
        pods.append(tasks.expand(block=blocks, place=suspects))
    published = dag_tasks.publish()
    released: Any = dag_tasks.release_campaign()
    pods >> at_the_end(released, setups=planned)
    [pods[-1], released] >> published  # it may have found results that tasks could not read
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


# What a person chooses most; six of them at most belong to one suite.
IN_VIEW = (
    "variants", "models", "recipes", "nodes", "strategies", "world_sizes", "model", "recipe", "quick", "drill_node"
)  # fmt: skip


class Suite(Frozen):
    """One benchmark DAG: its campaign kind decides the fields of its form and their defaults."""

    dag_id: str  # before the prefix of the settings
    title: str
    campaign_kind: CampaignKind
    schedule: str | None
    doc: str
    tags: tuple[str, ...]
    timeout_h: float = 8.0
    values: Mapping[str, Any] = Field({})  # parameters from which its form starts, beside those of the kind


def gang_tasks(settings: Settings, campaign_kind: CampaignKind) -> Any:
    """Add the tasks of a scaling study: one gang after another for each strategy and size; then report, alert, gate.
    Returns the gate.
    """
    last: Any = plan_tasks.plan_runs(campaign_kind)
    plan_tasks.check_ready() >> last
    published = dag_tasks.publish()
    for cell in scaling_cells(settings.world_sizes):
        last = _gang(cell, settings, after=last, before=published)
    last >> published
    return alert_and_gate(published, settings)


def link_tasks(settings: Settings, campaign_kind: CampaignKind) -> Any:
    """Add the tasks of a search for bad links: round after round of gangs side by side, as many rounds as a search may
    take; those that are not needed are skipped; then report, alert, gate. Returns the gate.
    """
    planned: Any = plan_tasks.plan_runs(campaign_kind).as_setup()
    plan_tasks.check_ready() >> planned
    published = dag_tasks.publish()
    released: Any = dag_tasks.release_campaign()
    before: list[Any] = [planned]
    for number in range(1, MOST_ROUNDS + 1):
        name = dag_tasks.round_group(number)
        with TaskGroup(name, tooltip=f"Round {number}"):
            chosen: Any = dag_tasks.next_gangs
            if number == 1:  # Airflow takes no other rule behind a setup
                chosen = chosen.override(trigger_rule=TriggerRule.ALL_SUCCESS)
            due: Any = chosen(number)
            ranks = pod_tasks.gangs(dag_tasks.RANK, settings, f"{name}.{dag_tasks.NEXT}").expand_kwargs(due)
        before >> due
        before = [due, ranks]
    before >> at_the_end(released, setups=planned)
    [*before, released] >> published  # it may have found results that tasks could not read
    gate = alert_and_gate(published, settings)
    released >> gate
    return gate


OF_GANGS: Mapping[CampaignKind, Callable[[Settings, CampaignKind], Any]] = {
    CampaignKind.STRATEGIES: gang_tasks,
    CampaignKind.INTERCONNECT: link_tasks,
}


def build_dag(suite: Suite, settings: Settings | None = None) -> DAG:
    """The DAG of a suite.

    Its form is set after its tasks: a task that is made in a DAG with params is stored with a copy of all of them,
    about 20 kB each time.
    """
    settings, kind = settings or read_settings(), suite.campaign_kind
    with our_dag(
        suite.dag_id,
        settings,
        suite.title,
        suite.doc,
        suite.schedule,
        dagrun_timeout=timedelta(hours=suite.timeout_h),
        tags=list(suite.tags),
    ) as dag:
        gate = OF_GANGS.get(kind, run_tasks)(settings, kind)
        # As a teardown: of a run marked failed by hand only teardowns still run, and without it it would end green.
        gate.as_teardown(on_failure_fail_dagrun=True)
    if get_parsing_context().task_id not in (None, plan_tasks.READY, plan_tasks.TASK):
        return dag  # no other task reads the form, whose every field Airflow would check at the task's start
    is_trial = settings.launcher is Launcher.LOCAL and suite.values.get("device") != Device.CUDA
    defaults = PLANNERS[kind].starts_with(locally=is_trial)
    if kind is CampaignKind.STRATEGIES and "world_sizes" in defaults:  # only sizes that have tasks
        built = [size for size in defaults["world_sizes"] if size in settings.world_sizes]
        defaults["world_sizes"] = built or list(settings.world_sizes)
    fields = form({**defaults, **suite.values}, settings.world_sizes)
    own = {name: field for name, field in fields.items() if applies_to(name, kind)}
    dag.params = ParamsDict({name: Param(**field) for name, field in shown_fields(own, IN_VIEW).items()})
    return dag


def _gang(cell: ScalingCell, settings: Settings, after: Any, before: Any) -> Any:
    """The task group of one gang. Returns its last task, which the next gang waits for: GPUs are exclusive."""
    with TaskGroup(cell.name, tooltip=cell.title):
        prepared: Any = dag_tasks.prepare_gang(cell.strategy.value, cell.world_size).as_setup()
        ranks = pod_tasks.gangs(dag_tasks.RANK, settings, prepared.operator.task_id).expand_kwargs(prepared)
        released = at_the_end(dag_tasks.release_gang(), setups=prepared)
        after >> prepared >> ranks >> released
        # With only teardowns after it, a failed rank would decide the run's state, which is the gate's part.
        ranks >> before
    return released


NAME = r"[a-z0-9][a-z0-9_.-]{0,99}"


def campaign_dags() -> dict[str, DAG]:
    """Id -> DAG of each file that is right; in a worker only the one whose task is about to run, which may raise."""
    settings, asked = read_settings(), get_parsing_context().dag_id
    dags = {}
    for path in campaign_files(settings.campaigns):
        dag_id = f"{settings.dag_prefix}{path.stem}"
        if asked in (None, dag_id):
            try:
                dags[dag_id] = _dag_of_file(path, settings)
            except Exception:  # `refuse_wrong_files` shows it
                if asked:
                    raise
    return dags


def refuse_wrong_files() -> None:
    """Raise CampaignFileError with a line for each file that makes no DAG.

    Not where DAGs are made: there Airflow takes away the DAGs of all files as soon as one of them is wrong.
    """
    settings, wrong = read_settings(), []
    if settings.campaigns and not settings.campaigns.is_dir():
        raise CampaignFileError(f"{CAMPAIGNS_ENV} is '{settings.campaigns}': no such folder here")
    for path in campaign_files(settings.campaigns):
        try:
            _dag_of_file(path, settings)
        except (CampaignFileError, DagIdTaken) as error:
            wrong.append(str(error))
        except Exception as error:  # of the parameters together with those of this launcher, or a defect
            wrong.append(f"{path}: {error}")
    if wrong:
        raise CampaignFileError("\n".join(wrong))


def _dag_of_file(path: Path, settings: Settings) -> DAG:
    if not re.fullmatch(NAME, path.stem):
        rule = "lower-case letters, digits, '_', '-' and '.', at most 100"
        raise CampaignFileError(f"{path}: its name becomes the DAG's id: {rule}")
    if path.stem in DAGS:
        raise CampaignFileError(f"{path}: trainbench has a DAG '{path.stem}' of its own: give the file another name")
    stems = Counter(each.stem for each in campaign_files(settings.campaigns))
    if stems[path.stem] > 1:
        raise CampaignFileError(f"{path}: .yaml and .yml make two DAGs '{path.stem}': remove one of the files")
    file = read_campaign_file(path)
    text = file.description.replace("**", "") or f"The campaign {file.name}."
    suite = Suite(
        dag_id=file.name,
        title=file.name,
        campaign_kind=file.kind,
        schedule=file.schedule,
        doc=f"**{text}**\n\nThe suite `{file.suite}`, as the campaign file `{path}` sets it.",
        tags=("trainbench", "campaign", file.suite),
        timeout_h=8.0 if file.kind is CampaignKind.NODES else 24.0,
        values=file.values,
    )
    dag = build_dag(suite, with_campaign(file, settings))
    dag.validate()  # type: ignore[no-untyped-call] # here, where its error is this file's alone
    return dag
