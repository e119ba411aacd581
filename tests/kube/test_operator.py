"""The operator on the cluster, through the real Airflow: each sharp edge of the provider's, sync and deferrable.

The tasks run as the service account of the shipped manifests, in a namespace with restricted pod security.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.builders import make_failed
from tests.kube.after_fault import HEALTHY, SICK, after_fault, after_night, is_green, night_with, whole_results
from tests.kube.clusters import ACCOUNT, LARGE, SLOW, connection
from tests.kube.dag_runs import occupy
from tests.kube.faults import faults
from tests.kube.operator_runs import (
    DEFERRED,
    IN_VAIN,
    RESULT,
    SYNC,
    WRITE,
    BenchHurried,
    BenchKilled,
    Case,
    Outcome,
    large_result,
    run_cases,
)
from trainbench.core.verdicts import State
from trainbench.orchestration import kubernetes_operator, run_trigger
from trainbench.pods.manifests import GANG, RENDEZVOUS
from trainbench.pods.pod_end import PodEnd

pytestmark = pytest.mark.slow

SLEEP = "exec sleep 100"
FAILED: Any = {"state": "failed"}
RETRIED: Any = {"options": {"retries": 1}, "tries": 2}
OF_GANG = {RENDEZVOUS: "true", GANG: "g0123456789"}
NO_SECRET = {"volumes": [{"name": "data", "secret": {"secretName": "no-such-secret"}}]}
NO_CLAIM = {"volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": "no-such-claim"}}]}
FOREVER = {"key": "node.kubernetes.io/unreachable", "operator": "Exists", "effect": "NoExecute"}
BAR = "head -c 40000 /dev/zero | tr '\\\\0' x"  # a line without an end, which the container runtime cuts
TALKS_ON = f"{BAR}; {WRITE}; echo terminate called without an active exception >&2; {BAR}"
LOGS = f"echo hello; sleep 2; {WRITE}"
# The result arrives, and no pod stays.
ARRIVES = (
    Case("ok", f"echo hello; sleep 1; {WRITE}", image=SLOW),
    Case("talks-on", TALKS_ON),  # without an end before and after the result, and a line of stderr
    Case("eight-gpus", result=large_result(1), needs_standin=True),
    Case("thousand-nodes", f"{BAR}; {WRITE}", image=LARGE, result=large_result(1000), needs_standin=True),
)


def happens(action: str, delay_s: float = 1, moment: str = "running", **more: Any) -> tuple[dict[str, Any], ...]:
    """To the case's pod, or to its node."""
    return ({"action": action, "moment": moment, "delay_s": delay_s, **more},)


def answers(what: str = "", n: int = 0, **fault: Any) -> tuple[dict[str, Any], ...]:
    """What the API server answers to `n` requests for the case's pod, 0: to all; `what`: its log."""
    return ({"path": f"NAME-[^/]*{what}", "n": n, **fault},)


def created(**fault: Any) -> dict[str, Any]:
    """To the request that creates the case's pod."""
    return {"method": "POST", "path": "/pods$", "body": "NAME", **fault}


# A real API server's words.
DENIED = (
    f'pods is forbidden: User "{ACCOUNT}" cannot {{}} resource "{{}}" in API group "" in the namespace "trainbench"'
)
# A kubelet that does not answer costs neither pod nor result, nor does an API server.
NO_ROUTE = 'Get "https://10.1.2.3:10250/containerLogs/ns/pod/base": dial tcp 10.1.2.3:10250: i/o timeout'
SURVIVES = (
    # Sync mode deleted the healthy pod after four failed reads of its log, 16 s after its start.
    Case("no-log", LOGS, faults=answers("/log", 4, code=500, message=NO_ROUTE)),
    # The log was waited for without a limit.
    Case("hangs", LOGS, faults=answers("/log", 3, delay_s=900), operator=BenchHurried),
    # As of a kubelet that restarts: the log from the seventh request on.
    Case("no-kubelet", LOGS, faults=answers("/log", 6, code=500, message="error dialing backend: EOF")),
    # As of an API server that is away: 12 requests of the task, each tried four times by the client.
    Case("api-away", f"sleep 1; {WRITE}", faults=({"path": "/pods.*NAME", "drop": True, "n": 48, "skip": 2},)),
    Case("no-events", faults=({"path": "/events.*NAME", "code": 403, "n": 0},)),
    Case("lost", faults=(created(code=503, after=True),)),  # the pod was made
    # Its time in the queue ends before its place comes, and the deletion arrives afterwards.
    Case(
        "placed-late",
        faults=(*happens("hold", 0, "created", for_s=5), {"method": "DELETE", "path": "NAME", "delay_s": 5}),
        options=IN_VAIN,
    ),
    Case("repeated", modes=(SYNC,), faults=happens("preempt", 0, "scheduled", n=1), **RETRIED),
    # Ended by Airflow before it reads the result: its end deleted the pod, and with a rank's pod the whole gang.
    Case("killed-pod", modes=(SYNC,), operator=BenchKilled, made=1, **RETRIED),
    Case("killed-rank", modes=(SYNC,), operator=BenchKilled, made=1, labels=OF_GANG, **RETRIED),
)
IN_QUEUE: Any = {"options": IN_VAIN, **FAILED}
# What does not go well a trigger leaves to a worker, which ends it as in sync mode: so these run deferred only.
LEFT: Any = {"modes": (DEFERRED,), **FAILED}
ENDS = (
    Case("empty", "true", kind="no_result", **LEFT),
    Case("failed-with-result", f"{WRITE}; echo out of memory > /dev/termination-log; exit 3", **FAILED),
    Case(
        "cut-off", f"{WRITE} | cut -c-56", kind="invalid_result", says=("the result in the log is damaged",), **LEFT
    ),
    Case(
        "silent-failure", "echo the loss is NaN > /dev/termination-log; exit 3", (DEFERRED,), kind="no_result",
        says=("the loss is NaN",), **FAILED,
    ),
    Case(
        "no-node", spec={"nodeSelector": {"kubernetes.io/hostname": "no-such-node"}}, kind="unschedulable",
        says=("didn't match Pod's node affinity/selector",), **IN_QUEUE,
    ),
    Case(
        "no-runtime-class", spec={"runtimeClassName": "no-such-class"}, kind="refused",
        says=('RuntimeClass "no-such-class" not found',), **LEFT,
    ),
    Case(
        "no-claim", spec=NO_CLAIM, kind="unschedulable", says=('persistentvolumeclaim "no-such-claim" not found',),
        modes=(DEFERRED,), **IN_QUEUE,
    ),
    Case(
        "no-image", image="no/such:1", kind="no_image", says=("'no/such:1' of container 'base'",), modes=(DEFERRED,),
        **IN_QUEUE,
    ),
    Case("no-mount", spec=NO_SECRET, kind="not_started", says=('MountVolume.SetUp failed for volume "d',), **IN_QUEUE),
    Case(
        "deadline", SLEEP, (SYNC,), spec={"activeDeadlineSeconds": 1, "terminationGracePeriodSeconds": 1},
        kind="deadline", **FAILED,
    ),
    # Audit K6. The quota allows 8,000 GPUs, and the node is not at fault.
    Case("quota", gpus=9000, kind="quota", says=("exceeded quota: fence",), **LEFT),
    Case(
        "busy", gpus=1, needs_standin=True, options=IN_VAIN, state="skipped", kind="busy",
        says=("Insufficient nvidia.com/gpu",),
    ),
    Case("oom", SLEEP, faults=happens("oom"), kind="host_out_of_memory", **LEFT),
    Case("vanished", SLEEP, faults=happens("vanish", 1.5), kind="vanished", **LEFT),
    Case("evicted", SLEEP, faults=happens("evict"), kind="evicted", says=("low on resource: memory",), **LEFT),
    Case(
        "disk-full", SLEEP, (DEFERRED,), happens("evict", resource="ephemeral-storage", n=0), kind="evicted",
        says=("low on resource: ephemeral-storage",), **FAILED, **RETRIED,
    ),
    Case("preempted", SLEEP, faults=happens("preempt"), kind="preempted", **LEFT),  # an event outlives the pod
    # Audit K9: `kubectl drain` leaves no event, but a condition in the pod and a cordoned node. Nor is a pod waited for
    # whose node was cordoned before it was made, or while it waited.
    Case("drained", SLEEP, faults=happens("drain"), own_node={}, state="skipped", kind="withdrawn"),
    Case("cordoned", own_node={"unschedulable": True}, state="skipped", kind="withdrawn", modes=(DEFERRED,)),
    Case(
        "late-cordoned", gpus=1, faults=happens("cordon", 1, "created", node="NODE"), own_node={}, state="skipped",
        kind="withdrawn", modes=(DEFERRED,),
    ),
    Case(
        "no-create", faults=(created(code=403, n=0, message=DENIED.format("create", "pods")),), kind="refused",
        says=(f'({DENIED.format("create", "pods")})', "`trainbench doctor` names the missing right"), **FAILED,
    ),
    # What it left may be read once the right is there: `release` decides.
    Case(
        "refused-log", faults=answers("/log", code=403, message=DENIED.format("get", "pods/log")), kind="refused",
        says=(DENIED.format("get", "pods/log"),), stays=True, **LEFT,
    ),
)  # fmt: skip
# The machine of each loses its power while the pod runs, and with it the kubelet that would end it: the pod is deleted
# by the taint manager, or tolerates the dead node and outlives its deadline there. A retry would wait for that node.
DEAD: Any = {
    "own_node": {}, "operator": BenchHurried, "options": {"retries": 2}, "kind": "node_lost", "stays": True, **FAILED,
    "says": ("stopped answering (not ready since 20", "Kubelet stopped posting node status.", "pod NAME could not be "
             "removed and its program may still run there"),
}  # fmt: skip
TOLERANT = {"tolerations": [FOREVER], "activeDeadlineSeconds": 600}
DOOMED = (
    Case("dead", SLEEP, faults=happens("lose_node"), spec={"terminationGracePeriodSeconds": 1}, **DEAD),
    Case(
        "tolerates-dead", SLEEP, faults=happens("lose_node", deadline_s=1),
        spec={"terminationGracePeriodSeconds": 1, **TOLERANT}, **DEAD,
    ),
)  # fmt: skip
VARIES = re.compile(r"-[0-9a-f]{8}\b|\d{4}-\d\d-\d\d[T ][\d:]+Z?|waited for \d+ s|are available: .*")
CASES = {case.name: case for made in (*DOOMED, *ARRIVES, *SURVIVES, *ENDS) for case in made.in_each_mode()}


@pytest.fixture(scope="module")
def outcomes(
    standin: Any, airflow_db: None, request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[dict[str, Outcome]]:
    """The cases of the selected tests in one DAG run, one after another."""
    selected = _selected(request.session)
    cases = [case for case in CASES.values() if case.name in selected and standin.simulated >= case.needs_standin]
    standin.reset()
    standin.nodes(1)
    if standin.simulated:
        occupy(standin, "node-1")
        for case in cases:
            if case.own_node is not None:
                standin.add_node(case.node, gpus=0, **case.own_node)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(run_trigger, "MIN_DEFERRED_S", 0.0)
        patch.setattr(kubernetes_operator, "NODE_LOOK_S", 0.5)
        patch.setattr(kubernetes_operator, "REFRESH_S", 0.2)
        patch.setenv("TRAINBENCH_STORE", str(tmp_path_factory.mktemp("store")))
        patch.setenv("AIRFLOW_CONN_KUBERNETES_DEFAULT", connection(standin))
        yield run_cases(standin, cases)


def _selected(session: pytest.Session) -> set[str]:
    params = [getattr(item, "callspec", None) for item in session.items if item.path == Path(__file__)]
    return {str(spec.params["outcome"]) for spec in params if spec is not None}


@pytest.fixture
def outcome(outcomes: dict[str, Outcome], request: pytest.FixtureRequest) -> Outcome:
    """Of the case that the test names."""
    if request.param not in outcomes:
        pytest.skip("this fault needs the stand-in; E2E_KUBECONFIG names a real cluster")
    return outcomes[request.param]


@pytest.mark.parametrize(("outcome", "case"), list(CASES.items()), ids=list(CASES), indirect=["outcome"])
def test_the_task_ends_as_told_and_the_night_counts_it_once_with_a_sentence_that_says_why(
    outcome: Outcome, case: Case
) -> None:
    """What the task left is one sick node in a night of healthy ones."""
    end = PodEnd.model_validate(outcome.end) if outcome.end else None
    left = [pod["metadata"]["name"] for pod in outcome.pods_left]

    assert (outcome.state, outcome.tries, end.kind if end else "") == (case.state, case.tries, case.kind), end
    assert [said for said in case.says if said.replace("NAME", "".join(left)) not in (end.message if end else "")] == []
    assert outcome.result == (None if case.kind else RESULT)
    assert len(left) == case.stays, left
    made = [e for e in outcome.requests if e["verb"] == "create" and e["code"] == 201 and e.get("name")]
    assert not outcome.requests or len(made) <= (case.tries if case.made is None else case.made)
    night, rows = night_with(payload_of(outcome), outcome.state, end), rows_of(case)
    after_fault(*rows, pods=[] if case.stays else left)
    after_night(*rows, planned=[*HEALTHY, SICK], campaign=night, is_green=is_green(night))
    assert (outcome.state == "success") == all(node.state is State.WELL for node in night.nodes), night.nodes


def rows_of(case: Case) -> list[str]:
    """The faults of tests/kube/faults.toml that it plays."""
    return [fault.name for fault in faults() if case.name.removeprefix(DEFERRED) in fault.cases]


def payload_of(outcome: Outcome) -> str | None:
    """The case's result as the benchmark program would have written it: whole, or with its error."""
    if outcome.result is None:
        return None
    whole = whole_results()[SICK]
    failed = make_failed(SICK).model_copy(update={"spec": whole.spec})
    return (whole if outcome.state == "success" else failed).model_dump_json()


BOTH = [case for case in CASES.values() if case.is_deferrable and case.name.removeprefix(DEFERRED) in CASES]


@pytest.mark.parametrize("outcome", [case.name for case in BOTH], indirect=True)
def test_a_task_says_the_same_whether_it_is_deferred_or_not(
    outcome: Outcome, outcomes: dict[str, Outcome], request: pytest.FixtureRequest
) -> None:
    deferred = request.node.callspec.params["outcome"]
    sync = outcomes[deferred.removeprefix(DEFERRED)]

    said = [VARIES.sub("...", each.end.get("message", "").replace(DEFERRED, "")) for each in (outcome, sync)]
    assert said[0] == said[1]


@pytest.mark.parametrize(
    "outcome", ["dead", "deferred-dead", "tolerates-dead", "deferred-tolerates-dead"], indirect=True
)
def test_a_pod_on_a_dead_node_goes_when_the_node_is_back(outcome: Outcome) -> None:
    assert "deletionTimestamp" in outcome.pods_left[0]["metadata"]


# The requests that the operator made of a real API server for one pod, without the reads of the pod itself, and of its
# events: where the machine is busy, the pod has started before the operator waits for that.
RECORDED = ["create pods", "get log", "delete pods"]


@pytest.mark.parametrize("outcome", ["ok", "deferred-ok"], indirect=True)
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
