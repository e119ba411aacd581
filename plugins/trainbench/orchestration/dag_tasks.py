"""The DAGs' tasks: each reads the plan, calls a step of `pipeline`, and writes its result."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING, Any

from airflow.sdk import Asset, TriggerRule, get_current_context, task
from airflow.sdk.exceptions import AirflowFailException, AirflowSkipException

from bench_image.contract.spec import RunSpec
from trainbench.core.formats import count, listing
from trainbench.core.verdicts import Finding, Level
from trainbench.orchestration.plan_tasks import (
    OUTAGE_RETRIES,
    READY,
    REASON,
    hand_out,
    handed_out,
    log,
    max_map_length,
    near,
    num_blocks,
    places,
    reason_kept,
    stored_plan,
)
from trainbench.orchestration.plan_tasks import TASK as PLAN
from trainbench.params.campaign_kind import CampaignKind
from trainbench.planning.link_search import MOST_ROUNDS
from trainbench.planning.plan import ScalingCell, campaign_id
from trainbench.pods.manifests import CAMPAIGN, GANG, gang_id, installation_labels, label_value
from trainbench.settings.campaign_file import settings_for
from trainbench.settings.environment import Launcher, Settings, read_settings

if TYPE_CHECKING:
    from bench_image.contract.result import RunResult
    from trainbench.history.history import History
    from trainbench.pipeline import Measured
    from trainbench.results.arrivals import PlannedCampaign
    from trainbench.results.campaign import Campaign

RESULTS = Asset(name="trainbench_results", uri="x-trainbench://results/summary")
BREACHES = Asset(name="trainbench_breaches", uri="x-trainbench://alerts/variance")
RANK = "rank"  # task of a gang's pods within its group
PREPARE, NEXT = "prepare", "next"  # tasks that choose a gang, and the gangs of a round
RELEASE, GATE = "release", "gate"
# Retries outlast half an hour without an API server: what the pods still hold is stored, and no GPU stays taken.
RELEASE_RETRIES, RELEASE_RETRY_DELAY = 30, timedelta(minutes=1)
JUDGE = "judge"  # task id
VERDICT_TASKS = (READY, PLAN, JUDGE, "publish", "alert")  # without any of them there is no verdict
MAX_REASONS = 20  # in the message of a red gate
NOTIFY_RETRIES = 3
# These tasks write the same again, and the pods have ended.
OUTLASTS_OUTAGE: Mapping[str, Any] = {"trigger_rule": TriggerRule.ALL_DONE, **OUTAGE_RETRIES}


@task(task_id=PREPARE, trigger_rule=TriggerRule.ALL_DONE)
def prepare_gang(strategy: str, world_size: int) -> list[dict[str, int]]:
    """Push one gang, and return the run and the ranks of its pods. Skips where it was not chosen or cannot run."""
    cell = ScalingCell(strategy=strategy, world_size=world_size)
    plan = stored_plan(PLAN).plan
    spec = next((spec for spec in plan.specs if _cell(spec) == cell), None)
    if spec is None:
        title = cell.titled(plan.params.work.device.rank_noun)
        raise AirflowSkipException(next((s.reason for s in plan.skipped if s.what == title), "not chosen"))
    hand_out(get_current_context()["ti"], [spec])
    return ranks([spec])


@task(task_id=NEXT, **OUTLASTS_OUTAGE)
@reason_kept()
def next_gangs(round_: int) -> list[dict[str, int]]:
    """Push the gangs of this round of a search for bad links, and return the runs and ranks of their pods. Skips where
    the search is over.
    """
    from trainbench.judging.gangs import played

    ti, plan = get_current_context()["ti"], stored_plan(PLAN).plan
    if round_ > 1 and not handed_out(ti, f"{round_group(round_ - 1)}.{NEXT}"):
        raise AirflowSkipException("the search was over before")
    search, due, _ = played(plan, _gangs_of_rounds(round_ - 1))
    if not due:
        raise AirflowSkipException(search.stopped or "the search is over")
    log(f"round {round_}: {count(len(due), 'group')} side by side")
    hand_out(ti, due)
    return ranks(due)


def _gangs_of_rounds(last: int) -> tuple[RunResult, ...]:
    """The results of the gangs of all rounds up to `last`, the pods of each joined."""
    from trainbench.pods.gangs import combine_ranks

    ti = get_current_context()["ti"]
    results: list[RunResult] = []
    for round_ in range(1, last + 1):
        specs = handed_out(ti, f"{round_group(round_)}.{NEXT}")
        if not specs:
            break
        first = 0
        for spec in specs:
            num_pods = spec.placement.nodes
            pods = _collected(f"{round_group(round_)}.{RANK}", (spec,) * num_pods, first)
            results.append(combine_ranks(spec, pods))
            first += num_pods
    return tuple(results)


def ranks(gangs: Sequence[RunSpec]) -> list[dict[str, int]]:
    """The number of the run, and the rank, of each pod."""
    return [{"run": run, "rank": rank} for run, spec in enumerate(gangs) for rank in range(spec.placement.nodes)]


def round_group(number: int) -> str:
    return f"round_{number}"


@task(task_id=RELEASE, retries=RELEASE_RETRIES, retry_delay=RELEASE_RETRY_DELAY)
def release_campaign() -> None:
    """Store the results that the tasks could not read, and delete all pods of this DAG run that are left."""
    context = get_current_context()
    _release(CAMPAIGN, label_value(campaign_id(context["dag"].dag_id, context["run_id"])))


@task(task_id=RELEASE, retries=RELEASE_RETRIES, retry_delay=RELEASE_RETRY_DELAY)
def release_gang() -> None:
    """Store the results that the tasks could not read, and delete all pods of a gang that are left."""
    ti = get_current_context()["ti"]
    for spec in handed_out(ti, near(ti, PREPARE)) or ():
        _release(GANG, gang_id(spec))


def _release(label: str, value: str) -> None:
    settings = read_settings()
    if settings.launcher is Launcher.LOCAL:
        return
    from trainbench.cluster.pod_deletions import release
    from trainbench.orchestration.kubernetes_operator import cluster_of
    from trainbench.results.artefacts import open_store

    cluster = cluster_of(settings.kubernetes_connection, settings.namespace)
    deleted = release(cluster, open_store(settings.store), installation_labels(settings) | {label: value}, log)
    log(f"requested the deletion of {', '.join(deleted)}" if deleted else "nothing was left")


@task(task_id=JUDGE, **OUTLASTS_OUTAGE)
@reason_kept()
def judge() -> list[int]:
    """Push the re-runs, and return their places, in as many blocks as the first runs."""
    from trainbench import pipeline

    planned = stored_plan()
    results = _collected("benchmark", planned.plan.specs)
    blocks = num_blocks(len(planned.plan.specs), max_map_length())
    # Of a large fleet that is suspect as a whole, as many as the blocks of the first runs hold.
    specs = pipeline.judge(_measured(planned, results)).rerun_specs[: blocks * max_map_length()]
    hand_out(get_current_context()["ti"], specs)
    log(f"measured again: {listing(dict.fromkeys(spec.identity.node for spec in specs))}")
    return places(len(specs), blocks)


@task(task_id="publish", outlets=[RESULTS], **OUTLASTS_OUTAGE)
@reason_kept()
def publish() -> dict[str, str]:
    """Judge all runs, of a night the re-runs too, write the reports, record the history. Returns the reports'
    addresses.
    """
    from trainbench import pipeline
    from trainbench.alerting import run_summary
    from trainbench.history.history import open_history
    from trainbench.pods.gangs import combine_ranks
    from trainbench.reporting.verdict_text import verdict
    from trainbench.results.artefacts import open_store

    planned, ti = stored_plan(), get_current_context()["ti"]
    plan, specs = planned.plan, planned.plan.specs
    if plan.campaign_kind is CampaignKind.INTERCONNECT:
        results = _gangs_of_rounds(MOST_ROUNDS)
        plan = plan.model_copy(update={"specs": tuple(result.spec for result in results)})
    elif plan.campaign_kind is CampaignKind.STRATEGIES:
        of_pods = [_collected(f"{_cell(spec).name}.{RANK}", (spec,) * spec.placement.nodes) for spec in specs]
        results = tuple(map(combine_ranks, specs, of_pods))
    else:
        results = _collected("benchmark", specs)
    measured = _measured(planned.model_copy(update={"plan": plan}), results)
    # The re-runs that were started, whatever the history says meanwhile; where the task judge failed, those due.
    started = handed_out(ti, near(ti, JUDGE)) if plan.judges_nodes else None
    judged = pipeline.judge(measured) if started is None else pipeline.Judged(measured=measured, rerun_specs=started)
    if plan.judges_nodes:
        reruns = _collected("confirm", judged.rerun_specs)
        judged = judged.with_reruns(reruns, _times(planned, (*results, *reruns))[1])
    context, settings = get_current_context(), read_settings()
    store = open_store(settings.store)
    history = open_history(settings.history_url, store)
    campaign = pipeline.keep_away(pipeline.assess(judged), partial(_marked, settings, history))
    addresses = pipeline.report(campaign, store)
    log(verdict(campaign))
    history.record(campaign)
    extra = run_summary.results_extra(campaign, context["dag"].dag_id, context["run_id"], _base_url())
    context["outlet_events"][RESULTS].extra = extra
    return dict(addresses)


@task(task_id="alert", outlets=[BREACHES], **OUTLASTS_OUTAGE)
@reason_kept()
def raise_alert() -> list[Any]:
    """Push the alerts to the asset event, the run's note and the gate. A red node does not fail this task."""
    from trainbench.alerting import run_note, run_summary
    from trainbench.alerting.run_summary import alerts
    from trainbench.results.artefacts import open_store

    context = get_current_context()
    dag_id, run_id, base_url = context["dag"].dag_id, context["run_id"], _base_url()
    campaign = open_store(read_settings().store).read_campaign(stored_plan().plan.campaign_id)
    raised = alerts(campaign)
    extra = run_summary.breaches_extra(campaign, raised, dag_id, run_id, base_url)
    context["outlet_events"][BREACHES].extra = extra
    note = run_summary.note(campaign, raised, dag_id, run_id, base_url)
    context["ti"].xcom_push(key=run_note.KEY, value={run_note.FIELD: note})
    for text in [alert.text for alert in raised] or ["nothing to tell"]:
        log(text)
    return [alert.model_dump(mode="json") for alert in raised]


@task(
    task_id="notify",
    trigger_rule=TriggerRule.ALL_DONE,
    retries=NOTIFY_RETRIES,
    retry_delay=timedelta(minutes=1),
    execution_timeout=timedelta(minutes=10),
)
def send_notices() -> None:
    """Send notices that opened and closed. Retried when it fails; only the gate decides the run's state."""
    from trainbench.alerting.outbox import Outbox, send, send_due
    from trainbench.history.history import open_history
    from trainbench.results.artefacts import open_store

    dag_id, now = get_current_context()["dag"].dag_id, datetime.now(UTC)
    settings = settings_for(dag_id, read_settings())
    outbox = Outbox(open_history(settings.history_url, open_store(settings.store)).engine)
    sent = send_due(outbox, dag_id, settings.notify, _base_url(), now, send)
    for line in sent.lines or ("nothing is due",):
        log(line)
    if sent.problems:
        raise RuntimeError(f"not every channel could be notified: {'; '.join(sent.problems)}")


@task(task_id=GATE, trigger_rule=TriggerRule.ALL_DONE)
def gate() -> None:
    """The last task: it fails on red nodes and alarms, after the report is written, and so turns the DAG run red, or
    stops what follows a `NodeCheck`. As a teardown it also runs where somebody marked the run by hand and all other
    tasks are skipped.
    """
    ti = get_current_context()["ti"]
    group = near(ti, "")
    of_run: Mapping[str, str | None] = ti.get_task_states(dag_id=ti.dag_id, run_ids=[ti.run_id]).get(ti.run_id, {})
    states = {name.removeprefix(group): state for name, state in of_run.items() if name.startswith(group)}
    if group and states.get(READY) == "skipped":
        raise AirflowSkipException("the check was skipped, and so is what follows it")
    if group and states.get(READY) == "upstream_failed":
        raise AirflowFailException("no verdict: a task before this check failed, so that no node was checked")
    raised = ti.xcom_pull(task_ids=near(ti, "alert"))
    is_marked = states.get("alert") == "skipped" and all(states.get(name) != "failed" for name in VERDICT_TASKS)
    if raised is None and is_marked and not group:
        # Marking a run failed fails its running tasks; marking it successful fails none.
        if "failed" in states.values():
            raise AirflowFailException("this DAG run was marked failed by hand, and stays failed")
        return
    if raised is None:
        failed = [name for name in VERDICT_TASKS if states.get(name) == "failed"]
        raise AirflowFailException(f"no verdict: {_failure(failed[0] if failed else 'alert', ti)}")
    findings = map(Finding.model_validate, raised)
    red = [finding.text for finding in findings if finding.level is Level.ERROR]
    if states.get("publish") == "failed":  # after the report and before the history, or when it was cleared
        red.append(f"{_failure('publish', ti)}: the report may be older, and the history may lack this run")
    is_kept = lambda name: name.split(".")[-1] == RELEASE and states[name] == "failed"  # noqa: E731
    if kept := [f"{group}{name}" for name in filter(is_kept, states)]:
        red.append(
            f"pods of this run may still run, and hold their GPUs: {listing(kept)} failed, its log names them; "
            "`housekeeping` deletes them at its next scheduled run"
        )
    if red:
        raise AirflowFailException("; ".join(red[:MAX_REASONS]) + ("; and more" if len(red) > MAX_REASONS else ""))
    log("the run is green: no node is red, and nothing failed")


def _failure(failed: str, ti: Any) -> str:
    """A clause that names a failed task, and its reason where it left one."""
    reason = ti.xcom_pull(task_ids=near(ti, failed), key=REASON)
    return f"the task '{failed}' failed{f': {reason}' if reason else ', its log says why'}"


def _cell(spec: RunSpec) -> ScalingCell:
    return ScalingCell(strategy=spec.placement.strategy, world_size=spec.placement.world_size)


def _measured(planned: PlannedCampaign, results: Sequence[RunResult]) -> Measured:
    from trainbench.history.history import open_history
    from trainbench.judging.levels import NO_LEVELS, load_levels
    from trainbench.pipeline import Measured
    from trainbench.results.artefacts import open_store

    context, settings, plan = get_current_context(), read_settings(), planned.plan
    store = open_store(settings.store)
    started_at, finished_at = _times(planned, results)
    return Measured(
        plan=plan,
        results=tuple(results),
        suite=context["dag"].dag_id,
        started_at=started_at,
        finished_at=finished_at,
        history=open_history(settings.history_url, store),
        levels=load_levels(plan.params.levels, store.read_levels()) if plan.judges_nodes else NO_LEVELS,
        is_on_cluster=True,
        dag_run_id=context["run_id"],
    )


def _times(planned: PlannedCampaign, results: Sequence[RunResult]) -> tuple[datetime, datetime]:
    """Start and end of the campaign, see `checks.campaign_times`."""
    from trainbench.judging import checks

    run = get_current_context()["dag_run"]
    return checks.campaign_times(results, planned.planned_at, run.start_date or run.run_after, datetime.now(UTC))


def _marked(settings: Settings, history: History, campaign: Campaign) -> Campaign:
    """The campaign with the acts on its nodes, those of an earlier try of the task among them."""
    from trainbench.cluster.kubernetes_api import open_cluster
    from trainbench.cluster.node_marks import is_due, mark_nodes
    from trainbench.core.verdicts import OF_MARKS

    if not is_due(campaign, settings, datetime.now(UTC), history.has_later(campaign)):
        return campaign
    marked = mark_nodes(campaign, settings, partial(open_cluster, settings))
    for finding in marked.findings:
        if finding.category in OF_MARKS:
            log(finding.text)
    return marked


def _base_url() -> str | None:
    """Airflow's own address; None where it is not configured."""
    from airflow.configuration import conf

    return conf.get("api", "base_url", fallback=None) or None


def _collected(name: str, specs: Sequence[RunSpec], first: int | None = None) -> tuple[RunResult, ...]:
    """One result for each pod of the task `name`, from the store. `first`: map index of the first of these pods, of a
    task with a whole id. XComs of mapped tasks are read by index, so that none is dropped: the addresses of what the
    last try stored, and the ends of failed pods, see `arrivals.stored_payloads`.
    """
    from trainbench import pipeline
    from trainbench.pods.pod_end import END, PodEnd
    from trainbench.results.arrivals import address_in, stored_payloads
    from trainbench.results.artefacts import open_store

    if not specs:
        return ()
    ti = get_current_context()["ti"]
    task_id = near(ti, name) if first is None else name
    indexes = list(range(first or 0, (first or 0) + len(specs)))
    pulled = ti.xcom_pull(task_ids=task_id, map_indexes=indexes, key="return_value")
    has_address = [address_in(value) is not None for value in pulled]
    by_run: Mapping[str, Any] = ti.get_task_states(dag_id=ti.dag_id, task_ids=[task_id], run_ids=[ti.run_id])
    states = [by_run.get(ti.run_id, {}).get(f"{task_id}_{index}") for index in indexes]
    bad = [index for index, state in zip(indexes, states, strict=True) if state != "success"]
    end_of = dict(zip(bad, ti.xcom_pull(task_ids=task_id, map_indexes=bad, key=END) if bad else (), strict=True))
    ends = [PodEnd.model_validate(end_of[index]) if end_of.get(index) else None for index in indexes]
    payloads = stored_payloads(open_store(read_settings().store), specs, has_address, ends)
    return pipeline.collect(specs, payloads, datetime.now(UTC), states, ends)
