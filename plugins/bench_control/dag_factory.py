"""A `Suite` -> a DAG: plan, pods, judgement, re-runs, report, alert, gate. The one place that knows Airflow's tasks."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

from airflow.sdk import DAG, Asset, Param, TriggerRule, get_current_context, task
from airflow.sdk.exceptions import AirflowFailException, AirflowSkipException

from bench_control.nodes import GpuNode, gpu_nodes, named
from bench_control.params import BenchmarkParams, ParamsError, form, parse_params
from bench_control.plan import Plan, PlanError, campaign_id, confirm_specs, make_plan
from bench_control.pods import TITLE, manifest
from bench_control.settings import Launcher, Settings, read_settings
from bench_image.contract import Frozen, RunSpec

RESULTS = Asset(name="trainbench_results", uri="x-trainbench://results/summary")
BREACHES = Asset(name="trainbench_breaches", uri="x-trainbench://alerts/variance")


class Suite(Frozen):
    """What makes one benchmark DAG different from another."""

    dag_id: str
    title: str
    schedule: str | None
    doc: str
    tags: tuple[str, ...]
    timeout_h: float = 8.0


def build_dag(suite: Suite) -> DAG:
    """The DAG of a suite, with its trigger form and the pods of the configured launcher."""
    settings = read_settings()
    with DAG(
        suite.dag_id,
        dag_display_name=suite.title,
        description=suite.title,
        doc_md=suite.doc,
        # A trial on one machine is started by hand: nobody wants it at 02:00, nor the last 02:00 made up for at once.
        schedule=suite.schedule if settings.launcher is Launcher.KUBERNETES else None,
        start_date=datetime(2026, 1, 1, tzinfo=UTC),
        catchup=False,
        max_active_runs=1,
        allowed_run_types=["manual", "scheduled"],  # type: ignore[list-item]  # no backfill: a past night is gone
        dagrun_timeout=timedelta(hours=suite.timeout_h),
        tags=list(suite.tags),
        default_args={"owner": "trainbench", "retries": 0},
        params={name: Param(**field) for name, field in form(settings.defaults).items()},
    ) as dag:
        planned = plan_runs()
        benchmarks = _pods("benchmark", settings).expand(pod_template_dict=planned)
        suspects = judge()
        benchmarks >> suspects
        confirms = _pods("confirm", settings).expand(pod_template_dict=suspects)
        published = publish_report(suite.dag_id)
        confirms >> published >> raise_alert() >> gate()
    return dag


def _pods(task_id: str, settings: Settings) -> Any:
    """A pod operator, to be expanded over manifests; one at a time where all nodes are one machine."""
    label = "{{ task.pod_template_dict['metadata']['annotations']['" + TITLE + "'] }}"
    if settings.launcher is Launcher.LOCAL:
        from bench_control.local_operator import LocalPodOperator

        return LocalPodOperator.partial(task_id=task_id, map_index_template=label, max_active_tis_per_dagrun=1)
    from bench_control.kubernetes_operator import BenchPodOperator

    return BenchPodOperator.partial(
        task_id=task_id,
        map_index_template=label,
        do_xcom_push=True,
        get_logs=True,
        on_finish_action="delete_succeeded_pod",
        startup_timeout_seconds=900,
        schedule_timeout_seconds=3600,
        log_events_on_failure=True,
        log_pod_spec_on_failure=False,
    )


@task(task_id="plan")
def plan_runs() -> list[dict[str, Any]]:
    """The manifests of all runs; the plan itself goes to the later tasks under its own key."""
    context = get_current_context()
    settings = read_settings()
    try:
        params = parse_params(dict(context["params"]))
        plan = make_plan(params, _known_nodes(settings, params), campaign_id(context["dag"].dag_id, context["run_id"]))
    except (ParamsError, PlanError) as error:
        raise AirflowFailException(str(error)) from None
    for skipped in plan.skipped:
        print(f"skipped {skipped.what}: {skipped.reason}")  # noqa: T201 - goes to the task's log
    context["ti"].xcom_push(key="plan", value=plan.model_dump_json())
    return [manifest(spec, settings.pods) for spec in plan.specs]


@task(task_id="judge", trigger_rule=TriggerRule.ALL_DONE)
def judge() -> list[dict[str, Any]]:
    """Stores every result and returns the manifests of the re-runs: breaching nodes are run once more."""
    from bench_control import assess, variance
    from bench_control.artefacts import open_store
    from bench_control.history import open_history

    plan, settings = _plan(), read_settings()
    results = _collected("benchmark", plan.specs)
    store = open_store(settings.store_url)
    for result in results:
        store.write_result(result)
    past = open_history(settings.history_url, store).past
    suspects = variance.nodes_to_confirm(assess.judge(plan, results, past))
    return [manifest(spec, settings.pods) for spec in confirm_specs(plan, suspects)]


@task(task_id="publish", trigger_rule=TriggerRule.ALL_DONE, outlets=[RESULTS])
def publish_report(suite: str) -> dict[str, str]:
    """Judges with the re-runs, writes the reports, records the history; returns the reports' addresses."""
    from bench_control import assess, variance
    from bench_control.artefacts import open_store
    from bench_control.history import open_history

    context, plan, settings = get_current_context(), _plan(), read_settings()
    store = open_store(settings.store_url)
    history = open_history(settings.history_url, store)
    results = _collected("benchmark", plan.specs)
    suspects = variance.nodes_to_confirm(assess.judge(plan, results, history.past))
    campaign = assess.assess(
        plan,
        results,
        _collected("confirm", confirm_specs(plan, suspects)),
        suite=suite,
        started_at=context["dag_run"].start_date or context["dag_run"].run_after,
        finished_at=datetime.now(UTC),
        past=history.past,
    )
    addresses = assess.publish(campaign, store)
    history.record(campaign)
    return dict(addresses)


@task(task_id="alert", trigger_rule=TriggerRule.ALL_DONE, outlets=[BREACHES])
def raise_alert() -> list[Any]:
    """Tells what is wrong: in the asset event, in the asset's store and to the gate. Never fails on a breach."""
    from bench_control.alerts import alerts
    from bench_control.artefacts import open_store

    context = get_current_context()
    plan = _plan()
    campaign = open_store(read_settings().store_url).read_campaign(plan.campaign_id)
    raised: list[Any] = [
        alert.model_dump(mode="json") for alert in alerts(campaign, context["dag"].dag_id, context["run_id"])
    ]
    context["asset_state_store"][BREACHES].set("open", raised)
    context["outlet_events"][BREACHES].extra = {"run_id": context["run_id"], "alerts": raised}
    return raised


@task(task_id="gate", trigger_rule=TriggerRule.ALL_DONE)
def gate() -> None:
    """The leaf: turns the DAG run red on confirmed breaches and missing results, after the report is out."""
    raised = get_current_context()["ti"].xcom_pull(task_ids="alert")
    if raised is None:
        raise AirflowFailException("no verdict: an earlier task failed, its log says why")
    if red := [alert["text"] for alert in raised if alert["red"]]:
        raise AirflowFailException("; ".join(red))


def _plan() -> Plan:
    text = get_current_context()["ti"].xcom_pull(task_ids="plan", key="plan")
    if text is None:
        raise AirflowSkipException("there is no plan: the task 'plan' failed, its log says why")
    return Plan.model_validate_json(text)


def _collected(task_id: str, specs: tuple[RunSpec, ...]) -> Any:
    """One result for each spec: XComs of mapped tasks are asked for by index, so that none can be dropped."""
    from bench_control.results import collect

    ti = get_current_context()["ti"]
    if not specs:
        return ()
    payloads = ti.xcom_pull(task_ids=task_id, map_indexes=list(range(len(specs))), key="return_value")
    states: Mapping[str, Any] = ti.get_task_states(dag_id=ti.dag_id, task_ids=[task_id], run_ids=[ti.run_id])
    by_index = states.get(ti.run_id, {})
    ended = [by_index.get(f"{task_id}_{index}") for index in range(len(specs))]
    return collect(specs, payloads, datetime.now(UTC), ended)


def _known_nodes(settings: Settings, params: BenchmarkParams) -> tuple[GpuNode, ...]:
    """What the cluster tells of its nodes. For nodes given by name it need not tell: their memory stays unknown."""
    if settings.launcher is Launcher.LOCAL:
        return discover_nodes(settings)
    from kubernetes.client import ApiException  # type: ignore[import-untyped]

    try:
        return discover_nodes(settings)
    except ApiException as error:
        if not params.nodes:
            raise
        print(f"the nodes' GPUs are not known, so no run is skipped for them: {error.reason}")  # noqa: T201 - task log
        return ()


def discover_nodes(settings: Settings) -> tuple[GpuNode, ...]:
    """The nodes of the configured launcher, with what is known of their GPUs."""
    if settings.launcher is Launcher.LOCAL:
        return named(settings.local_nodes)
    from airflow.providers.cncf.kubernetes.hooks.kubernetes import KubernetesHook

    client = KubernetesHook().core_v1_client
    to_dict: Callable[[Any], Any] = client.api_client.sanitize_for_serialization
    return gpu_nodes(to_dict(client.list_node().items))
