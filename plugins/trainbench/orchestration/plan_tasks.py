"""The tasks before any pod: check the installation, find the nodes, make the plan, store it, and pass its runs to
mapped tasks: task i of a mapped task makes the pod of run i.

Airflow maps over a list of at most `[core] max_map_length` values, and each mapped task reads the whole list. So the
lists hold numbers only: a mapped task is expanded over blocks and places, which together make as many tasks as there
are runs, and a task reads the few runs of its own chunk.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, NoReturn

from airflow.sdk import get_current_context, task
from airflow.sdk.exceptions import AirflowException, AirflowFailException, AirflowSkipException

from bench_image.contract.frozen import Frozen
from bench_image.contract.spec import RunSpec
from bench_image.contract.work import Device
from trainbench.core.formats import count, listing, one_line
from trainbench.core.user_error import UserError
from trainbench.params.campaign_kind import CampaignKind
from trainbench.params.campaign_params import BenchmarkParams, parse_params, refuse_other_names
from trainbench.params.model_reference import with_configuration
from trainbench.params.refusals import ParamsError
from trainbench.planning.nodes import Fleet, GpuNode, fleet_of
from trainbench.planning.plan import (
    Plan,
    PlanError,
    campaign_id,
    refuse_more_pods_than,
    refuse_sizes_without_tasks,
    unknown_gpus,
)
from trainbench.planning.planners import PLANNERS
from trainbench.pods.machine_turns import Slot, slots
from trainbench.pods.manifests import Owner, manifest
from trainbench.pods.pod_template import PodTemplateError
from trainbench.settings.campaign_file import CampaignFileError, settings_for
from trainbench.settings.environment import Launcher, Settings, read_settings

if TYPE_CHECKING:
    from trainbench.results.arrivals import PlannedCampaign

CHUNK = 25  # runs in one XCom: about 40 kB
COUNT = "num_runs"  # XCom key


class PlannedRun(Frozen):
    """A run with its work's name in the plan. `slot`: its place among the pods of one machine."""

    spec: RunSpec
    slot: Slot
    what: str | None = None


def hand_out(ti: Any, specs: Sequence[RunSpec], labels: Mapping[str, str] | None = None) -> None:
    """Push the runs for the mapped tasks."""
    runs = [
        PlannedRun(spec=spec, slot=slot, what=(labels or {}).get(spec.identity.group_id))
        for spec, slot in zip(specs, slots(specs), strict=True)
    ]
    ti.xcom_push(key=COUNT, value=len(runs))
    for first in range(0, len(runs), CHUNK):
        chunk = [run.model_dump_json() for run in runs[first : first + CHUNK]]
        ti.xcom_push(key=chunk_key(first), value=chunk)


def handed_out(ti: Any, planned_by: str) -> tuple[RunSpec, ...] | None:
    """The runs that a task pushed; None: it pushed none, because it failed before."""
    num = ti.xcom_pull(task_ids=planned_by, key=COUNT)
    if num is None:
        return None
    chunks = (ti.xcom_pull(task_ids=planned_by, key=chunk_key(first)) for first in range(0, num, CHUNK))
    return tuple(PlannedRun.model_validate_json(run).spec for chunk in chunks for run in chunk)


def run_at(ti: Any, planned_by: str, index: int) -> PlannedRun | None:
    """The run of this number; None: the task pushed fewer, as where the plan has fewer runs than blocks have places."""
    chunk = ti.xcom_pull(task_ids=planned_by, key=chunk_key(index))
    if chunk is None or index % CHUNK >= len(chunk):
        return None
    return PlannedRun.model_validate_json(chunk[index % CHUNK])


def num_blocks(num_runs: int, max_map_length: int) -> int:
    return max(1, math.ceil(num_runs / max_map_length))


def places(num_runs: int, blocks: int) -> list[int]:
    """The places of a block, enough that every run has one; the last block may have free ones."""
    return list(range(math.ceil(num_runs / blocks)))


def chunk_key(index: int) -> str:
    """Key of the XCom that holds run `index`."""
    return f"runs_{index // CHUNK}"


def known_fleet(settings: Settings, params: BenchmarkParams) -> Fleet:
    """The cluster's nodes. Nodes given by name need no answer from the cluster: their memory is unknown
    then, and their GPUs are of the settings' first resource.
    """
    if settings.launcher is Launcher.LOCAL:
        from trainbench.cluster.local_nodes import local_fleet

        return local_fleet(settings, params)
    from trainbench.cluster.kubernetes_api import Refused, Unreachable

    try:
        return discover_fleet(settings, None if params.nodes else params.node_labels)
    except (Refused, Unreachable) as error:
        if not params.nodes:
            raise AirflowFailException(f"{error}; or name nodes in the parameter 'nodes'") from None
        resource = settings.gpu_resources[0]
        if "*" in resource:
            raise AirflowFailException(f"{error}; which {resource} the nodes have is not known without it") from None
        print(f"the nodes' GPUs are not known, so no run is skipped for them: {error}")  # noqa: T201 - task log
        return Fleet(nodes=tuple(GpuNode(name=name, gpu_resource=resource) for name in params.nodes))


def discover_fleet(settings: Settings, labels: str | None = None) -> Fleet:
    """The cluster's nodes with their GPUs; with `labels`, a label selector, those of them alone."""
    from trainbench.cluster.kubernetes_api import open_cluster

    cluster = open_cluster(settings)
    selector = ",".join(filter(None, (settings.node_selector, labels)))
    nodes = replace(cluster, node_selector=selector).nodes()
    return fleet_of(nodes, settings.quarantine, settings.gpu_resources, settings.topology_label)


READY, TASK, DIVIDE = "ready", "plan", "divide"  # task ids
REASON = "reason"  # XCom key
MAX_LINE = 10_000  # characters of one line in a task's log
MAX_REASON = 2_000  # characters of the reason that the gate repeats
MAX_MAP_LENGTH = 1024  # of one mapped task, where Airflow's configuration does not say

# The store, the history or the cluster may be away for minutes.
OUTAGE_RETRIES: Mapping[str, Any] = {"retries": 3, "retry_delay": timedelta(minutes=1)}


@task(task_id=READY, **OUTAGE_RETRIES)
def check_ready(given: Mapping[str, Any] | None = None) -> None:
    """Fail with one sentence where no pod could run. Tried again only where that may pass by itself. `given`: the
    check's parameters; None: those of the DAG's form.
    """
    from trainbench.cluster import doctor

    checks = doctor.examine(settings_for(get_current_context()["dag"].dag_id, read_settings()))
    for row in doctor.table(checks).rows:
        log(" ".join(row.texts))
    uses_gpus = _asked(given).get("device") != Device.CPU
    if refusal := doctor.refusal(checks, uses_gpus):
        _refuse(refusal, AirflowException if doctor.may_pass(checks, uses_gpus) else AirflowFailException)


@task(task_id=TASK, **OUTAGE_RETRIES)
def plan_runs(campaign_kind: str, given: Mapping[str, Any] | None = None) -> list[int]:
    """The places of one block of runs. Stores the plan, and pushes its runs for later tasks, but of gangs, which are
    chosen later. `given`: the check's parameters; None: those of the DAG's form.
    """
    plan = make_stored_plan(CampaignKind(campaign_kind), _asked(given))
    if plan.campaign_kind is CampaignKind.INTERCONNECT:
        log(str(plan.promise))
    if plan.campaign_kind in (CampaignKind.STRATEGIES, CampaignKind.INTERCONNECT):
        return []
    hand_out(get_current_context()["ti"], plan.specs, plan.labels)
    return places(len(plan.specs), num_blocks(len(plan.specs), max_map_length()))


@task(task_id=DIVIDE)
def divide_runs() -> list[int]:
    """The blocks of runs: one, unless the runs exceed the values that Airflow may map over."""
    ti = get_current_context()["ti"]
    num_runs = ti.xcom_pull(task_ids=near(ti, TASK), key=COUNT)
    return list(range(num_blocks(num_runs, max_map_length())))


def near(ti: Any, name: str) -> str:
    """The id of the task `name` beside this one: those of a `NodeCheck` have its group's id before their names."""
    group, dot, _ = ti.task_id.rpartition(".")
    return f"{group}{dot}{name}"


def stored_plan(planned_by: str | None = None) -> PlannedCampaign:
    """The plan of this DAG run. Raises AirflowSkipException unless the task `plan` succeeded: one that failed may have
    left runs that never started, and they must not be judged. `planned_by`: its id; None: that beside this task.
    """
    from trainbench.results.arrivals import PlannedCampaign
    from trainbench.results.artefacts import open_store

    ti = get_current_context()["ti"]
    task_id = planned_by or near(ti, TASK)
    by_run: Mapping[str, Any] = ti.get_task_states(dag_id=ti.dag_id, task_ids=[task_id], run_ids=[ti.run_id])
    is_made = by_run.get(ti.run_id, {}).get(task_id) == "success"
    text = open_store(read_settings().store).read_plan(campaign_id(ti.dag_id, ti.run_id)) if is_made else None
    if text is None:
        raise AirflowSkipException("there is no plan, so nothing is judged: the gate says why")
    return PlannedCampaign.model_validate_json(text)


def owner() -> Owner:
    context = get_current_context()
    return Owner(dag_id=context["dag"].dag_id, dag_run_id=context["run_id"])


def log(line: str) -> None:
    print(one_line(line, most=MAX_LINE))  # noqa: T201 - goes to the task's log


@contextmanager
def reason_kept() -> Iterator[None]:
    """Keeps the error of a store or database for the gate, which repeats it."""
    try:
        yield
    except UserError as error:
        get_current_context()["ti"].xcom_push(key=REASON, value=one_line(str(error), most=MAX_REASON))
        raise


def _asked(given: Mapping[str, Any] | None) -> Mapping[str, Any]:
    return dict(get_current_context()["params"]) if given is None else given


def make_stored_plan(campaign_kind: CampaignKind, asked: Mapping[str, Any], name: str | None = None) -> Plan:
    """Make the plan, check it, and store it last, beside the future results: only a plan that can run is stored, for
    later tasks and for the command line, which can judge a run that was cut off. `name`: of the campaign; None: the DAG
    run's.
    """
    from trainbench.results.arrivals import PlannedCampaign
    from trainbench.results.artefacts import open_store

    context = get_current_context()
    try:
        refuse_other_names(asked, campaign_kind)  # Airflow takes any name by REST and command line
        params = with_configuration(parse_params(asked))
        settings = settings_for(context["dag"].dag_id, read_settings())
        if campaign_kind is CampaignKind.STRATEGIES:
            refuse_sizes_without_tasks(settings.world_sizes, params)
        name = name or campaign_id(context["dag"].dag_id, context["run_id"])
        plan = PLANNERS[campaign_kind].make(params, known_fleet(settings, params), name)
        refuse_more_pods_than(max_map_length(), plan)
        manifest(plan.specs[0], settings)  # an unusable template fails the plan instead of each pod
    except (ParamsError, PlanError, PodTemplateError, CampaignFileError, AirflowFailException) as error:
        _refuse(str(error))
    if unknown := unknown_gpus(plan):
        log(unknown)
    for skipped in plan.skipped:
        log(f"skipped {skipped.what}: {skipped.reason}")
    for node in plan.absent:
        log(f"{node.name} is not benchmarked: {node.reason}")
    log(f"{count(len(plan.specs), 'run')} on {listing(dict.fromkeys(spec.identity.node for spec in plan.specs))}")
    suite, run_id = context["dag"].dag_id, context["run_id"]
    planned = PlannedCampaign(plan=plan, suite=suite, dag_run_id=run_id, planned_at=datetime.now(UTC))
    with reason_kept():
        open_store(read_settings().store).write_plan(plan.campaign_id, planned.model_dump_json(indent=1))
    return plan


def _refuse(reason: str, kind: type[AirflowException] = AirflowFailException) -> NoReturn:
    """Fail the task, and keep the reason for the gate, which repeats it. `kind`: AirflowException leaves retries."""
    text = one_line(reason, most=MAX_REASON)
    get_current_context()["ti"].xcom_push(key=REASON, value=text)
    raise kind(text) from None


def max_map_length() -> int:
    from airflow.configuration import conf

    return int(conf.getint("core", "max_map_length", fallback=MAX_MAP_LENGTH))
