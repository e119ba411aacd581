"""Makes DAGs from suites: the tasks, their order and the trigger form."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

from airflow.sdk import DAG, Param, TaskGroup, TriggerRule
from airflow.sdk.definitions.param import ParamsDict
from pydantic import Field

from bench_image.contract.frozen import Frozen
from bench_image.contract.work import Device
from trainbench.orchestration import dag_tasks, plan_tasks, pod_tasks
from trainbench.orchestration.dag_ids import our_dag
from trainbench.orchestration.node_check import alert_and_gate, at_the_end, node_tasks
from trainbench.params.campaign_kind import CampaignKind
from trainbench.params.campaign_params import applies_to, form
from trainbench.params.form_fields import shown_fields
from trainbench.planning.link_search import MOST_ROUNDS
from trainbench.planning.plan import ScalingCell, scaling_cells
from trainbench.planning.planners import PLANNERS
from trainbench.settings.environment import Launcher, Settings, read_settings

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


def build_node_dag(suite: Suite, settings: Settings | None = None) -> DAG:
    """The DAG of a nightly check: pods on every node, judgement, re-runs of suspects, report, alert, gate."""
    settings = settings or read_settings()
    with _dag(suite, settings) as dag:
        _gate_of_run(node_tasks(settings, suite.campaign_kind))
    return dag


def build_comparison_dag(suite: Suite, settings: Settings | None = None) -> DAG:
    """The DAG of a comparison: pods one after another, so that none shares a host; then report, alert, gate."""
    settings = settings or read_settings()
    with _dag(suite, settings) as dag:
        planned: Any = plan_tasks.plan_pods(suite.campaign_kind).as_setup()
        plan_tasks.check_ready() >> planned
        tasks = pod_tasks.pods("benchmark", settings, plan_tasks.TASK, in_turn=True)
        benchmarks = tasks.expand(block=[0], place=planned)
        published = dag_tasks.publish_comparison()
        released: Any = dag_tasks.release_campaign()
        benchmarks >> at_the_end(released, setups=planned)
        [benchmarks, released] >> published  # it may have found results that tasks could not read
        released >> _gate_of_run(alert_and_gate(published, settings))
    return dag


def build_scaling_dag(suite: Suite, settings: Settings | None = None) -> DAG:
    """The DAG of a scaling study: one gang after another for each strategy and size; then report, alert, gate."""
    settings = settings or read_settings()
    with _dag(suite, settings) as dag:
        last: Any = plan_tasks.plan_scaling()
        plan_tasks.check_ready() >> last
        published = dag_tasks.publish_scaling()
        for cell in scaling_cells(settings.world_sizes):
            last = _gang(cell, settings, after=last, before=published)
        last >> published
        _gate_of_run(alert_and_gate(published, settings))
    return dag


def build_interconnect_dag(suite: Suite, settings: Settings | None = None) -> DAG:
    """The DAG of a search for bad links: round after round of gangs side by side, as many rounds as a search may take;
    those that are not needed are skipped; then report, alert, gate.
    """
    settings = settings or read_settings()
    with _dag(suite, settings) as dag:
        planned: Any = plan_tasks.plan_interconnect().as_setup()
        plan_tasks.check_ready() >> planned
        published = dag_tasks.publish_interconnect()
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
        released >> _gate_of_run(alert_and_gate(published, settings))
    return dag


BUILDERS: Mapping[CampaignKind, Callable[[Suite, Settings], DAG]] = {
    CampaignKind.NODES: build_node_dag,
    CampaignKind.STRATEGIES: build_scaling_dag,
    CampaignKind.CONFIGURATIONS: build_comparison_dag,
    CampaignKind.HARDWARE: build_comparison_dag,
    CampaignKind.INTERCONNECT: build_interconnect_dag,
}


def _gate_of_run(gate: Any) -> Any:
    """The gate as teardown: of a run marked failed by hand only teardowns still run, and without it it would end
    green.
    """
    return gate.as_teardown(on_failure_fail_dagrun=True)


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


@contextmanager
def _dag(suite: Suite, settings: Settings) -> Iterator[DAG]:
    """The DAG of a suite, whose tasks are made within the block.

    The form is set after them: a task that is made in a DAG with params is stored with a copy of all of them, about
    20 kB each time.
    """
    is_trial = settings.launcher is Launcher.LOCAL and suite.values.get("device") != Device.CUDA
    defaults = PLANNERS[suite.campaign_kind].starts_with(locally=is_trial)
    if suite.campaign_kind is CampaignKind.STRATEGIES and "world_sizes" in defaults:  # only sizes that have tasks
        built = [size for size in defaults["world_sizes"] if size in settings.world_sizes]
        defaults["world_sizes"] = built or list(settings.world_sizes)
    fields = form({**defaults, **suite.values}, settings.world_sizes)
    own = {name: field for name, field in fields.items() if applies_to(name, suite.campaign_kind)}
    with our_dag(
        suite.dag_id,
        settings,
        suite.title,
        suite.doc,
        suite.schedule,
        dagrun_timeout=timedelta(hours=suite.timeout_h),
        tags=list(suite.tags),
    ) as dag:
        yield dag
    dag.params = ParamsDict({name: Param(**field) for name, field in shown_fields(own, IN_VIEW).items()})
