"""The outcome of each pod that was applied by hand; one bad pod changes no other."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

from bench_image.contract.pod_io import SPEC_ENV
from bench_image.contract.result_lines import result_lines
from bench_image.contract.spec import RunSpec
from tests.builders import make_result, make_spec
from trainbench.cluster.collect_pods import CollectedPod, Outcome, collect_pods, collected_table
from trainbench.cluster.kubernetes_api import Refused
from trainbench.pods.manifests import Owner, manifest
from trainbench.results.artefacts import Store
from trainbench.settings.environment import read_settings

SETTINGS = read_settings({"TRAINBENCH_NAMESPACE": "lab"})
NOW = datetime(2026, 11, 23, 6, tzinfo=UTC)


class Logs:
    """The cluster's pods with their logs; None: its node serves no log."""

    def __init__(self, *pods: tuple[dict[str, Any], str | None]) -> None:
        self._pods = [pod for pod, _ in pods]
        self._logs = {pod["metadata"]["name"]: log for pod, log in pods}

    def pods(self, labels: dict[str, str]) -> tuple[dict[str, Any], ...]:
        return tuple(pod for pod in self._pods if labels.items() <= pod["metadata"]["labels"].items())

    def log_lines(self, name: str, _: str) -> Iterator[str]:
        if (text := self._logs[name]) is None:
            raise Refused("read log", 500, "Internal", "the node does not answer")
        yield from text.split("\n")


def applied(spec: RunSpec, phase: str = "Succeeded", rank: int = 0, owner: Owner | None = None) -> dict[str, Any]:
    return {**manifest(spec, SETTINGS, owner, rank), "status": {"phase": phase}}


def logged(spec: RunSpec) -> str:
    result = make_result(peers=spec.identity.peers, **dict(spec.placement))
    lines = result_lines(result.model_copy(update={"spec": spec}).model_dump_json())
    return "\n".join(["warm-up 1/5", *lines, "terminate called without an active exception", ""])


def collected(store: Store, *pods: tuple[dict[str, Any], str | None]) -> dict[str | None, CollectedPod]:
    made = collect_pods(Logs(*pods), SETTINGS, store, None, NOW)  # type: ignore[arg-type]
    assert len(collected_table(made).rows) == len(made)
    return {pod.node or pod.run_id: pod for pod in made}


def run(number: int) -> RunSpec:
    return make_spec(node=f"node-{number}", run_id=f"run-{number}")


def test_each_pod_by_itself(store: Store) -> None:
    broken = applied(run(5))
    next(v for v in broken["spec"]["containers"][0]["env"] if v["name"] == SPEC_ENV)["value"] = "{"
    outcomes = collected(
        store,
        (applied(run(1)), logged(run(1))),
        (applied(run(2), "Failed"), "Traceback\nCUDA error\n"),
        (applied(run(3), "Running"), "warm-up"),
        (applied(run(4)), None),
        (broken, logged(run(5))),
        (applied(run(6)), logged(run(1))),  # another run's result
        (applied(run(7), owner=Owner(dag_id="d", dag_run_id="r")), logged(run(7))),
    )
    assert {name: pod.outcome for name, pod in outcomes.items()} == {
        "run-1": Outcome.STORED, "run-2": Outcome.FAILED, "run-3": Outcome.RUNNING, "run-4": Outcome.LEFT_OUT,
        None: Outcome.LEFT_OUT, "run-6": Outcome.FAILED,
    }  # fmt: skip
    campaign = run(1).identity.campaign_id
    results = {r.spec.identity.run_id: r.error for r in store.read_results(campaign).results}
    assert results.keys() == {"run-1", "run-2", "run-6"}
    assert results["run-1"] is None
    assert results["run-2"] is not None
    assert store.read_log(campaign, "run-2", "pod.log") == b"Traceback\nCUDA error\n"


def test_a_result_is_not_replaced_by_a_pod_without_one(store: Store) -> None:
    """The pod was applied again and failed, or its log is gone."""
    collected(store, (applied(run(1)), logged(run(1))))
    again = collected(store, (applied(run(1), "Failed"), ""))
    assert again["run-1"].outcome is Outcome.FAILED
    (result,) = store.read_results(run(1).identity.campaign_id).results
    assert result.error is None


def test_the_pods_of_a_gang_become_one_result(store: Store) -> None:
    gang = make_spec(node="node-1", peers=("node-2",), nodes=2, gpus_per_node=1, strategy="ddp")
    pods = [(applied(gang, rank=rank), logged(gang)) for rank in (0, 1)]
    assert len(collect_pods(Logs(*pods), SETTINGS, store, gang.identity.campaign_id, NOW)) == 2  # type: ignore[arg-type]
    (result,) = store.read_results(gang.identity.campaign_id).results
    assert result.error is None
    assert store.log_names(gang.identity.campaign_id, gang.identity.run_id) == ("rank-0.log", "rank-1.log")
