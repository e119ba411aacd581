"""Results that the pods' tasks store themselves: found again, joined, and never counted twice."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from bench_image.contract.pod_io import MAX_RESULT_BYTES
from bench_image.contract.result import Phase, Status, failed_result
from bench_image.contract.spec import RunSpec
from tests.builders import STARTED_AT, make_result, make_spec
from trainbench.pods.manifests import PodSettings, manifest
from trainbench.pods.pod_end import EndKind, PodEnd
from trainbench.results.arrivals import address_in, arrived, arrived_of_pod, store_arrival, store_log, stored_payloads
from trainbench.results.artefacts import Shelf, Store
from trainbench.results.collect import collect
from trainbench.results.store_files import StoreError

GANG = make_spec(node="node-1", peers=("node-2",), nodes=2, gpus_per_node=1, strategy="ddp")


def pod(spec: RunSpec, rank: int = 0) -> dict[str, Any]:
    return manifest(spec, PodSettings(), node_rank=rank)


def payload(spec: RunSpec) -> Any:
    result = make_result(peers=spec.identity.peers, **dict(spec.placement))
    return json.loads(result.model_copy(update={"spec": spec}).model_dump_json())


def test_a_result_is_in_the_store_as_soon_as_its_task_has_it(store: Store) -> None:
    result = make_result("node-1")
    arrival = store_arrival(store, pod(result.spec), result.model_dump_json(), STARTED_AT)

    assert arrival is not None
    assert arrival.address.endswith(f"runs/{result.spec.identity.run_id}/result.json")
    assert store.read_results(result.spec.identity.campaign_id).results == (result,)


def test_a_repeated_task_and_the_judgement_store_the_same_file_once(store: Store) -> None:
    result = make_result("node-1")
    for _ in range(2):
        store_arrival(store, pod(result.spec), result.model_dump_json(), STARTED_AT)
    store.write_result(result)

    assert store.read_results(result.spec.identity.campaign_id).results == (result,)


def test_only_what_this_pod_measured_is_its_result(store: Store) -> None:
    """A pod that is made anew has another name: the result of the one before it is not its own."""
    result = make_result("node-1")
    assert result.context is not None
    of_pod = result.model_copy(update={"context": result.context.model_copy(update={"pod": "bench-1"})})
    assert arrived_of_pod(store, pod(result.spec), "bench-1") is None
    store_arrival(store, pod(result.spec), of_pod.model_dump_json(), STARTED_AT)

    stored = arrived_of_pod(store, pod(result.spec), "bench-1")
    assert stored is not None
    assert stored.address.endswith(f"runs/{result.spec.identity.run_id}/result.json")
    assert arrived_of_pod(store, pod(result.spec), "bench-2") is None
    assert arrived_of_pod(store, pod(make_spec(node="node-2")), "bench-1") is None
    assert arrived_of_pod(store, {"spec": {"containers": []}}, "bench-1") is None


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ('{"status": "ok"}', "invalid_result"),
        ("[]", "invalid_result"),
        (make_result("node-2").model_dump_json(), "foreign_result"),
    ],
)
def test_what_is_no_result_of_the_run_is_stored_as_a_failed_run_that_says_so(
    store: Store, text: str, kind: str
) -> None:
    spec = make_spec(node="node-1")
    arrival = store_arrival(store, pod(spec), text, STARTED_AT)

    assert arrival is not None
    assert (arrival.failure or "").startswith(f"{kind}: ")
    (stored,) = store.read_results(spec.identity.campaign_id).results
    assert stored.error is not None
    assert arrival.failure == f"{stored.error.kind}: {stored.error.message}"


def test_a_pod_that_is_none_of_ours_stores_nothing(store: Store) -> None:
    assert store_arrival(store, {"spec": {"containers": [{"name": "base"}]}}, "{}", STARTED_AT) is None


def test_the_ranks_of_a_gang_are_joined_to_one_run_when_nobody_else_did(store: Store) -> None:
    for rank in (0, 1):
        store_arrival(store, pod(GANG, rank), json.dumps(payload(GANG)), STARTED_AT)
    (result,) = store.read_results(GANG.identity.campaign_id).results

    assert (result.status, result.spec.identity.run_id) == (Status.OK, GANG.identity.run_id)
    assert len(result.telemetry.gpus) == 2 * len(make_result(gpus_per_node=1).telemetry.gpus)


def test_a_gang_whose_rank_handed_over_nothing_is_one_failed_run(store: Store) -> None:
    store_arrival(store, pod(GANG, 0), json.dumps(payload(GANG)), STARTED_AT)
    (result,) = store.read_results(GANG.identity.campaign_id).results

    assert result.status is Status.INCOMPLETE
    assert result.error is not None
    assert result.error.message.startswith("node-2: ")


def test_a_published_gang_is_not_counted_again_by_its_ranks(store: Store) -> None:
    for rank in (0, 1):
        store_arrival(store, pod(GANG, rank), json.dumps(payload(GANG)), STARTED_AT)
    (joined,) = store.read_results(GANG.identity.campaign_id).results
    store.write_result(joined)

    assert store.read_results(GANG.identity.campaign_id).results == (joined,)


def test_arrivals_are_listed_by_run_and_rank(store: Store) -> None:
    single = make_result("node-1")
    store_arrival(store, pod(single.spec), single.model_dump_json(), STARTED_AT)
    store_arrival(store, pod(GANG, 1), json.dumps(payload(GANG)), STARTED_AT)

    assert json.loads(arrived(store, single.spec, 0) or "")["spec"]["identity"]["node"] == "node-1"
    assert arrived(store, GANG, 0) is None
    assert arrived(store, GANG, 1) is not None


def test_what_the_judgement_wrote_for_a_silent_pod_is_no_arrival(store: Store) -> None:
    spec = make_spec(node="node-1")
    silent = failed_result(
        spec, status=Status.INCOMPLETE, kind="no_result", message="none", phase=Phase.LAUNCH, at=STARTED_AT
    )
    store.write_result(silent)

    assert arrived(store, spec, 0) is None


def at(minute: int, text: Any) -> Any:
    """The same result, begun at this minute and 5 minutes long."""
    times = {"started_at": f"2026-11-22T02:{minute:02}:00Z", "finished_at": f"2026-11-22T02:{minute + 5:02}:00Z"}
    return text | times


def test_ranks_of_different_tries_are_never_joined(store: Store) -> None:
    """Both ranks arrived at 02:10. The gang is run again at 02:50, and rank 1 hands over nothing."""
    for rank in (0, 1):
        store_arrival(store, pod(GANG, rank), json.dumps(at(10, payload(GANG))), STARTED_AT)
    store_arrival(store, pod(GANG, 0), json.dumps(at(50, payload(GANG))), STARTED_AT)
    first, second = stored_payloads(store, (GANG, GANG), [True, False], [None, None])

    assert second is None
    assert json.loads(first or "")["started_at"] == "2026-11-22T02:50:00Z"
    (result,) = store.read_results(GANG.identity.campaign_id).results
    assert result.status is Status.INCOMPLETE
    assert result.error is not None
    assert result.error.message.startswith("node-2: ")


def test_a_rank_of_the_same_try_counts_though_its_task_was_lost(store: Store) -> None:
    for rank in (0, 1):
        store_arrival(store, pod(GANG, rank), json.dumps(at(10, payload(GANG))), STARTED_AT)
    _, second = stored_payloads(store, (GANG, GANG), [True, False], [None, None])

    assert json.loads(second or "")["started_at"] == "2026-11-22T02:10:00Z"


def test_an_end_that_the_pod_s_task_told_is_not_replaced_by_an_earlier_try_s_result(store: Store) -> None:
    """But by the result of that very pod, which `release` found when the API server answered again."""
    result = make_result("node-1")
    assert result.context is not None
    store.write_result(result.model_copy(update={"context": result.context.model_copy(update={"pod": "bench-2"})}))
    away = PodEnd(kind=EndKind.API, message="no answer", pod="bench-1")

    assert stored_payloads(store, [result.spec], [False], [away]) == [None]
    assert stored_payloads(store, [result.spec], [False], [None]) != [None]
    (found,) = stored_payloads(store, [result.spec], [False], [away.model_copy(update={"pod": "bench-2"})])
    assert found is not None
    (counted,) = collect([result.spec], [found], STARTED_AT, ["failed"], [away])
    assert counted.error is None


def test_a_file_that_cannot_be_a_result_fails_its_own_run_only(store: Store) -> None:
    first, second = make_result("node-1"), make_result("node-2")
    address = store.write_result(first)
    store.write_result(second)
    Path(address).write_bytes(b" " * (MAX_RESULT_BYTES + 1))
    one, other = stored_payloads(store, [first.spec, second.spec], [True, True], [None, None])

    assert "larger than" in (one or "")
    assert json.loads(other or "")["status"] == "ok"


def test_a_store_that_is_away_is_no_missing_result(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """The task fails and is retried; a verdict on what nobody could read would call every node failed."""

    def away(*_: object) -> bytes:
        raise StoreError("the object store is busy or away")

    monkeypatch.setattr(Store, "read_run_file", away)
    with pytest.raises(StoreError, match="away"):
        stored_payloads(store, [make_spec()], [False], [None])


def test_the_log_of_each_pod_lies_beside_its_result_and_expires_with_it(store: Store) -> None:
    """A gang's pods have one each; housekeeping knows the files, and no reader of results takes one for a result."""
    alone = make_spec(node="node-1")
    names = [store_log(store, pod(alone), "a\n"), *(store_log(store, pod(GANG, rank), "b\n") for rank in (0, 1))]

    assert [str(name).rsplit("/", 2)[1:] for name in names] == [
        [alone.identity.run_id, "pod.log"],
        [GANG.identity.run_id, "rank-0.log"],
        [GANG.identity.run_id, "rank-1.log"],
    ]
    assert store.usage(Shelf.CAMPAIGNS, alone.identity.campaign_id).foreign == ()
    assert store.read_results(alone.identity.campaign_id).results == ()
    assert store_log(store, pod(alone), "") is None
    assert store_log(store, {"spec": {"containers": [{"name": "base"}]}}, "a") is None


@pytest.mark.parametrize(
    ("handed_over", "address"),
    [
        ({"address": "/store/result.json", "bytes": 3}, "/store/result.json"),
        ('{"address": "/store/result.json", "bytes": 3}', "/store/result.json"),  # a trigger's, encoded twice
        ({"schema_version": 1}, None),
        ("no JSON", None),
        (None, None),
    ],
)
def test_the_address_in_what_a_task_handed_over(handed_over: object, address: str | None) -> None:
    assert address_in(handed_over) == address
