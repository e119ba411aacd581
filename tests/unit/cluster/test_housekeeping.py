"""The pods that a sweep deletes in each mode; one pod's failure does not stop it."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

import pytest

from bench_image.contract.result_lines import result_lines
from bench_image.contract.spec import RunSpec
from tests.builders import make_failed, make_result
from tests.builders.fake_cluster import running_pod
from trainbench.cluster import pod_deletions
from trainbench.cluster.housekeeping import Liveness, faults, names_by_outcome, summary, sweep_pods, table
from trainbench.cluster.kubernetes_api import Refused, Unreachable
from trainbench.core.tables import Tone
from trainbench.pods.manifests import Owner, PodSettings, installation_labels, manifest
from trainbench.results.artefacts import Store
from trainbench.settings.environment import Housekeeping, SettingsError, read_settings

NOW = datetime(2026, 11, 22, 6, 30, tzinfo=UTC)
OURS = installation_labels(PodSettings())
OVER, LIVE = Owner(dag_id="d", dag_run_id="over"), Owner(dag_id="d", dag_run_id="live")


def pod(name: str, owner: Owner | None = OVER, phase: str = "Running") -> dict[str, Any]:
    return running_pod(name, owner) | {"status": {"phase": phase}}


class Pods:
    """An API server with these pods. `errors`: name -> what it answers to its deletion."""

    def __init__(self, *listed: dict[str, Any], **errors: Exception) -> None:
        self.listed, self.errors, self.deleted = listed, errors, list[str]()
        self.logs: dict[str, str | Exception | list[str]] = {}  # a list: read by read

    def pods(self, labels: Any) -> Any:
        return self.listed

    def log_lines(self, name: str, _: str) -> Iterator[str]:
        log = self.logs[name]
        if isinstance(log, Exception):
            raise log
        yield from (log.pop(0) if isinstance(log, list) else log).split("\n")

    def pod(self, name: str) -> Any:
        return next(each for each in self.listed if each["metadata"]["name"] == name)

    def delete_pod(self, name: str, uid: str, version: str | None = None, **_: Any) -> None:
        if name in self.errors:
            raise self.errors[name]
        self.deleted.append(name)


@pytest.fixture
def slept(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    waits: list[float] = []
    monkeypatch.setattr(pod_deletions, "time", SimpleNamespace(sleep=waits.append))
    return waits


def sweep(pods: Any, mode: Housekeeping, store: Store, labels: dict[str, str] = OURS) -> Any:
    liveness = {OVER: Liveness.ENDED, LIVE: Liveness.LIVE}
    return sweep_pods(pods, labels, lambda owner: liveness[owner], mode, store, NOW)


@pytest.mark.parametrize(
    ("mode", "deleted"),
    [
        (Housekeeping.REPORT, []),
        (Housekeeping.RELEASE, ["runs-on", "waits"]),
        (Housekeeping.DELETE, ["runs-on", "waits", "ended"]),
    ],
)
def test_pods_of_a_failed_release_are_deleted_by_schedule_and_logs_only_on_request(
    mode: Housekeeping, deleted: list[str], store: Store
) -> None:
    api = Pods(
        pod("runs-on"),
        pod("waits", phase="Pending"),
        pod("ended", phase="Succeeded"),
        pod("live", LIVE),
        pod("by-hand", None),
    )
    swept = names_by_outcome(sweep(api, mode, store))

    assert api.deleted == swept.get("deleted", []) == deleted
    assert [*deleted, *swept.get("to be deleted", [])] == ["runs-on", "waits", "ended"]
    assert swept["to be looked at"] == ["by-hand"]


def test_one_pod_whose_deletion_fails_does_not_keep_the_others(store: Store) -> None:
    """Be it refused, or not answered at all."""
    refused = Refused("DELETE pod a", 403, "Forbidden", "a policy keeps it")
    api = Pods(pod("a"), pod("b"), pod("c"), a=refused, b=Unreachable("no answer within 10 s"))
    swept = sweep(api, Housekeeping.RELEASE, store)

    assert api.deleted == ["c"]
    over = "its run over of d is over"
    assert faults(swept) == (
        f"2 could not be deleted: a: {over}; a policy keeps it and b: {over}; no answer within 10 s"
    )
    assert summary(swept, "pod") == "3 pods: 1 deleted, 2 not deleted"
    assert [row.tone for row in table(swept).rows] == [Tone.BAD, Tone.BAD, Tone.GOOD]


def with_result(name: str, spec: RunSpec, **status: Any) -> dict[str, Any]:
    """A leaked pod of this run whose program has ended beside a container that runs on."""
    ended = {"name": "base", "state": {"terminated": {"exitCode": 0, "finishedAt": "2026-11-18T03:00:00Z"}}}
    beside = {"name": "mesh", "state": {"running": {}}}
    made = pod(name) | {"spec": manifest(spec, PodSettings())["spec"]}
    return made | {"status": {"phase": "Running", "containerStatuses": [ended, beside], **status}}


def test_what_a_pod_left_is_stored_before_it_is_deleted_and_a_pod_that_cannot_be_read_stays(
    store: Store, slept: list[float]
) -> None:
    """It was deleted unread after 15 minutes: its own container had ended, and another kept it at Running."""
    good = [make_result(f"node-{number}", run_id=f"run-{number}") for number in range(5)]
    specs = [result.spec for result in good]
    store.write_result(good[2])
    api = Pods(*(with_result(f"p{number}", spec) for number, spec in enumerate(specs)))
    api.logs = {
        "p0": "\n".join(result_lines(good[0].model_dump_json())),
        "p1": Refused("read log", 500, "Internal", "the node does not answer"),
        "p2": "\n".join(result_lines(make_failed().model_copy(update={"spec": specs[2]}).model_dump_json())),
        "p3": "",
        "p4": ["unable to retrieve container logs", "\n".join(result_lines(good[4].model_dump_json()))],  # at last
    }
    swept = sweep(api, Housekeeping.RELEASE, store)

    assert api.deleted == ["p0", "p2", "p3", "p4"]
    assert slept == [60]
    assert faults(swept) == "1 could not be deleted: p1: its run over of d is over; the node does not answer"
    results = store.read_results(specs[0].identity.campaign_id).results
    assert {(result.spec.identity.run_id, result.error) for result in results} == {
        ("run-0", None), ("run-2", None), ("run-4", None)
    }  # fmt: skip


@pytest.mark.parametrize("label", OURS)
def test_a_pod_without_each_of_our_labels_is_not_even_named(label: str, store: Store) -> None:
    foreign = pod("foreign")
    foreign["metadata"]["labels"] = {key: value for key, value in OURS.items() if key != label}
    other = pod("other")
    other["metadata"]["labels"] = OURS | {label: "x"}
    assert sweep(Pods(foreign, other), Housekeeping.DELETE, store) == ()
    assert sweep(Pods(pod("ours")), Housekeeping.DELETE, store, labels={}) == ()


def test_the_oldest_comes_first(store: Store) -> None:
    pods = [pod(f"day-{day}") for day in (19, 17, 18)]
    for each in pods:
        each["metadata"]["creationTimestamp"] = f"2026-11-{each['metadata']['name'][-2:]}T02:00:00Z"
    assert [each.name for each in sweep(Pods(*pods), Housekeeping.REPORT, store)] == ["day-17", "day-18", "day-19"]


def test_the_schedule_releases_pods_unless_the_setting_says_otherwise() -> None:
    assert read_settings({}).housekeeping is Housekeeping.RELEASE
    assert read_settings({"TRAINBENCH_HOUSEKEEPING": "report"}).housekeeping is Housekeeping.REPORT
    with pytest.raises(SettingsError, match="TRAINBENCH_HOUSEKEEPING is 'all'"):
        read_settings({"TRAINBENCH_HOUSEKEEPING": "all"})
