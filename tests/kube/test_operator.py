"""The operator and its trigger against an API server, by the official client, as the account of the shipped manifests:
how pods end, all at once in one triggerer, and what the trigger leaves then in a worker.

tests/dag/test_pod_steps.py has the same steps on an API in memory, whose hours pass at once, with each fault.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from random import Random
from types import SimpleNamespace
from typing import Any, NamedTuple

import pytest
from airflow.sdk.exceptions import AirflowException, AirflowSkipException

from bench_image.contract.options import Strategy
from bench_image.contract.parse import parse_result
from bench_image.contract.pod_io import SPEC_ENV
from bench_image.contract.result import RunResult
from bench_image.contract.result_lines import result_lines
from tests.builders import make_cpu_result, make_result
from tests.kube.after_fault import after_fault
from tests.kube.clusters import ACCOUNT, LARGE, LINES, SHELL, SLOW, connection
from tests.kube.dag_runs import occupy
from tests.kube.e2e import E2E, IS_REAL
from tests.kube.shell_pods import on_nodes, pod
from trainbench.orchestration import kubernetes_operator, run_trigger
from trainbench.orchestration.kubernetes_operator import BenchPodOperator
from trainbench.orchestration.run_trigger import RunTrigger
from trainbench.pods import time_limits
from trainbench.pods.manifests import CAMPAIGN

pytestmark = pytest.mark.slow
OF_STANDIN = pytest.mark.skipif(IS_REAL, reason="its faults need the stand-in")
WRITE = "print-the-result"
WAITS = {"schedule_timeout_seconds": 60 * E2E.patience, "startup_timeout_seconds": 120 * E2E.patience}
IN_VAIN = {"schedule_timeout_seconds": 4 * E2E.patience, "startup_timeout_seconds": 15 * E2E.patience}
BAR = "head -c 40000 /dev/zero | tr '\\\\0' x"  # a line without an end, which the container runtime cuts
DENIED = f'pods is forbidden: User "{ACCOUNT}" cannot create resource "pods" in API group "" in the namespace "x"'


class Case(NamedTuple):
    """A shell script as a pod. `state`, `kind` and `says`: how its task ends; `has_result`: it hands one over; `left`:
    the trigger leaves its pod as it is, for a worker.
    """

    script: str = WRITE
    state: str = "failed"
    kind: str = ""
    says: str = ""
    has_result: bool = False
    left: bool = False
    spec: dict[str, Any] = {}  # noqa: RUF012 - read only
    gpus: int = 0
    image: str = SHELL
    waits: dict[str, float] = WAITS
    result: RunResult | None = None
    fault: dict[str, Any] = {}  # noqa: RUF012 - NAME: its pods
    needs_standin: bool = False


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


def volume(**source: Any) -> dict[str, Any]:
    return {"volumes": [{"name": "data", **source}]}


GOOD: Any = {"state": "success", "has_result": True}
ILL: Any = {"left": True}
CASES = {
    "ok": Case(f"echo hello; sleep 1; {WRITE}", image=SLOW, **GOOD),
    # Lines without an end before and after the result, and one of stderr.
    "talks-on": Case(f"{BAR}; {WRITE}; echo terminate called >&2; {BAR}", **GOOD),
    "thousand-nodes": Case(f"{BAR}; {WRITE}", image=LARGE, result=large_result(1000), needs_standin=True, **GOOD),
    # The log was waited for without a limit.
    "hangs": Case(fault={"path": "NAME-[^/]*/log", "n": 2, "delay_s": 900}, **GOOD),
    "failed-with-result": Case(f"{WRITE}; exit 3", has_result=True, **ILL),
    "silent": Case("printf 'step 1\\n\\033[31mCUDA error\\n'; exit 3", kind="no_result", says="exit code 3", **ILL),
    "empty": Case("true", kind="no_result", says="exit code 0", **ILL),
    "cut": Case(f"{WRITE} | cut -c-60", kind="invalid_result", says="the result in the log is damaged", **ILL),
    "deadline": Case(
        "exec sleep 100", kind="deadline", spec={"activeDeadlineSeconds": 1, "terminationGracePeriodSeconds": 1}, **ILL
    ),
    "evicted": Case(
        "exec sleep 100", kind="evicted", says="low on resource: memory",
        fault={"action": "evict", "moment": "running", "delay_s": 1}, **ILL,
    ),
    "vanished": Case(
        "exec sleep 100", kind="vanished", fault={"action": "vanish", "moment": "running", "delay_s": 1}
    ),
    "refused": Case(
        kind="refused", says=f"({DENIED})",
        fault={"method": "POST", "path": "/pods$", "body": "NAME", "code": 403, "n": 0, "message": DENIED},
    ),
    "no-runtime-class": Case(
        spec={"runtimeClassName": "no-such-class"}, kind="refused", says='RuntimeClass "no-such-class" not found'
    ),
    # Audit K6. The quota allows 8,000 GPUs, and the node is not at fault.
    "quota": Case(gpus=9000, kind="quota", says="exceeded quota: fence"),
    "no-node": Case(
        spec={"nodeSelector": {"kubernetes.io/hostname": "no-such-node"}}, kind="unschedulable",
        says="didn't match Pod's node affinity/selector", waits=IN_VAIN,
    ),
    "no-claim": Case(
        spec=volume(persistentVolumeClaim={"claimName": "no-such-claim"}), kind="unschedulable",
        says='persistentvolumeclaim "no-such-claim" not found', waits=IN_VAIN,
    ),
    "no-mount": Case(
        spec=volume(secret={"secretName": "no-such-secret"}), kind="not_started",
        says='MountVolume.SetUp failed for volume "d', waits=IN_VAIN,
    ),
    "no-image": Case(image="no/such:1", kind="no_image", says="'no/such:1' of container 'base'", waits=IN_VAIN),
    "busy": Case(
        gpus=1, state="skipped", kind="busy", says="Insufficient nvidia.com/gpu", waits=IN_VAIN, needs_standin=True
    ),
}  # fmt: skip


class Tasks:
    """Runs the tasks of pods, and keeps what they push."""

    def __init__(self, cluster: Any, store: Path) -> None:
        self.cluster, self.store = cluster, store
        self.pushed: dict[str, dict[str, Any]] = {}

    def options(self, name: str, case: Case) -> dict[str, Any]:
        """Of the operator."""
        if case.fault:
            target = {"pod": "^NAME-"} if "action" in case.fault else {}
            fault = {**target, **case.fault}
            self.cluster.fault(
                **{
                    key: value.replace("NAME", f"case-{name}") if key in ("pod", "path", "body") else value
                    for key, value in fault.items()
                }
            )
        labels = {"app.kubernetes.io/name": "trainbench", CAMPAIGN: "c1"}
        made = pod(f"case-{name}", case.script, case.gpus, labels, **case.spec)
        made["metadata"]["namespace"] = self.cluster.namespace
        made["spec"].setdefault("activeDeadlineSeconds", 600)
        if IS_REAL:
            made["spec"].setdefault("affinity", on_nodes(self.cluster.nodes(1)))
        base = made["spec"]["containers"][0]
        base["image"] = case.image
        base["volumeMounts"] = [{"name": each["name"], "mountPath": "/mnt"} for each in case.spec.get("volumes", ())]
        self._give_a_run(base, name, case.result or make_cpu_result())
        return {
            "kubernetes_conn_id": "kubernetes_default",
            "do_xcom_push": False,
            "termination_grace_period": 1,
            "pod_template_dict": made,
            "store": str(self.store),
            **case.waits,
        }

    def _give_a_run(self, base: dict[str, Any], name: str, result: RunResult) -> None:
        """Let the container be that of a run of this name; its script prints the run's result where it has `WRITE`."""
        spec = result.spec.changed(identity={"run_id": f"run-{name}", "campaign_id": "c1"})
        lines = tuple(result_lines(result.model_copy(update={"spec": spec}).model_dump_json()))
        write = "printf '%s\\n' " + " ".join(f"'{line}'" for line in lines)
        if len(lines) > 1:  # more than a command line holds
            (LINES / name).write_text("\n".join(lines) + "\n")
            write = f"cat {LINES / name}"
        base["command"][-1] = base["command"][-1].replace(WRITE, write)
        base["env"] = [{"name": SPEC_ENV, "value": spec.model_dump_json()}]

    def instance(self, name: str) -> Any:
        ti = SimpleNamespace(dag_id="night", task_id=name, run_id="r1", map_index=0, try_number=1, max_tries=0, id=name)
        ti.xcom_push = lambda key, value: self.pushed.setdefault(name, {}).update({key: value})
        return ti

    def trigger(self, name: str, options: dict[str, Any]) -> RunTrigger:
        trigger = RunTrigger(options)
        trigger.task_instance = self.instance(name)
        return trigger

    def run(self, triggers: list[RunTrigger]) -> list[Any]:
        """The first event of each, all at once in one loop as in the triggerer."""

        async def first() -> list[Any]:
            return await asyncio.gather(*(anext(trigger.run()) for trigger in triggers))

        return asyncio.run(first())

    def work(self, name: str, options: dict[str, Any], event: Any = None) -> str:
        """The state in which the task ends in a worker."""
        context: Any = {"ti": self.instance(name), "run_id": "r1", "dag": None}
        try:
            BenchPodOperator(task_id=name, **options).to_its_end(context, event)
        except AirflowSkipException:
            return "skipped"
        except AirflowException:
            return "failed"
        return "success"

    def left(self) -> list[str]:
        """The task of each pod of ours that is not on its way out."""
        pods = [each["metadata"] for each in self.cluster.pods() if "deletionTimestamp" not in each["metadata"]]
        return sorted(each["labels"]["task_id"] for each in pods if "task_id" in each["labels"])

    def requests(self, name: str) -> list[str]:
        """Those for the task's own pod, and whether they were carried out."""
        own = f"case-{name}-"
        seen = [e for e in self.cluster.requests() if own in e["uri"] or e.get("name", "").startswith(own)]
        return [f"{e['verb']} {'log' if '/log' in e['uri'] else 'pod'} {e['code']}" for e in seen]


class Played(NamedTuple):
    """`states` by case; `left`: the tasks whose pods the triggers left."""

    tasks: Tasks
    states: dict[str, str]
    left: list[str]


@pytest.fixture(autouse=True)
def _hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    hurry(monkeypatch)


def hurry(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(kubernetes_operator, "REFRESH_S", 0.2)
    patch.setattr(kubernetes_operator, "RESTART_S", 3.0)
    patch.setattr(run_trigger, "MIN_DEFERRED_S", 0.0)
    patch.setattr(kubernetes_operator, "HOOK_S", 1e-6)  # each test has rights of its own
    patch.setattr(time_limits, "LOG_SILENCE_S", 5.0)  # what takes longer is asked again


@pytest.fixture(scope="module")
def played(standin: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Played]:
    standin.reset()
    standin.nodes(1)
    if standin.simulated:
        occupy(standin, "node-1")
    tasks = Tasks(standin, tmp_path_factory.mktemp("store"))
    with pytest.MonkeyPatch.context() as patch:
        hurry(patch)
        patch.setenv("AIRFLOW_CONN_KUBERNETES_DEFAULT", connection(standin))
        cases = {name: case for name, case in CASES.items() if not IS_REAL or not (case.needs_standin or case.fault)}
        options = {name: tasks.options(name, case) for name, case in cases.items()}
        events = tasks.run([tasks.trigger(name, given) for name, given in options.items()])
        left, states = tasks.left(), {}
        for (name, given), event in zip(options.items(), events, strict=True):
            if type(event).__name__ == "TaskSuccessEvent":
                tasks.pushed[name], states[name] = event.xcoms, "success"
            else:
                states[name] = tasks.work(name, given, event.payload)
        states["sync"] = tasks.work("sync", tasks.options("sync", CASES["ok"]))
        yield Played(tasks, states, left)


@pytest.mark.parametrize("name", CASES)
def test_a_pod_s_task_ends_as_told_and_says_why(name: str, played: Played) -> None:
    """One bad pod does nothing to the others. Good ones are gone; each bad one is left for a worker, which says why."""
    if name not in played.states:
        pytest.skip("this fault needs the stand-in; E2E_KUBECONFIG names a real cluster")
    case, pushed = CASES[name], played.tasks.pushed.get(name, {})
    end = pushed.get("pod_end", {})

    assert (played.states[name], end.get("kind", "")) == (case.state, case.kind), end
    assert case.says in end.get("message", "")
    assert ("return_value" in pushed) == case.has_result
    if case.has_result:
        stored = parse_result(Path(pushed["return_value"]["address"]).read_bytes())
        assert stored.spec.identity.run_id == f"run-{name}"
    assert (name in played.left) == case.left
    after_fault(pods=[task for task in played.tasks.left() if task == name], cause=end.get("message"))


@pytest.mark.parametrize("name", ["ok", "sync"])
def test_a_pod_costs_three_requests_and_all_are_watched_by_one_list(name: str, played: Played) -> None:
    if IS_REAL:
        pytest.skip("only the stand-in tells which requests it saw")
    assert played.states[name] == "success"
    assert played.tasks.requests(name) == ["create pod 201", "get log 200", "delete pod 200"]
    uris = [entry["uri"] for entry in played.tasks.cluster.requests() if entry["verb"] in ("get", "list")]
    assert [uri for uri in uris if "labelSelector" in uri and "task_id" not in uri and "/pods?" in uri]


def test_the_end_of_each_log_is_kept_without_control_characters(played: Played) -> None:
    """Of a pod that failed it is what says why."""
    for name, logged in {"ok": "hello\n", "silent": "step 1\n [31mCUDA error\n"}.items():
        assert (played.tasks.store / "campaigns" / "c1" / "runs" / f"run-{name}" / "pod.log").read_text() == logged


@pytest.fixture
def tasks(cluster: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Tasks:
    cluster.nodes(1)
    monkeypatch.setenv("AIRFLOW_CONN_KUBERNETES_DEFAULT", connection(cluster))
    monkeypatch.setattr(time_limits, "LOG_SILENCE_S", 600.0)
    return Tasks(cluster, tmp_path / "store")


@OF_STANDIN
def test_fifty_pods_that_wait_in_vain_each_say_why_and_leave_nothing(tasks: Tasks) -> None:
    """More than the triggerer has threads for them."""
    occupy(tasks.cluster, "node-1")
    case = Case(gpus=1, waits=WAITS | {"schedule_timeout_seconds": 5})
    made = [tasks.trigger(f"pod-{index}", tasks.options(f"pod-{index}", case)) for index in range(50)]
    ends = [event.payload["end"] for event in tasks.run(made)]

    assert {end["kind"] for end in ends} == {"busy"}
    (cause,) = {end["message"] for end in ends}
    after_fault("many-queued", pods=tasks.left(), cause=cause)


@OF_STANDIN
def test_a_task_that_somebody_ends_takes_its_pod_along_also_while_it_is_being_made(tasks: Tasks) -> None:
    tasks.cluster.fault(method="POST", path="/pods$", body="case-ended", delay_s=1, n=1)

    async def end() -> None:
        trigger = tasks.trigger("ended", tasks.options("ended", Case("exec sleep 100")))
        task: Any = asyncio.create_task(anext(trigger.run()))  # type: ignore[arg-type]
        while not any(entry["verb"] == "create" for entry in tasks.cluster.requests()):
            await asyncio.sleep(0.1)
        task.cancel()
        await asyncio.wait([task])
        await trigger.on_kill()

    asyncio.run(end())

    assert tasks.requests("ended")[0] == "create pod 201"
    assert tasks.left() == []
