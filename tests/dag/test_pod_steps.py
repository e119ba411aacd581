"""The way of a pod's task, from its creation to its end, on an API in memory whose hours pass at once."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from copy import deepcopy
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest
from airflow.sdk.exceptions import AirflowException, AirflowFailException, AirflowSkipException

from bench_image.contract.parse import parse_result
from bench_image.contract.pod_io import MAX_RESULT_BYTES, RANK_ENV, SPEC_ENV
from bench_image.contract.result import Status
from bench_image.contract.result_lines import result_lines
from tests.builders import STARTED_AT, make_failed, make_result, make_spec
from tests.dag.fake_api import Clock, FakeApi, refusal
from tests.kube.after_fault import after_fault
from trainbench.cluster import pod_deletions
from trainbench.cluster.collect_pods import collect_pods
from trainbench.cluster.housekeeping import Action, Liveness, pod_verdict
from trainbench.cluster.kubernetes_api import ClusterError, Refused, Unreachable
from trainbench.cluster.pod_deletions import release
from trainbench.cluster.running_pods import cluster_pods
from trainbench.orchestration import kubernetes_operator, run_trigger
from trainbench.orchestration.kubernetes_operator import cluster_of
from trainbench.pods.manifests import PodSettings, manifest
from trainbench.pods.pod_end import PodEnd
from trainbench.results.artefacts import Store
from trainbench.results.collect import collect
from trainbench.results.store_files import StoreError

PEERS = {"peers": ("gpu-8",), "nodes": 2, "strategy": "ddp"}  # of the rank of a gang
NO_ROUTE = refusal(500, "Internal Server Error", "dial tcp 10.1.2.3:10250: no route to host")
KUBECONFIG = json.dumps({
    "clusters": [{"name": "c", "cluster": {"server": "http://127.0.0.1:1"}}],
    "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
    "users": [{"name": "u", "user": {}}],
    "current-context": "c",
})  # fmt: skip
INSUFFICIENT = {
    "type": "PodScheduled",
    "status": "False",
    "reason": "Unschedulable",
    "message": "0/2 nodes are available: 2 Insufficient nvidia.com/gpu.",
}


class Pods:
    """Runs tasks of pods on a node gpu-7, which waits for a place for an hour at most."""

    def __init__(self, store: Any, clock: Clock) -> None:
        self.store, self.clock, self.api = store, clock, FakeApi()
        self.node = self.api.add_node("gpu-7")
        self.pushed: dict[str, Any] = {}
        self.peers: dict[str, Any] = {}

    def task(self, try_number: int = 1, max_tries: int = 2) -> Any:
        ti = SimpleNamespace(dag_id="night", run_id="r1", task_id="benchmark", map_index=0, id="u1")
        ti.try_number, ti.max_tries = try_number, max_tries
        ti.xcom_push = lambda key, value: self.pushed.update({key: value})
        return {"ti": ti, "run_id": "r1", "dag": None}

    def operator(self) -> Any:
        from trainbench.orchestration.kubernetes_operator import BenchPodOperator, pod_listing

        pod_listing.cache_clear()  # in a process of its own
        spec = make_spec(node="gpu-7", gpus_per_node=1, **self.peers)
        made = BenchPodOperator(
            task_id="benchmark",
            pod_template_dict=manifest(spec, PodSettings()),
            do_xcom_push=False,
            schedule_timeout_seconds=3600,
            startup_timeout_seconds=600,
        )
        return made

    def run(self, task: Any = None, event: Any = None) -> Any:
        self.operator().to_its_end(task or self.task(), event)

    def add_peer(self) -> None:
        """The pod of the other rank of a gang, which runs."""
        self.peers = PEERS
        peer = manifest(make_spec(node="gpu-7", gpus_per_node=1, **PEERS), PodSettings(), node_rank=1)
        named = {"name": "peer", "uid": "uid-peer", "resourceVersion": "1"}
        self.api.there["peer"] = {**peer, "metadata": {**peer["metadata"], **named}}
        self.api.run("peer")

    def deferred(self, operator: Any) -> Any:
        """The operator, when its steps have run as in the triggerer."""
        for pause_s in operator.steps(self.task()):
            self.clock.sleep(pause_s)
        return operator

    @property
    def name(self) -> str:
        return self.api.created[-1]

    def ends(self, log: Any = None, exit_code: int = 0) -> None:
        self.api.logs[self.name] = self.lines() if log is None else log
        self.api.end(self.name, exit_code)

    def lines(self) -> list[str]:
        """The log of a program that printed the result of its run."""
        result = make_result("gpu-7", gpus_per_node=1, **self.peers)
        assert result.context is not None
        result = result.model_copy(update={"context": result.context.model_copy(update={"pod": self.name})})
        return ["step 1", *result_lines(result.model_dump_json()), "a thread ended late"]

    def stored(self) -> Any:
        return [self.store.read_results(campaign).results for campaign in self.store.campaign_ids()]

    def stored_nodes(self) -> list[str]:
        """Of the results and of the ranks of a gang that are stored."""
        runs = self.store.root / "campaigns"
        return [parse_result(path.read_text()).spec.identity.node for path in runs.glob("*/runs/*/*.json")]

    @property
    def end(self) -> Mapping[str, Any]:
        end: Mapping[str, Any] = self.pushed.get("pod_end", {})
        return end


@pytest.fixture
def pods(store: Any, airflow_db: None, monkeypatch: pytest.MonkeyPatch) -> Pods:
    made = Pods(store, Clock())
    monkeypatch.setattr(pod_deletions, "time", made.clock)
    monkeypatch.setattr(kubernetes_operator, "time", made.clock)
    monkeypatch.setattr(kubernetes_operator, "cluster_of", lambda *_: made.api)
    return made


def test_a_result_is_stored_and_handed_over_before_its_pod_goes(pods: Pods) -> None:
    before: list[Any] = []
    pods.api.on_delete = lambda _: before.append((len(pods.stored()), *pods.pushed))
    pods.clock.at(20, lambda: pods.ends())
    pods.run()

    assert before == [(1, "return_value")]
    assert pods.pushed["return_value"].keys() == {"address", "bytes"}
    assert pods.pushed["return_value"]["address"].endswith("/result.json")
    assert pods.api.deleted == [pods.name]


def test_a_pod_that_ends_without_a_result_fails_the_task_once(pods: Pods) -> None:
    pods.clock.at(20, lambda: pods.ends(log=["step 1"]))
    with pytest.raises(AirflowFailException, match="exit code 0 and left no result"):
        pods.run()
    assert (pods.end["kind"], pods.end["pod"], pods.api.there) == ("no_result", pods.name, {})


@pytest.mark.parametrize("served", [["unable to retrieve container logs for containerd://1"], ["step 1"], [], "half"])
def test_a_log_that_a_restarting_node_serves_in_part_is_read_again(pods: Pods, served: Any) -> None:
    """The program ended with 0, so it had printed its result."""

    def ends() -> None:
        half = [line for line in pods.lines() if not line.startswith("trainbench-result")]
        half.append("trainbench-result 1/2 00000000 AAAA")
        pods.ends(half if served == "half" else served)

    pods.clock.at(20, ends)
    pods.clock.at(50, lambda: pods.api.logs.update({pods.name: pods.lines()}))
    pods.run()

    assert len(pods.stored()) == 1
    assert pods.api.deleted == [pods.name]


def test_a_node_that_comes_back_may_serve_the_log_in_part_for_a_while(pods: Pods) -> None:
    """The minutes without an answer used up the time for it."""
    pods.clock.at(20, lambda: pods.ends(NO_ROUTE))
    pods.clock.at(120, lambda: pods.api.logs.update({pods.name: []}))
    pods.clock.at(150, lambda: pods.api.logs.update({pods.name: NO_ROUTE}))
    pods.clock.at(200, lambda: pods.api.logs.update({pods.name: ["unable to retrieve container logs"]}))
    pods.clock.at(235, lambda: pods.api.logs.update({pods.name: pods.lines()}))
    pods.run()

    assert len(pods.stored()) == 1
    assert pods.api.deleted == [pods.name]


def test_a_failed_program_s_result_is_handed_over_and_its_error_is_the_task_s(pods: Pods) -> None:
    failed = make_failed("gpu-7", gpus_per_node=1)
    pods.clock.at(20, lambda: pods.ends([*result_lines(failed.model_dump_json())], exit_code=3))
    with pytest.raises(AirflowFailException, match="OutOfMemoryError: CUDA out of memory"):
        pods.run()
    assert pods.pushed.keys() == {"return_value"}
    assert pods.api.there == {}


@pytest.mark.parametrize(
    ("log", "words"),
    [
        ([*result_lines("x" * (MAX_RESULT_BYTES + 1))], "larger than the 16,000,000 bytes allowed"),
        ([line[:-8] for line in result_lines(make_result("gpu-7").model_dump_json())], "its checksum differs"),
    ],
    ids=["oversized", "damaged"],
)
def test_an_oversized_or_damaged_result_is_a_failed_sample(pods: Pods, log: list[str], words: str) -> None:
    pods.clock.at(20, lambda: pods.ends(log))
    with pytest.raises(AirflowFailException, match=words):
        pods.run()
    (result,) = collect([make_spec()], [None], STARTED_AT, ["failed"], [PodEnd.model_validate(pods.end)])

    assert result.error is not None
    assert (result.status, result.error.kind) == (Status.ERROR, "invalid_result")
    assert words in result.error.message


@pytest.mark.parametrize("fault", ["the store is away", "the log may not be read"])
def test_a_pod_whose_result_is_not_stored_stays(pods: Pods, monkeypatch: pytest.MonkeyPatch, fault: str) -> None:
    """For the next try, and at last for `release`."""

    def away(*_: object) -> str:
        raise StoreError("the object store is away")

    log = None if fault == "the store is away" else refusal(403, "Forbidden", "pods/log is forbidden")
    monkeypatch.setattr(Store, "write_result", away)
    pods.clock.at(20, lambda: pods.ends(log))
    with pytest.raises(AirflowException, match=r"object store is away|pods/log is forbidden"):
        pods.run()

    assert pods.api.deleted == []
    assert pods.end["kind"] == ("not_stored" if fault == "the store is away" else "refused")


@pytest.mark.parametrize("has_peers", [False, True], ids=["single", "rank"])
@pytest.mark.parametrize("went_at", [-1, 10], ids=["before it was made", "while it runs"])
def test_an_api_server_that_is_away_for_half_an_hour_costs_no_result(
    pods: Pods, has_peers: bool, went_at: float
) -> None:
    """Audit K1. The program ends meanwhile."""
    pods.peers, pods.api.away = PEERS if has_peers else {}, went_at < 0

    def back() -> None:
        pods.api.away = False

    pods.clock.at(went_at, lambda: setattr(pods.api, "away", True))
    pods.clock.at(1750, back)
    if went_at > 0:
        pods.clock.at(60, lambda: pods.ends())
    else:
        pods.clock.at(1800, lambda: pods.ends())
    pods.run()

    assert pods.pushed.keys() == {"return_value"}
    after_fault("api-away", results=(["gpu-7"], pods.stored_nodes()), pods=pods.api.there)


@pytest.mark.parametrize("is_next_try", [False, True])
def test_a_pod_that_outlived_its_deadline_while_the_api_server_was_away_is_not_called_late(
    pods: Pods, is_next_try: bool
) -> None:
    """On a real cluster: until its node told of the end, 20 minutes old, the API server that was back showed a pod that
    runs, past its deadline; its result was deleted unread.
    """
    pods.clock.at(10, lambda: setattr(pods.api, "away", True))

    def back() -> None:
        pods.api.run(pods.name)
        pods.api.there[pods.name]["status"]["startTime"] = "2026-11-22T02:00:00Z"
        pods.api.away = False
        pods.clock.at(pods.clock.now + 40, lambda: pods.ends())

    if is_next_try:
        with pytest.raises(Exception, match="connection refused"):
            pods.run()
        back()
    else:
        pods.clock.at(1750, back)
    pods.run(pods.task(try_number=1 + is_next_try))

    assert "return_value" in pods.pushed
    after_fault("api-away", results=(["gpu-7"], pods.stored_nodes()), pods=pods.api.there)


def test_an_api_server_that_stays_away_ends_the_try_and_the_next_one_finds_the_pod(pods: Pods) -> None:
    pods.clock.at(10, lambda: setattr(pods.api, "away", True))
    pods.clock.at(60, lambda: pods.ends())
    with pytest.raises(AirflowException, match="connection refused") as ended:
        pods.run()
    assert not isinstance(ended.value, AirflowFailException)
    assert pods.end["kind"] == "api"
    assert 1800 < pods.clock.now < 1900

    pods.api.away = False
    pods.run(pods.task(try_number=2))
    assert "return_value" in pods.pushed
    assert (len(pods.api.created), pods.api.there) == (1, {})


@pytest.mark.parametrize("status", [401, 403])
def test_an_api_server_that_does_not_know_our_rights_for_half_a_minute_costs_no_pod(pods: Pods, status: int) -> None:
    pods_of, denied = pods.api.pods, refusal(status, "No", 'User "trainbench" cannot list resource "pods"')
    pods.clock.at(10, lambda: setattr(pods.api, "pods", Mock(side_effect=denied)))
    pods.clock.at(40, lambda: setattr(pods.api, "pods", pods_of))
    pods.clock.at(60, lambda: pods.ends())
    pods.run()

    assert pods.pushed.keys() == {"return_value"}


def test_a_pod_whose_creation_got_no_answer_is_found_by_its_name(pods: Pods) -> None:
    create = pods.api.create_pod

    def lose_the_answer(*arguments: Any, **options: Any) -> None:
        pods.api.create_pod = create  # type: ignore[method-assign]
        create(*arguments, **options)
        raise refusal(503, "Service Unavailable", "the connection broke")

    pods.api.create_pod = lose_the_answer  # type: ignore[method-assign]
    pods.clock.at(20, lambda: pods.ends())
    pods.run()

    assert (len(pods.api.created), pods.api.there) == (1, {})
    assert pods.pushed.keys() == {"return_value"}


def test_a_pod_that_was_placed_at_the_last_moment_of_its_queue_time_runs_to_its_end(pods: Pods) -> None:
    """Audit K4: it is deleted only as it was seen, and counts once it runs."""

    def place(name: str) -> None:
        pods.api.on_delete = lambda _: None
        pods.api.run(name)
        pods.clock.at(pods.clock.now + 60, lambda: pods.ends())

    pods.api.on_delete = place
    pods.clock.at(1, lambda: pods.api.become(pods.name, INSUFFICIENT, phase="Pending"))
    pods.run()

    assert pods.clock.now > 3600
    assert pods.pushed.keys() == {"return_value"}
    assert pods.api.deleted == [pods.name]
    after_fault("placed-late", results=(["gpu-7"], pods.stored_nodes()), pods=pods.api.there)


@pytest.mark.parametrize("is_own", [True, False], ids=["of this night", "of somebody else"])
def test_time_behind_a_pod_of_the_same_night_is_no_time_in_the_queue(pods: Pods, is_own: bool) -> None:
    """Audit K5: the rounds before it take three hours."""
    other = manifest(make_spec(node="gpu-7", gpus_per_node=1, round=2), PodSettings())
    if not is_own:
        other["metadata"]["labels"]["trainbench.io/campaign"] = "another"
    pods.api.there["other"] = {
        "metadata": {**other["metadata"], "name": "other", "resourceVersion": "1"},
        "spec": other["spec"],
    }
    pods.api.run("other")
    pods.clock.at(1, lambda: pods.api.become(pods.name, INSUFFICIENT, phase="Pending"))
    pods.clock.at(3 * 3600, lambda: pods.api.end("other"))
    pods.clock.at(3 * 3600 + 60, lambda: pods.ends())
    if is_own:
        pods.run()
        assert pods.pushed.keys() == {"return_value"}
        after_fault("behind-own-pods", results=(["gpu-7"], pods.stored_nodes()), pods=pods.api.there.keys() - {"other"})
    else:
        with pytest.raises(AirflowSkipException, match="no room on the node within the waiting time"):
            pods.run()
        assert pods.end["kind"] == "busy"
        assert 3600 <= pods.clock.now < 3700
        assert list(pods.api.there) == ["other"]


@pytest.mark.parametrize("at_s", [0, 300], ids=["before its pod is made", "while its pod waits"])
@pytest.mark.parametrize(
    ("what", "kind"), [("cordoned", "withdrawn"), ("removed", "no_node"), ("renamed", "no_node"), ("dead", "node_lost")]
)
def test_a_node_that_takes_no_pod_is_said_within_minutes(pods: Pods, at_s: float, what: str, kind: str) -> None:
    """Audit K2: it cost the hour of the queue, and was shown as unschedulable. That a node restarts is borne."""

    def take_away() -> None:
        if what in ("removed", "renamed"):
            pods.api.known_nodes.clear()
        if what == "renamed":
            pods.api.add_node("gpu-8")
        elif what == "cordoned":
            pods.node["spec"]["unschedulable"] = True
        elif what == "dead":
            pods.node["status"]["conditions"] = [{"type": "Ready", "status": "Unknown"}]

    pods.clock.at(1, lambda: pods.api.become(pods.name, INSUFFICIENT, phase="Pending"))
    pods.clock.at(at_s, take_away)
    gone = "no node 'gpu-7': is the name misspelt, or was it removed or renamed"
    words = {"cordoned": "node gpu-7 is cordoned .*, so no pod", "dead": "node gpu-7 stopped answering"}
    with pytest.raises(AirflowException, match=words.get(what, gone)):
        pods.run()

    assert pods.end["kind"] == kind
    assert pods.clock.now - at_s < (180 if what == "dead" else 61)
    assert (len(pods.api.created), pods.api.there) == (1, {})
    after_fault("node-taken-away", "renamed", pods=pods.api.there, cause=pods.end["message"])


def test_an_image_that_cannot_be_pulled_ends_the_task_after_a_minute(
    pods: Pods,
) -> None:
    placed, waiting = {"type": "PodScheduled", "status": "True"}, {"waiting": {"reason": "ErrImagePull"}}
    stuck = [{"name": "base", "image": "no/such:1", "state": waiting}]
    pods.clock.at(10, lambda: pods.api.become(pods.name, placed, phase="Pending", containerStatuses=stuck))
    with pytest.raises(AirflowFailException, match="'no/such:1' of container 'base' cannot be pulled"):
        pods.run()
    assert (pods.end["kind"], pods.api.there) == ("no_image", {})
    assert 60 < pods.clock.now < 100


def test_a_pod_waits_for_a_node_that_restarts(pods: Pods) -> None:
    def ready(status: str) -> None:
        pods.node["status"]["conditions"] = [{"type": "Ready", "status": status}]

    ready("Unknown")
    pods.clock.at(1, lambda: pods.api.become(pods.name, INSUFFICIENT, phase="Pending"))
    pods.clock.at(100, lambda: ready("True"))
    pods.clock.at(200, lambda: pods.ends())
    pods.run()

    assert pods.pushed.keys() == {"return_value"}


def test_a_node_that_serves_no_log_for_a_while_costs_no_result(pods: Pods) -> None:
    pods.clock.at(20, lambda: pods.ends(NO_ROUTE))
    pods.clock.at(1700, lambda: pods.ends())
    pods.run()

    assert pods.pushed.keys() == {"return_value"}


@pytest.mark.parametrize("peers", [{}, PEERS], ids=["single", "rank"])
def test_a_node_that_serves_no_log_is_waited_for_once_and_leaves_the_pod_for_release(
    pods: Pods, peers: Mapping[str, Any]
) -> None:
    """Trigger, worker and each of three tries waited for half an hour."""
    pods.peers = dict(peers)
    pods.clock.at(20, lambda: pods.ends(NO_ROUTE))
    trigger = pods.operator()
    with pytest.raises(Refused):
        pods.deferred(trigger)
    with pytest.raises(AirflowFailException, match=r"could not be read, it is still in the pod: .* no route to host"):
        pods.run(event=json.loads(json.dumps(trigger.progress.model_dump(mode="json"))))

    assert (pods.end["kind"], pods.end["pod"]) == ("api", pods.name)
    assert pods.clock.now < 1900
    assert list(pods.api.there) == [pods.name]


@pytest.mark.parametrize(("kind", "words"), [("vanished", "its pod is gone"), ("not_stored", "no pod was made: away")])
def test_a_rank_without_a_pod_is_not_made_anew_alone_and_ends_its_gang(
    pods: Pods, monkeypatch: pytest.MonkeyPatch, kind: str, words: str
) -> None:
    """Its peers held their GPUs until their deadline."""
    pods.add_peer()
    if kind == "not_stored":
        monkeypatch.setattr(kubernetes_operator, "arrived_of_pod", Mock(side_effect=StoreError("away")))
    with pytest.raises(AirflowFailException, match=words):
        pods.run(pods.task(try_number=2 if kind == "vanished" else 1))

    assert (pods.end["kind"], pods.end["pod"]) == (kind, None)
    assert (pods.api.created, pods.api.deleted) == ([], ["peer"])


def test_a_rank_without_a_place_ends_its_gang(pods: Pods) -> None:
    pods.add_peer()
    pods.api.known_nodes.clear()
    pods.clock.at(1, lambda: pods.api.become(pods.name, INSUFFICIENT, phase="Pending"))
    with pytest.raises(AirflowException, match="is the name misspelt"):
        pods.run()

    assert set(pods.api.deleted) == {pods.name, "peer"}
    after_fault("rank-without-place", pods=pods.api.there, cause=pods.end["message"])


def test_a_rank_that_is_marked_failed_by_hand_takes_its_gang_along(pods: Pods) -> None:
    pods.add_peer()
    rank = pods.operator()
    next(rank.steps(pods.task()))
    pods.api.run(pods.name)
    rank.on_kill()

    assert set(pods.api.deleted) == {pods.name, "peer"}


def test_a_rank_that_airflow_lost_after_its_result_was_stored_hands_it_over(pods: Pods) -> None:
    pods.peers = PEERS
    pods.clock.at(20, lambda: pods.ends())
    pods.deferred(pods.operator()).remove()
    pods.run(pods.task(try_number=2))

    assert pods.pushed.keys() == {"return_value"}
    assert len(pods.api.created) == 1


def test_an_expired_token_is_retried_and_leaves_the_gang_alone_as_long_as_a_try_is_left(
    pods: Pods, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The pods of the gang still run: the next try finds this one again. The last try ends the gang."""
    pods.peers = PEERS
    expired = refusal(401, "Unauthorized", "Unauthorized")
    pods.clock.at(20, lambda: pods.ends(expired))
    with pytest.raises(AirflowException, match="has it expired") as retried:
        pods.run()
    assert not isinstance(retried.value, AirflowFailException)
    assert pods.api.deleted == []

    with pytest.raises(AirflowFailException, match="has it expired"):
        pods.run(pods.task(try_number=3))
    assert (pods.end["kind"], list(pods.api.there)) == ("unauthorized", [pods.name])


def test_a_quota_is_named_by_what_the_api_server_says_not_by_the_http_reason(pods: Pods) -> None:
    message = 'pods "tb-1" is forbidden: exceeded quota: fence, requested: pods=1, used: pods=20, limited: pods=20'
    pods.api.create_pod = Mock(side_effect=refusal(403, "Forbidden", message))  # type: ignore[method-assign]
    with pytest.raises(AirflowFailException, match="exceeded quota: fence, requested: pods=1, used: pods=20"):
        pods.run()
    assert (pods.end["kind"], pods.end["pod"]) == ("quota", None)


def test_a_pod_that_cannot_be_removed_is_named_and_never_removed_by_force(pods: Pods) -> None:
    def lose_power() -> None:
        pods.api.run(pods.name)
        pods.api.there[pods.name]["status"]["startTime"] = "2026-11-22T02:00:00Z"
        pods.node["status"]["conditions"] = [{"type": "Ready", "status": "Unknown", "message": "Kubelet stopped."}]

    pods.api.delete_pod = delete = Mock()  # type: ignore[method-assign]
    pods.clock.at(20, lose_power)
    with pytest.raises(AirflowFailException, match="could not be removed and its program may still run there"):
        pods.run()
    assert pods.end["kind"] == "node_lost"
    assert not delete.call_args.kwargs  # the grace is the pod's own
    assert pods.name in pods.end["message"]


@pytest.mark.parametrize("then", ["nothing", "it ends", "it is replaced"])
@pytest.mark.parametrize("when", ["before", "during"])
def test_a_task_that_is_ended_deletes_its_pod_unless_it_holds_a_result_or_is_another(
    pods: Pods, when: str, then: str
) -> None:
    """`during`: between the look at the pod and its deletion, which went by the name alone."""
    acts = {"nothing": lambda _: None, "it ends": lambda _: pods.ends(), "it is replaced": pods.api.replace}
    pods.clock.at(5, lambda: pods.api.run(pods.name))
    operator = pods.operator()
    steps = operator.steps(pods.task())
    for pause_s in (next(steps), next(steps)):
        pods.clock.sleep(pause_s)
    if when == "before":
        acts[then](pods.name)
    else:
        pods.api.on_delete = acts[then]
    operator.on_kill()

    assert (pods.api.deleted == []) == (then != "nothing")


def test_a_task_that_airflow_ends_as_it_is_resumed_leaves_its_pod_and_its_gang(pods: Pods) -> None:
    """Its scheduler took the report of the deferral for the task's end: the next try needs them."""
    pods.peers = PEERS
    trigger, worker = pods.operator(), pods.operator()
    next(trigger.steps(pods.task()))
    pods.api.run(pods.name)
    pods.clock.at(5, worker.on_kill)
    pods.clock.at(60, lambda: pods.ends())
    worker.to_its_end(pods.task(), trigger.progress.model_dump(mode="json"))

    assert pods.pushed.keys() == {"return_value"}


def test_a_pod_whose_events_may_not_be_read_has_its_cause_all_the_same(pods: Pods) -> None:
    pods.api.events = Mock(side_effect=refusal(403, "Forbidden", "events is forbidden"))  # type: ignore[method-assign]
    pods.clock.at(20, pods.api.there.clear)
    with pytest.raises(Exception, match="deleted before its result could be read"):
        pods.run()
    assert pods.end["kind"] == "vanished"


@pytest.mark.parametrize(("runs_for_s", "kind"), [(30, "cut_off"), (4, "vanished")])
def test_a_rank_that_ran_until_its_pod_was_deleted_shows_that_its_node_lacks_nothing(
    pods: Pods, runs_for_s: int, kind: str
) -> None:
    """Where another rank's node lacks a mount, it says that the work could begin here."""
    pods.peers = PEERS
    pods.clock.at(60 - runs_for_s, lambda: pods.api.run(pods.name))
    pods.clock.at(60, pods.api.there.clear)
    with pytest.raises(AirflowFailException):
        pods.run()

    assert pods.end["kind"] == kind


def test_a_pod_that_is_replaced_when_its_result_was_read_is_left_alone(pods: Pods) -> None:
    pods.clock.at(20, lambda: pods.ends())
    pods.api.on_delete = pods.api.replace
    pods.run()

    assert "return_value" in pods.pushed
    assert (pods.api.deleted, list(pods.api.there)) == ([], [pods.name])


def test_a_late_pod_that_ends_at_last_is_left_for_release(pods: Pods) -> None:
    """Its node was away, and the task gave it up; then the node told of its end, and its result was deleted unread."""

    def lose_power() -> None:
        pods.api.run(pods.name)
        pods.api.there[pods.name]["status"]["startTime"] = "2026-11-22T02:00:00Z"

    pods.clock.at(20, lose_power)
    pods.api.on_delete = lambda _: pods.ends()
    with pytest.raises(AirflowFailException, match="gpu-7 did not end it"):
        pods.run()

    assert (pods.end["pod"], pods.api.deleted) == (pods.name, [])


def test_what_a_trigger_leaves_a_worker_ends_with_the_same_sentence(pods: Pods) -> None:
    pods.clock.at(1, lambda: pods.api.become(pods.name, INSUFFICIENT, phase="Pending"))
    trigger = pods.deferred(pods.operator())
    waited_s = pods.clock.now
    assert not trigger.good_result
    assert pods.api.deleted == [pods.name]

    with pytest.raises(AirflowSkipException, match="no room on the node within the waiting time"):
        pods.run(event=json.loads(json.dumps(trigger.progress.model_dump(mode="json"))))
    assert pods.clock.now == waited_s
    assert (len(pods.api.created), pods.api.there) == (1, {})


@pytest.mark.parametrize("is_gone", [False, True], ids=["pod there", "pod gone"])
def test_what_a_trigger_read_is_not_read_again(pods: Pods, is_gone: bool) -> None:
    """A failure before the program knew its pod has no pod's name: only the event says that it is this pod's."""
    failed = make_failed("gpu-7", gpus_per_node=1)
    pods.clock.at(20, lambda: pods.ends([*result_lines(failed.model_dump_json())], exit_code=3))
    event = json.loads(json.dumps(pods.deferred(pods.operator()).progress.model_dump(mode="json")))
    pods.api.logs[pods.name] = NO_ROUTE
    if is_gone:
        pods.api.there.clear()
    with pytest.raises(AirflowFailException, match="OutOfMemoryError: CUDA out of memory") as ended:
        pods.run(event=event)

    assert pods.pushed.keys() == {"return_value"}
    assert pods.clock.now < 60
    stored = pods.stored_nodes()
    after_fault("read-before-its-node-went", results=(["gpu-7"], stored), pods=pods.api.there, cause=str(ended.value))


@pytest.mark.parametrize("back_at", [1700, None], ids=["comes back", "stays away"])
def test_trigger_and_worker_wait_for_an_api_server_for_half_an_hour_together(pods: Pods, back_at: float | None) -> None:
    trigger = pods.operator()
    pods.clock.at(10, lambda: setattr(pods.api, "away", True))
    with pytest.raises(Unreachable):
        pods.deferred(trigger)
    resumed_at = pods.clock.now
    pods.api.away = back_at is None
    pods.clock.at(resumed_at + 60, lambda: pods.ends())
    if back_at is None:
        with pytest.raises(AirflowException, match="connection refused"):
            pods.run(event=trigger.progress.model_dump(mode="json"))
        assert pods.clock.now == resumed_at + 5 < 1900
    else:
        pods.run(event=trigger.progress.model_dump(mode="json"))
        assert "return_value" in pods.pushed


def test_a_triggerer_that_was_ended_after_it_stored_the_result_makes_no_second_pod(pods: Pods) -> None:
    pods.clock.at(20, lambda: pods.ends())
    pods.deferred(pods.operator()).remove()
    again = pods.operator()

    assert list(again.steps(pods.task())) == []
    assert again.good_result
    assert len(pods.api.created) == 1


@pytest.mark.parametrize("what", ["cordoned", "removed"])
@pytest.mark.parametrize("is_stored", [False, True], ids=["runs", "stored"])
def test_a_triggerer_that_was_ended_finds_its_pod_or_result_though_the_node_takes_none_now(
    pods: Pods, what: str, is_stored: bool
) -> None:
    """It judged the node first: the pod was left alone, and the stored result counted for no run."""
    if is_stored:
        pods.clock.at(20, lambda: pods.ends())
        pods.deferred(pods.operator()).remove()
    else:
        next(pods.operator().steps(pods.task()))
        pods.api.run(pods.name)
        pods.clock.at(60, lambda: pods.ends())
    if what == "removed":
        pods.api.known_nodes.clear()
    else:
        pods.node["spec"]["unschedulable"] = True
    again = pods.deferred(pods.operator())

    assert again.good_result
    assert len(pods.api.created) == len(pods.stored()) == 1


def test_release_stores_what_no_task_could_read_and_then_deletes_the_pod(pods: Pods) -> None:
    """Of two pods one cannot be read yet: it stays, and release is tried again, unless its node is dead."""
    operator = pods.operator()
    next(operator.steps(pods.task()))
    name = pods.name
    there = pods.api.there
    there["unread"] = {**there[name], "metadata": {**there[name]["metadata"], "name": "unread"}}
    pods.ends()
    pods.api.end("unread")
    pods.api.logs["unread"] = NO_ROUTE
    labels = {"task_id": there[name]["metadata"]["labels"]["task_id"]}
    with pytest.raises(ClusterError, match=r"could not be deleted: unread \(.*no route to host"):
        release(pods.api, pods.store, labels, print)  # type: ignore[arg-type]
    assert (pods.api.deleted, len(pods.stored())) == ([name], 1)

    pods.node["status"]["conditions"] = [{"type": "Ready", "status": "Unknown", "message": "Kubelet stopped."}]
    assert release(pods.api, pods.store, labels, print) == ()  # type: ignore[arg-type]  # its node is dead, not away
    after_fault("dead-node-at-release", pods=there.keys() - {"unread"})
    assert list(there) == ["unread"]


@pytest.mark.parametrize("back_at", [30, None], ids=["served later", "never served"])
@pytest.mark.parametrize("served", [["unable to retrieve container logs for containerd://1"], []])
def test_release_reads_again_what_a_program_that_ended_well_must_have_printed(
    pods: Pods, served: Any, back_at: float | None
) -> None:
    """One such read was taken for no result, and the pod deleted."""
    next(pods.operator().steps(pods.task()))
    pods.ends(served)
    if back_at:
        pods.clock.at(back_at, lambda: pods.api.logs.update({pods.name: pods.lines()}))

    assert release(pods.api, pods.store, {}, print) == (pods.name,)  # type: ignore[arg-type]
    assert (len(pods.stored_nodes()), pods.clock.now) == (1 if back_at else 0, 60)


def beside(pods: Pods, name: str) -> Any:
    """A second pod like the first, which waits for its place."""
    first = pods.api.there[pods.name]
    metadata = {**first["metadata"], "name": name, "uid": f"uid-{name}"}
    pods.api.there[name] = deepcopy({**first, "metadata": metadata, "status": {"phase": "Pending"}})
    return pods.api.there[name]


def test_a_pod_that_ends_before_its_deletion_is_read_first(pods: Pods) -> None:
    """It ran in the listing, and was deleted unread. A pod that runs on is deleted, whatever else changed."""
    next(pods.operator().steps(pods.task()))
    beside(pods, "runs")

    def change(_: str) -> None:
        pods.api.on_delete = lambda _: None
        pods.ends()
        pods.api.run("runs")

    pods.api.on_delete = change
    assert set(release(pods.api, pods.store, {}, print)) == {pods.name, "runs"}  # type: ignore[arg-type]
    assert len(pods.stored()) == 1
    assert pods.api.there == {}


def test_one_pod_s_error_keeps_that_pod_and_no_other(pods: Pods, monkeypatch: pytest.MonkeyPatch) -> None:
    """Pods that run hold GPUs: they go first. A run of another version's contract is none that could be read."""
    next(pods.operator().steps(pods.task()))
    pods.ends()
    for name, variable, value in (("rank", RANK_ENV, "one"), ("spec", SPEC_ENV, '{"schema_version": 99}')):
        base = beside(pods, name)["spec"]["containers"][0]
        base["env"] = [each for each in base["env"] if each["name"] != variable] + [{"name": variable, "value": value}]
        pods.api.end(name)
    beside(pods, "runs")
    failing = pods.name
    collect = pod_deletions.collect

    def break_store(*arguments: Any) -> Any:
        if arguments[3] == failing:
            raise RuntimeError("the store's client broke")
        return collect(*arguments)

    monkeypatch.setattr(pod_deletions, "collect", break_store)
    with pytest.raises(ClusterError, match=f"{failing} \\(the store's client broke\\).*rank \\(invalid literal"):
        pod_deletions.release(pods.api, pods.store, {}, print)  # type: ignore[arg-type]
    assert pods.api.deleted == ["runs", "spec"]


def test_a_request_without_an_answer_is_sent_once(airflow_db: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """urllib3 sent it four times, and each waited for its 30 s."""
    extra = {"kube_config": KUBECONFIG, "in_cluster": False}
    monkeypatch.setenv("AIRFLOW_CONN_CLUSTER", json.dumps({"conn_type": "kubernetes", "extra": extra}))
    client = cluster_of("cluster", "bench").api
    pool = client.rest_client.pool_manager.connection_from_url("http://127.0.0.1:1")
    assert pool.retries is False
    assert cluster_of("cluster", "bench").api is client  # with its open connections


def test_no_task_is_resumed_before_the_scheduler_knows_that_it_was_deferred(
    pods: Pods, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A pod that could not be made resumed its task within the second: Airflow called it failed."""
    slept: list[float] = []

    async def sleep(seconds: float) -> None:
        slept.append(seconds)
        pods.clock.sleep(seconds)

    monkeypatch.setattr(run_trigger, "time", pods.clock)
    monkeypatch.setattr(run_trigger.asyncio, "sleep", sleep)
    operator = pods.operator()
    trigger = run_trigger.RunTrigger({"kubernetes_conn_id": None})
    trigger.task_instance = pods.task()["ti"]
    monkeypatch.setattr(trigger, "_new_operator", lambda: operator)
    pods.api.create_pod = Mock(side_effect=refusal(403, "Forbidden", "no"))  # type: ignore[method-assign]

    async def first() -> Any:
        return await anext(trigger.run())

    event = asyncio.run(first())
    assert not event.payload["is_made"]
    assert slept == [10.0]


def test_what_each_surface_says_of_a_pod_whose_node_fell_silent(pods: Pods) -> None:
    """After 300 s Kubernetes wants the pod away; its kubelet, which would end it, does not answer."""
    now = datetime.now(UTC)

    def fall_silent() -> None:
        ready = {"type": "Ready", "status": "Unknown", "lastTransitionTime": now.isoformat()}
        pods.node["status"]["conditions"] = [ready | {"message": "Kubelet stopped posting node status."}]

    def taint() -> None:
        pods.api.there[pods.name]["metadata"]["deletionTimestamp"] = (now - timedelta(seconds=61)).isoformat()

    pods.api.log = Mock(side_effect=NO_ROUTE)
    pods.clock.at(20, lambda: pods.api.run(pods.name))
    pods.clock.at(60, fall_silent)
    pods.clock.at(360, taint)
    with pytest.raises(
        AirflowFailException, match=r"node gpu-7 stopped answering .*Kubelet stopped posting node status"
    ):
        pods.run()
    assert 360 <= pods.clock.now < 400
    assert (pods.end["kind"], pods.end["pod"]) == ("node_lost", pods.name)
    assert "its program may still run there" in pods.end["message"]

    assert release(pods.api, pods.store, {}, print) == (pods.name,)  # type: ignore[arg-type]  # does not wait for it
    (live,) = cluster_pods(pods.api, {}, now)  # type: ignore[arg-type]
    assert (live.node, live.state) == ("gpu-7", "Terminating")
    (pod,) = pods.api.pods({})
    assert pod_verdict(pod, lambda _: Liveness.ENDED, now + timedelta(hours=1)) == (
        Action.REPORT, "should be gone since 1 h 01 min: its node does not answer, look at that node"
    )  # fmt: skip
    (hand,) = collect_pods(pods.api, PodSettings(), pods.store, None, now)  # type: ignore[arg-type]
    assert hand.detail == "its phase is Running: collect again when it has ended"
