"""The operator on the cluster, through the real Airflow: each sharp edge of the provider's, sync and deferrable.

The tasks run as the service account of the shipped manifests, in a namespace with restricted pod security.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.builders import make_failed, make_spec
from tests.kube.after_fault import (
    HEALTHY,
    SICK,
    after_fault,
    after_night,
    is_green,
    night_with,
    whole_results,
)
from tests.kube.clusters import LARGE, SLOW, connection
from tests.kube.faults import Fault, faults
from tests.kube.operator_runs import (
    IN_VAIN,
    RESULT,
    WRITE,
    BenchHurried,
    BenchKilled,
    Case,
    Outcome,
    large_result,
    run_cases,
)
from trainbench.core.verdicts import State
from trainbench.orchestration import kubernetes_operator, pod_requests, run_trigger
from trainbench.pods.manifests import GANG, RENDEZVOUS, PodSettings, manifest
from trainbench.pods.pod_end import PodEnd

pytestmark = pytest.mark.slow

RBAC = Path(__file__).resolve().parents[2] / "docker" / "kubernetes" / "base" / "rbac.yaml"
SLEEP = "exec sleep 100"


def on(node: str) -> dict[str, Any]:
    """Pinned as a benchmark's pod is."""
    return {"affinity": manifest(make_spec(node=node), PodSettings())["spec"]["affinity"]}


def cordon(node: str) -> tuple[dict[str, Any], ...]:
    """While the pod waits for a place."""
    return ({"action": "cordon", "moment": "created", "delay_s": 1, "node": node},)


NO_NODE = {"nodeSelector": {"kubernetes.io/hostname": "no-such-node"}}
NO_RUNTIME_CLASS = {"runtimeClassName": "no-such-class"}
NO_CLAIM = {"volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": "no-such-claim"}}]}
OF_GANG = {RENDEZVOUS: "true", GANG: "g0123456789"}
# Needs nothing of the cluster but the right to run pods: these cases run on a real one too.
MAY_NOT_READ = ({"path": "NAME-[^/]*/log", "code": 403, "n": 0},)
NO_LOG = (
    {
        "path": "NAME-[^/]*/log",
        "code": 500,
        "n": 4,
        "message": 'Get "https://10.1.2.3:10250/containerLogs/ns/pod/base": dial tcp 10.1.2.3:10250: i/o timeout',
    },
)
HANGS = ({"path": "NAME-[^/]*/log", "delay_s": 900, "n": 3},)
# As of a kubelet that restarts: the log from the seventh request on.
NO_KUBELET = ({"path": "NAME-[^/]*/log", "code": 500, "n": 6, "message": "error dialing backend: EOF"},)
# As of an API server that is away: 12 requests of the task, each tried four times by the client.
AWAY = ({"path": "/pods.*NAME", "drop": True, "n": 48, "skip": 2},)
# Its time in the queue ends before its place comes, and the deletion arrives afterwards.
HELD = {"action": "hold", "moment": "created", "for_s": 5}
DELETED_LATE = {"method": "DELETE", "path": "NAME", "delay_s": 5}
CUT_OFF = f"{WRITE} | cut -c-56"
BAR = "head -c 40000 /dev/zero | tr '\\\\0' x"  # a line without an end, which the container runtime cuts
TALKS_ON = f"{BAR}; {WRITE}; echo terminate called without an active exception >&2; {BAR}"
ANYWHERE = (
    Case("ok", f"echo hello; sleep 1; {WRITE}"),
    Case("deferred-ok", f"echo hello; sleep 1; {WRITE}", deferrable=True, image=SLOW),
    Case("empty", "true"),
    Case("deferred-empty", "true", deferrable=True),
    Case("failed-with-result", f"{WRITE}; echo out of memory > /dev/termination-log; exit 3"),
    Case("deferred-failed-with-result", f"{WRITE}; exit 3", deferrable=True),
    Case("cut-off", CUT_OFF),
    Case("deferred-cut-off", CUT_OFF, deferrable=True),
    Case("talks-on", TALKS_ON),
    Case("deferred-talks-on", TALKS_ON, deferrable=True),
    Case("silent-failure", "echo the loss is NaN > /dev/termination-log; exit 3", deferrable=True),
    Case("no-node", spec=NO_NODE, options=IN_VAIN),
    Case("deferred-no-node", spec=NO_NODE, deferrable=True, options=IN_VAIN),
    Case("no-runtime-class", spec=NO_RUNTIME_CLASS),
    Case("deferred-no-runtime-class", spec=NO_RUNTIME_CLASS, deferrable=True),
    Case("no-claim", spec=NO_CLAIM, options=IN_VAIN),
    Case("deferred-no-claim", spec=NO_CLAIM, deferrable=True, options=IN_VAIN),
    Case("no-image", image="no/such:1", options=IN_VAIN),
    Case("deferred-no-image", deferrable=True, image="no/such:1", options=IN_VAIN),
    Case("deadline", SLEEP, spec={"activeDeadlineSeconds": 1, "terminationGracePeriodSeconds": 1}),
    Case("quota", gpus=9000),
    Case("deferred-quota", gpus=9000, deferrable=True),
    Case("killed-pod", operator=BenchKilled, options={"retries": 1}),
    Case("killed-rank", operator=BenchKilled, options={"retries": 1}, labels=OF_GANG),
)
DRAIN = {"action": "drain", "moment": "running", "delay_s": 1}
DISK_FULL = {"action": "evict", "moment": "running", "delay_s": 1, "resource": "ephemeral-storage", "n": 0}
LOST = {"method": "POST", "path": "/pods$", "body": "NAME", "code": 503, "after": True}
FOREVER = {"key": "node.kubernetes.io/unreachable", "operator": "Exists", "effect": "NoExecute"}


def doomed(name: str, deferrable: bool, deadline_s: int | None = None, **spec: Any) -> Case:
    """Its machine loses its power while it runs, and with it the kubelet that would end it. `deadline_s`: to which its
    deadline is lowered then."""
    fault = {"action": "lose_node", "moment": "running", "delay_s": 1, "deadline_s": deadline_s}
    spec |= {**on(f"node-of-{name}"), "terminationGracePeriodSeconds": 1}
    return Case(name, SLEEP, deferrable, (fault,), spec, operator=BenchHurried, options={"retries": 2})


TOLERANT = {"tolerations": [FOREVER], "activeDeadlineSeconds": 600}
DOOMED = (
    doomed("dead", False),
    doomed("deferred-dead", True),
    doomed("tolerates-dead", False, deadline_s=1, **TOLERANT),
    doomed("deferred-tolerates-dead", True, deadline_s=1, **TOLERANT),
)
ONLY_STANDIN = (
    *DOOMED,
    Case("oom", SLEEP, faults=({"action": "oom", "moment": "running"},)),
    Case("deferred-oom", SLEEP, deferrable=True, faults=({"action": "oom", "moment": "running", "delay_s": 1},)),
    Case("vanished", SLEEP, faults=({"action": "vanish", "moment": "running", "delay_s": 1.5},)),
    Case("deferred-vanished", SLEEP, True, ({"action": "vanish", "moment": "running", "delay_s": 1.5},)),
    Case("evicted", SLEEP, faults=({"action": "evict", "moment": "running", "delay_s": 1},)),
    Case("deferred-evicted", SLEEP, True, ({"action": "evict", "moment": "running", "delay_s": 1},)),
    Case("disk-full", SLEEP, True, (DISK_FULL,), options={"retries": 1}),
    Case("drained", SLEEP, False, (DRAIN,), spec=on("node-2")),
    Case("deferred-drained", SLEEP, True, (DRAIN,), spec=on("node-3")),
    Case("preempted", SLEEP, faults=({"action": "preempt", "moment": "running", "delay_s": 1},)),
    Case("deferred-preempted", SLEEP, True, ({"action": "preempt", "moment": "running", "delay_s": 1},)),
    Case("api-away", f"sleep 1; {WRITE}", faults=AWAY),
    Case("deferred-api-away", f"sleep 1; {WRITE}", deferrable=True, faults=AWAY),
    Case("cordoned", spec=on("node-4")),
    Case("deferred-cordoned", spec=on("node-4"), deferrable=True),
    Case("cordoned-late", gpus=1, spec=on("node-5"), faults=cordon("node-5")),
    Case("deferred-cordoned-late", gpus=1, spec=on("node-6"), deferrable=True, faults=cordon("node-6")),
    Case("placed-late", faults=(HELD, DELETED_LATE), options=IN_VAIN),
    Case("deferred-placed-late", deferrable=True, faults=(HELD, DELETED_LATE), options=IN_VAIN),
    Case("eight-gpus", result=large_result(1)),
    Case("deferred-eight-gpus", deferrable=True, result=large_result(1)),
    Case("thousand-nodes", f"{BAR}; {WRITE}", image=LARGE, result=large_result(1000)),
    Case("deferred-thousand-nodes", f"{BAR}; {WRITE}", True, image=LARGE, result=large_result(1000)),
    Case("repeated", faults=({"action": "preempt", "moment": "scheduled", "n": 1},), options={"retries": 1}),
    Case("busy", gpus=1, options=IN_VAIN),
    Case("deferred-busy", gpus=1, deferrable=True, options=IN_VAIN),
    Case("lost", faults=(LOST,)),
    Case("deferred-lost", deferrable=True, faults=(LOST,)),
    Case("no-events", faults=({"path": "/events.*NAME", "code": 403, "n": 0},)),
    Case("deferred-no-events", deferrable=True, faults=({"path": "/events.*NAME", "code": 403, "n": 0},)),
    Case("refused-log", faults=MAY_NOT_READ),
    Case("deferred-refused-log", deferrable=True, faults=MAY_NOT_READ),
    Case("no-log", f"echo hello; sleep 2; {WRITE}", faults=NO_LOG),
    Case("deferred-no-log", f"echo hello; sleep 2; {WRITE}", deferrable=True, faults=NO_LOG),
    Case("hangs", f"echo hello; sleep 2; {WRITE}", faults=HANGS, operator=BenchHurried),
    Case("deferred-hangs", f"echo hello; sleep 2; {WRITE}", deferrable=True, faults=HANGS, operator=BenchHurried),
    Case("no-kubelet", f"echo hello; sleep 2; {WRITE}", faults=NO_KUBELET),
    Case("deferred-no-kubelet", f"echo hello; sleep 2; {WRITE}", deferrable=True, faults=NO_KUBELET),
    Case("no-create", faults=({"method": "POST", "path": "/pods$", "body": "NAME", "code": 403, "n": 0},)),
)


@pytest.fixture(scope="module")
def outcomes(
    standin: Any, airflow_db: None, request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[dict[str, Outcome]]:
    """The cases of the selected tests in one DAG run, one after another."""
    standin.reset()
    standin.nodes(1)
    if standin.simulated:
        for name in ("node-2", "node-3", "node-5", "node-6"):  # each is drained or cordoned once
            standin.add_node(name, gpus=0)
        standin.add_node("node-4", gpus=0, unschedulable=True)
    path, cases = standin.kubeconfig, ANYWHERE
    if standin.simulated:
        roles = [doc for doc in yaml.safe_load_all(RBAC.read_text()) if doc["kind"] in ("Role", "ClusterRole")]
        path = standin.kubeconfig_of("system:serviceaccount:airflow:trainbench-airflow", roles)
        cases = ANYWHERE + ONLY_STANDIN
        _occupy_the_gpu(standin)
        for case in DOOMED:
            standin.add_node(f"node-of-{case.name}", gpus=0)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(run_trigger, "MIN_DEFERRED_S", 0.0)
        patch.setattr(kubernetes_operator, "REFRESH_S", 0.3)
        patch.setattr(kubernetes_operator, "NODE_LOOK_S", 0.5)
        patch.setattr(pod_requests, "REFRESH_S", 0.2)
        patch.setenv("TRAINBENCH_STORE", str(tmp_path_factory.mktemp("store")))
        patch.setenv("AIRFLOW_CONN_KUBERNETES_DEFAULT", connection(standin, kubeconfig_path=path))
        selected = _selected(request.session)
        yield run_cases(standin, [case for case in cases if case.name in selected])


def _selected(session: pytest.Session) -> set[str]:
    params = [getattr(item, "callspec", None) for item in session.items if item.path == Path(__file__)]
    return {str(spec.params["outcome"]) for spec in params if spec is not None}


def _occupy_the_gpu(standin: Any) -> None:
    from kubernetes import client, config  # type: ignore[import-untyped]

    from tests.kube.shell_pods import pod

    api = client.CoreV1Api(config.new_client_from_config(str(standin.kubeconfig)))
    api.create_namespaced_pod("default", pod("production", "exec sleep 3600", gpus=1, priorityClassName="production"))


@pytest.fixture
def outcome(outcomes: dict[str, Outcome], request: pytest.FixtureRequest) -> Outcome:
    """Of the case that the test names."""
    if request.param not in outcomes:
        pytest.skip("this fault needs the stand-in; E2E_KUBECONFIG names a real cluster")
    return outcomes[request.param]


def of(*names: str) -> Any:
    return pytest.mark.parametrize("outcome", names, indirect=True)


@of(
    "ok",
    "deferred-ok",
    "talks-on",
    "deferred-talks-on",
    "no-events",
    "deferred-no-events",
    "lost",
    "deferred-lost",
    "api-away",
    "deferred-api-away",
    "placed-late",
    "deferred-placed-late",
    "eight-gpus",
    "deferred-eight-gpus",
    "thousand-nodes",
    "deferred-thousand-nodes",
)
def test_the_result_arrives_and_no_pod_stays(outcome: Outcome) -> None:
    """`talks-on`: 40,000 characters without an end stand before and after the result, and a line of stderr.
    `lost`: the pod was made, but the reply said 503. `placed-late`: at the last moment of its time in the queue.
    """
    assert outcome.state == "success", outcome.end
    assert outcome.result == RESULT
    assert outcome.pods_left == []


@of("empty", "deferred-empty")
def test_silence_is_no_success(outcome: Outcome) -> None:
    assert outcome.state == "failed"
    assert outcome.end["kind"] == "no_result"
    assert outcome.pods_left == []


@of("failed-with-result", "deferred-failed-with-result")
def test_a_failed_program_still_hands_over_its_result(outcome: Outcome) -> None:
    assert outcome.state == "failed"
    assert outcome.result == RESULT
    assert outcome.end == {}  # the result itself says why
    assert outcome.pods_left == []


@of("cut-off", "deferred-cut-off")
def test_a_result_that_was_cut_off_is_not_repeated(outcome: Outcome) -> None:
    assert (outcome.state, outcome.tries) == ("failed", 1)
    assert outcome.end["kind"] == "invalid_result"
    assert "the result in the log is damaged" in outcome.end["message"]
    assert outcome.pods_left == []


@of("silent-failure")
def test_the_program_s_last_output_is_the_cause(outcome: Outcome) -> None:
    assert outcome.state == "failed"
    assert outcome.end["kind"] == "no_result"
    assert "the loss is NaN" in outcome.end["message"]


@of("no-node", "deferred-no-node")
def test_a_pod_that_no_node_may_take_says_so(outcome: Outcome) -> None:
    assert outcome.state == "failed"
    assert outcome.end["kind"] == "unschedulable"
    assert "didn't match Pod's node affinity/selector" in outcome.end["message"]
    assert outcome.pods_left == []


@of("no-runtime-class", "deferred-no-runtime-class", "no-claim", "deferred-no-claim")
def test_what_the_pod_names_and_the_cluster_lacks_is_named(outcome: Outcome) -> None:
    missing = {"refused": 'RuntimeClass "no-such-class"', "unschedulable": 'persistentvolumeclaim "no-such-claim"'}
    assert (outcome.state, outcome.tries, outcome.pods_left) == ("failed", 1, [])
    assert f"{missing[outcome.end['kind']]} not found" in outcome.end["message"]


@of("busy", "deferred-busy")
def test_a_busy_node_is_skipped(outcome: Outcome) -> None:
    assert outcome.state == "skipped"
    assert outcome.end["kind"] == "busy"
    assert "Insufficient nvidia.com/gpu" in outcome.end["message"]
    assert outcome.pods_left == []


@of("quota", "deferred-quota")
def test_a_pod_beyond_the_shipped_quota_is_no_fault_of_the_node(outcome: Outcome) -> None:
    """Audit K6. The quota allows 8,000 GPUs."""
    assert outcome.state == "failed"
    assert outcome.end["kind"] == "quota"
    assert "exceeded quota: fence" in outcome.end["message"]
    assert outcome.pods_left == []


@of("oom", "deferred-oom")
def test_the_host_s_memory_is_named(outcome: Outcome) -> None:
    assert outcome.state == "failed"
    assert outcome.end["kind"] == "host_out_of_memory"


@of("deadline")
def test_the_cluster_s_deadline_is_named(outcome: Outcome) -> None:
    assert outcome.state == "failed"
    assert outcome.end["kind"] == "deadline"
    assert outcome.pods_left == []


@of("no-image", "deferred-no-image")
def test_an_image_that_is_not_there_is_named(outcome: Outcome) -> None:
    assert outcome.state == "failed"
    assert outcome.end["kind"] == "no_image"
    assert "'no/such:1' of container 'base'" in outcome.end["message"]
    assert outcome.pods_left == []


@of("vanished", "deferred-vanished")
def test_a_pod_that_somebody_deleted_is_no_result(outcome: Outcome) -> None:
    assert outcome.state == "failed"
    assert outcome.end["kind"] == "vanished"


@of("killed-pod", "killed-rank")
def test_a_task_that_airflow_ends_before_it_reads_the_result_finds_its_pod_and_result_again(outcome: Outcome) -> None:
    """Its end deleted the pod, and with a rank's pod the whole gang, which cannot be made anew."""
    assert (outcome.state, outcome.tries) == ("success", 2)
    assert outcome.result == RESULT
    assert outcome.pods_left == []
    made = [e for e in outcome.requests if e["verb"] == "create" and e["uri"].split("?")[0].endswith("/pods")]
    assert len(made) == 1 or not outcome.requests


@of("evicted", "deferred-evicted")
def test_an_eviction_is_named(outcome: Outcome) -> None:
    assert outcome.state == "failed"
    assert outcome.end["kind"] == "evicted"
    assert "low on resource: memory" in outcome.end["message"]
    assert outcome.pods_left == []


@of("disk-full")
def test_a_full_disk_is_named_when_no_retry_is_left(outcome: Outcome) -> None:
    assert (outcome.state, outcome.tries) == ("failed", 2)
    assert outcome.end["kind"] == "evicted"
    assert "low on resource: ephemeral-storage" in outcome.end["message"]
    assert outcome.pods_left == []


@of("drained", "deferred-drained", "cordoned", "deferred-cordoned", "cordoned-late", "deferred-cordoned-late")
def test_a_drained_pod_did_not_vanish(outcome: Outcome) -> None:
    """Audit K9: `kubectl drain` leaves no event, but a condition in the pod and a cordoned node. Nor is a pod waited
    for whose node was cordoned before it was made, or while it waited.
    """
    assert (outcome.state, outcome.tries) == ("skipped", 1)
    assert outcome.end["kind"] == "withdrawn"
    assert outcome.pods_left == []


@of("preempted", "deferred-preempted")
def test_a_preemption_is_named_although_the_pod_is_gone(outcome: Outcome) -> None:
    """An event outlives the pod."""
    assert outcome.state == "failed"
    assert outcome.end["kind"] == "preempted"
    assert outcome.pods_left == []


@of("dead", "deferred-dead", "tolerates-dead", "deferred-tolerates-dead")
def test_a_dead_node_ends_its_task_once_with_the_cause_and_names_the_pod_that_stays(outcome: Outcome) -> None:
    """The pod is deleted by the taint manager, or tolerates the dead node and outlives its deadline there. A retry
    would wait for a place on the same node.
    """
    (left,) = outcome.pods_left
    name = left["metadata"]["name"]

    assert (outcome.state, outcome.tries) == ("failed", 1)
    assert outcome.end["kind"] == "node_lost"
    assert "stopped answering (not ready since 20" in outcome.end["message"]
    assert "Kubelet stopped posting node status." in outcome.end["message"]
    assert f"pod {name} could not be removed and its program may still run there" in outcome.end["message"]
    assert "deletionTimestamp" in left["metadata"]


@of("repeated")
def test_a_preempted_pod_is_repeated(outcome: Outcome) -> None:
    assert (outcome.state, outcome.tries) == ("success", 2)
    assert outcome.result == RESULT


@of("no-create")
def test_a_missing_right_is_named(outcome: Outcome) -> None:
    assert outcome.state == "failed"
    assert outcome.end["kind"] == "refused"
    assert outcome.pods_left == []


@of("no-log", "deferred-no-log")
def test_a_kubelet_that_serves_no_log_costs_neither_pod_nor_result(outcome: Outcome) -> None:
    """Sync mode deleted the healthy pod after four failed reads of its log, 16 s after its start."""
    assert (outcome.state, outcome.tries) == ("success", 1)
    assert outcome.result == RESULT
    assert outcome.pods_left == []


@of("hangs", "deferred-hangs")
def test_a_kubelet_that_never_answers_costs_neither_pod_nor_result(outcome: Outcome) -> None:
    """The log was waited for without a limit."""
    assert (outcome.state, outcome.tries) == ("success", 1)
    assert outcome.result == RESULT
    assert outcome.pods_left == []


@of("no-kubelet", "deferred-no-kubelet")
def test_a_kubelet_that_is_away_when_the_program_ends_costs_no_result(outcome: Outcome) -> None:
    assert (outcome.state, outcome.tries) == ("success", 1)
    assert outcome.result == RESULT
    assert outcome.pods_left == []


@of("refused-log", "deferred-refused-log")
def test_a_result_that_may_not_be_read_is_no_fault_of_the_program(outcome: Outcome) -> None:
    assert outcome.state == "failed"
    assert outcome.end["kind"] == "refused"
    assert len(outcome.pods_left) == 1, "what it left may be read once the right is there: `release` decides"


@pytest.mark.parametrize(
    ("outcome", "fault"),
    [pytest.param(case, fault, id=f"{fault.name}-{case}") for fault in faults() for case in fault.cases],
    indirect=["outcome"],
)
def test_after_each_fault_no_result_is_lost_or_counts_twice_no_pod_stays_and_a_sentence_says_why(
    outcome: Outcome, fault: Fault
) -> None:
    """And what the task left is one sick node in a night of healthy ones."""
    made = [e for e in outcome.requests if e["verb"] == "create" and e["code"] == 201 and e.get("name")]
    end = PodEnd.model_validate(outcome.end) if outcome.end else None
    night = night_with(payload_of(outcome), outcome.state, end)
    left = [] if fault.leaves_pod else [pod["metadata"]["name"] for pod in outcome.pods_left]
    after_fault(fault.name, pods=left)
    after_night(fault.name, planned=[*HEALTHY, SICK], campaign=night, is_green=is_green(night))

    assert len(made) <= outcome.tries
    assert outcome.result == RESULT or outcome.state != "success"
    assert (outcome.state == "success") == all(node.state is State.WELL for node in night.nodes), night.nodes


def payload_of(outcome: Outcome) -> str | None:
    """The case's result as the benchmark program would have written it: whole, or with its error."""
    if outcome.result is None:
        return None
    whole = whole_results()[SICK]
    failed = make_failed(SICK).model_copy(update={"spec": whole.spec})
    return (whole if outcome.state == "success" else failed).model_dump_json()


# The requests that the operator made of a real API server for one pod, without the reads of the pod itself, and of its
# events: where the machine is busy, the pod has started before the operator waits for that.
RECORDED = ["create pods", "get log", "delete pods"]


@of("ok", "deferred-ok")
def test_the_requests_are_those_that_a_real_cluster_sees(outcome: Outcome) -> None:
    if not outcome.requests:
        pytest.skip("only the stand-in tells which requests it saw")
    made = []
    for entry in outcome.requests:
        path = entry["uri"].split("?")[0].split("/")
        what = path[-1] if path[-1] in ("log", "events") else "pods"
        request = f"{entry['verb']} {what}"
        if what != "events" and request != "get pods" and not (request == "get log" and request in made):
            made.append(request)

    assert made == RECORDED
    assert all(entry["code"] < 300 for entry in outcome.requests)
