"""Many pod tasks in one DAG run of the real Airflow: its start-up costs more than the pods do."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from functools import partial
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

import pytest
from airflow.providers.cncf.kubernetes.operators.pod import KubernetesPodOperator
from airflow.sdk.exceptions import AirflowException
from airflow.sdk.execution_time.supervisor import InProcessTestSupervisor
from airflow.triggers.base import TaskSuccessEvent, TriggerEvent

from bench_image.contract.options import Strategy
from bench_image.contract.parse import parse_result
from bench_image.contract.pod_io import SPEC_ENV
from bench_image.contract.result import RunResult
from bench_image.contract.result_lines import result_lines
from bench_image.contract.spec import RunSpec
from tests.builders import make_cpu_result, make_result, make_spec
from tests.kube.clusters import LINES, SHELL
from tests.kube.e2e import E2E, IS_REAL
from tests.kube.shell_pods import on_nodes, pod
from trainbench.orchestration import kubernetes_operator
from trainbench.orchestration.kubernetes_operator import BenchPodOperator
from trainbench.orchestration.run_trigger import RunTrigger
from trainbench.pods import time_limits
from trainbench.pods.manifests import CAMPAIGN, PodSettings, manifest

kubernetes_operator.RESTART_S = 3.0  # of the programs that end with 0 and print no whole result, and of refusals
BUNDLE = "dags-folder"
USUAL = {name: getattr(time_limits, name) for name in ("LATE_S", "LOG_SILENCE_S", "CONNECT_S")}
HURRIED = {"LATE_S": 2, "LOG_SILENCE_S": 3, "CONNECT_S": 3}
ENDED = "ended"  # in an event: the XComs of a trigger that ended its task
RESULT = "whole"  # an `Outcome.result`
SYNC, DEFERRED = "", "deferred-"  # modes, which begin a case's name
MODES = (SYNC, DEFERRED)
WRITE = "print-the-result"
FAST = {
    "poll_interval": 0.5,
    "startup_check_interval_seconds": 1,
    "startup_timeout_seconds": 120 * E2E.patience,
    "schedule_timeout_seconds": 60 * E2E.patience,
    "termination_grace_period": 1,
    "log_pod_spec_on_failure": False,
}
# Of a pod that waits in vain: the task waits as long.
IN_VAIN = {
    "startup_timeout_seconds": (60 if IS_REAL else 8) * E2E.patience,
    "schedule_timeout_seconds": (5 if IS_REAL else 2) * E2E.patience,
}


@dataclass(frozen=True)
class Case:
    """A shell script as a pod, one task in each of `modes`. `faults` happen to its pods, `options` are the operator's;
    `own_node`: it runs on a node of its own, made with these arguments; `needs_standin`: not run on a real cluster.

    How it ends: `kind` and `says` of the pod's end, `made`: pods that were made (None: one for each try), `stays`:
    whether a pod does.
    """

    name: str
    script: str = WRITE
    modes: tuple[str, ...] = MODES
    faults: tuple[dict[str, Any], ...] = ()
    spec: dict[str, Any] = field(default_factory=dict)
    gpus: int = 0
    image: str = SHELL
    operator: type[KubernetesPodOperator] = BenchPodOperator
    options: dict[str, Any] = field(default_factory=dict)
    labels: dict[str, str] = field(default_factory=dict)
    result: RunResult = field(default_factory=make_cpu_result)
    own_node: dict[str, Any] | None = None
    needs_standin: bool = False
    state: str = "success"
    kind: str = ""
    says: tuple[str, ...] = ()
    tries: int = 1
    made: int | None = None
    stays: bool = False

    def in_each_mode(self) -> Iterator[Case]:
        """Named by the mode, too; pinned to their own nodes as a benchmark's pod is."""
        for mode in self.modes:
            case = replace(self, name=mode + self.name, modes=(mode,))
            if self.own_node is not None:
                pinned = manifest(make_spec(node=case.node), PodSettings())["spec"]["affinity"]
                case = replace(case, needs_standin=True, spec={**self.spec, "affinity": pinned})
            yield replace(case, needs_standin=case.needs_standin or bool(self.faults))

    @property
    def node(self) -> str:
        return f"node-of-{self.name}"

    @property
    def is_deferrable(self) -> bool:
        return self.modes == (DEFERRED,)


class Outcome(NamedTuple):
    """`xcoms`: everything that the task pushed, by key; `requests`: what the API server saw of its pod."""

    state: str
    tries: int
    xcoms: dict[str, Any]
    requests: list[dict[str, Any]]
    pods_left: list[dict[str, Any]]

    @property
    def result(self) -> str | None:
        """RESULT where the task handed over the address of a result of its run that is in the store."""
        handed_over = self.xcoms.get("return_value")
        if not handed_over:
            return None
        assert handed_over.keys() == {"address", "bytes"}
        stored = parse_result(Path(handed_over["address"]).read_bytes())
        return RESULT if stored.error is None else stored.error.kind

    @property
    def end(self) -> dict[str, str]:
        return dict(self.xcoms.get("pod_end") or {})


class BenchKilled(BenchPodOperator):
    """The first try is ended after its program, before it reads the result, as by a worker without a database."""

    def to_its_end(self, context: Any, event: Any = None) -> None:
        self.is_first = context["ti"].try_number == 1
        super().to_its_end(context, event)

    def _collect(self) -> Any:
        if self.is_first:
            self.on_kill()
            raise AirflowException("this process was ended")
        yield from super()._collect()


class BenchHurried(BenchPodOperator):
    """Waits 3 s where a node gives no answer and 2 s for the end of a pod beyond its time limit, in its triggers too,
    which run in this process. No other case has such limits: a busy machine exceeds them.
    """


class Paced:
    """Sets the limits of its task, for triggers and all."""

    def pre_execute(self, context: Any) -> None:
        for name, value in (HURRIED if isinstance(self, BenchHurried) else USUAL).items():
            setattr(time_limits, name, value)


class Deferred:
    """Defers as `ManifestOperator` does, for one task of many."""

    def execute(self: Any, context: Any) -> None:
        times = ("schedule_timeout_seconds", "startup_timeout_seconds", "termination_grace_period")
        options = {name: getattr(self, name) for name in ("kubernetes_conn_id", *times)}
        self.defer(
            trigger=RunTrigger({**options, "pod_template_dict": dict(self.manifest)}), method_name="trigger_reentry"
        )

    def trigger_reentry(self: Any, context: Any, event: Any) -> None:
        if ENDED in event:
            context["ti"].xcom_push(key="return_value", value=event[ENDED]["return_value"])
        else:
            self.to_its_end(context, event)


def run_as_the_triggerer(run_inline: Any, *, trigger: Any, ti: Any) -> Any:
    """`dag.test()` gives a trigger no task, and resumes the task of one that ended it."""
    trigger.task_instance = ti
    event = run_inline(trigger=trigger, ti=ti)
    return TriggerEvent({ENDED: event.xcoms}) if isinstance(event, TaskSuccessEvent) else event


def run_cases(cluster: Any, cases: Sequence[Case]) -> dict[str, Outcome]:
    """Runs each case's task to its end, and tells what became of it."""
    from airflow.sdk import DAG

    with DAG("operator_cases") as dag:
        for case in cases:
            _task(cluster, case)
    run = _run(dag)
    requests, pods = cluster.requests() if cluster.simulated else [], _pods_that_stay(cluster, cases)
    instances = {instance.task_id: instance for instance in run.get_task_instances()}
    return {case.name: _outcome(instances[case.name], requests, pods) for case in cases}


def _task(cluster: Any, case: Case) -> None:
    name = f"case-{case.name}"
    for fault in case.faults:
        target = {"pod": f"^{name}-"} if "action" in fault else {}
        cluster.fault(**{**target, **{key: _named(value, name, case.node) for key, value in fault.items()}})
    labels = {"app.kubernetes.io/name": "trainbench", CAMPAIGN: name, **case.labels}
    made = pod(name, case.script, case.gpus, labels, **case.spec)
    made["metadata"]["namespace"] = cluster.namespace
    if not cluster.simulated:
        made["spec"].setdefault("affinity", on_nodes(cluster.nodes(1)))
    base = made["spec"]["containers"][0]
    base["image"] = case.image
    base["volumeMounts"] = [{"name": v["name"], "mountPath": "/mnt"} for v in case.spec.get("volumes", ())]
    give_a_run(base, case.name, case.result)
    options = {**FAST, "on_finish_action": "delete_pod", "retries": 0, "retry_delay": timedelta(0), **case.options}
    operator = type("Task", (Paced, *([Deferred] if case.is_deferrable else []), case.operator), {})
    operator(task_id=case.name, pod_template_dict=made, do_xcom_push=False, **options)


def give_a_run(base: dict[str, Any], name: str, result: RunResult | None = None) -> RunSpec:
    """Let the container be that of a run of this name; its script prints the run's result where it has `WRITE`."""
    result = result or make_cpu_result()
    spec = result.spec.changed(identity={"run_id": f"run-{name}"})
    lines = tuple(result_lines(result.model_copy(update={"spec": spec}).model_dump_json()))
    write = "printf '%s\\n' " + " ".join(f"'{line}'" for line in lines)
    if len(lines) > 1:  # more than a command line holds
        (LINES / name).write_text("\n".join(lines) + "\n")
        write = f"cat {LINES / name}"
    base["command"][-1] = base["command"][-1].replace(WRITE, write)
    base["env"] = [{"name": SPEC_ENV, "value": spec.model_dump_json()}, *base.get("env", ())]
    return spec


def large_result(nodes: int) -> RunResult:
    """Of a job on so many nodes with 8 GPUs, no two alike: its text compresses as little as a real one's."""
    numbers = Random(1)
    one = make_result(
        samples_per_s=76.0 * nodes, strategy=Strategy.DDP, nodes=nodes, gpus_per_node=8, micro_batch_size=1
    )
    assert one.context is not None
    ranks = tuple(
        replace(
            one.ranks[rank % 8], rank=rank, gpu_uuid=f"GPU-{numbers.getrandbits(128):032x}", mean_loss=numbers.random()
        )
        for rank in range(8 * nodes)
    )
    gpus = {name: section.gpus * nodes for name, section in (("context", one.context), ("telemetry", one.telemetry))}
    sections = {name: getattr(one, name).model_copy(update={"gpus": of_all}) for name, of_all in gpus.items()}
    return one.model_copy(update=sections | {"ranks": ranks})


def _named(value: Any, name: str, node: str) -> Any:
    return value.replace("NAME", name).replace("NODE", node) if isinstance(value, str) else value


def _run(dag: Any) -> Any:
    """`dag.test()` of a DAG that stands in no file: it has to be in the database."""
    from airflow.dag_processing.bundles.manager import DagBundlesManager
    from airflow.dag_processing.dagbag import DagBag, sync_bag_to_db

    DagBundlesManager().sync_bundles_to_db()
    bag = DagBag(dag_folder=os.devnull, bundle_path=Path(os.devnull).parent, bundle_name=BUNDLE)
    bag.bag_dag(dag)
    sync_bag_to_db(bag, BUNDLE, None)
    inline = InProcessTestSupervisor.run_trigger_in_process
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(InProcessTestSupervisor, "run_trigger_in_process", partial(run_as_the_triggerer, inline))
        return dag.test()


def _outcome(instance: Any, requests: Sequence[Any], pods: Sequence[Any]) -> Outcome:
    name = f"case-{instance.task_id}-"
    of_task = f"task_id%3D{instance.task_id}%2C"
    return Outcome(
        state=str(instance.state),
        tries=instance.try_number,
        xcoms=_xcoms(instance),
        requests=[entry for entry in requests if _concerns(entry, name, of_task)],
        pods_left=[item for item in pods if item["metadata"]["name"].startswith(name)],
    )


def _concerns(entry: dict[str, Any], name: str, of_task: str) -> bool:
    return name in entry["uri"] or of_task in entry["uri"] or entry.get("name", "").startswith(name)


def _pods_that_stay(cluster: Any, cases: Sequence[Case]) -> list[dict[str, Any]]:
    """The pods, once those on their way out are gone; those on a dead node never are."""
    of_dead = tuple(f"case-{case.name}-" for case in cases if any(f.get("action") == "lose_node" for f in case.faults))

    def are_gone(pods: list[dict[str, Any]]) -> bool:
        leaving = [item["metadata"]["name"] for item in pods if "deletionTimestamp" in item["metadata"]]
        return all(name.startswith(of_dead) for name in leaving)

    pods: list[dict[str, Any]] = cluster.wait_for_pods(are_gone)
    return pods


def _xcoms(instance: Any) -> dict[str, Any]:
    from airflow.models.xcom import XComModel
    from airflow.utils.session import create_session

    with create_session() as session:
        rows = session.query(XComModel).filter_by(run_id=instance.run_id, task_id=instance.task_id).all()
        return {row.key: XComModel.deserialize_value(row) for row in rows}
