"""Results that the pods' tasks store themselves: found again, joined, and never counted twice."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from bench_image.contract.result import Phase, Status, failed_result
from bench_image.contract.spec import RunSpec
from tests.builders import STARTED_AT, make_result, make_spec
from trainbench.pods.manifests import PodSettings, manifest
from trainbench.pods.pod_end import EndKind, PodEnd
from trainbench.results.arrivals import arrived, arrived_of_pod, complete_payloads, store_arrival, store_log
from trainbench.results.artefacts import Store, open_store
from trainbench.results.store_layout import Shelf

GANG = make_spec(node="node-1", peers=("node-2",), nodes=2, gpus_per_node=1, strategy="ddp")


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return open_store(str(tmp_path / "store"))


def pod(spec: RunSpec, rank: int = 0) -> dict[str, Any]:
    return manifest(spec, PodSettings(), node_rank=rank)


def payload(spec: RunSpec) -> Any:
    """As Airflow decodes it."""
    result = make_result(peers=spec.identity.peers, **dict(spec.placement))
    return json.loads(result.model_copy(update={"spec": spec}).model_dump_json())


def test_a_result_is_in_the_store_as_soon_as_its_task_has_it(store: Store) -> None:
    result = make_result("node-1")
    address = store_arrival(store, pod(result.spec), json.loads(result.model_dump_json()))

    assert address is not None
    assert address.endswith(f"runs/{result.spec.identity.run_id}/result.json")
    assert store.read_results(result.spec.identity.campaign_id).results == (result,)


def test_a_repeated_task_and_the_judgement_store_the_same_file_once(store: Store) -> None:
    result = make_result("node-1")
    for _ in range(2):
        store_arrival(store, pod(result.spec), json.loads(result.model_dump_json()))
    store.write_result(result)

    assert store.read_results(result.spec.identity.campaign_id).results == (result,)


def test_only_what_this_pod_measured_is_its_result(store: Store) -> None:
    """A pod that is made anew has another name: the result of the one before it is not its own."""
    result = make_result("node-1")
    assert result.context is not None
    of_pod = result.model_copy(update={"context": result.context.model_copy(update={"pod": "bench-1"})})
    assert arrived_of_pod(store, pod(result.spec), "bench-1") is None
    store_arrival(store, pod(result.spec), json.loads(of_pod.model_dump_json()))

    stored = arrived_of_pod(store, pod(result.spec), "bench-1")
    assert stored is not None
    assert json.loads(stored) == json.loads(of_pod.model_dump_json())
    assert arrived_of_pod(store, pod(result.spec), "bench-2") is None
    assert arrived_of_pod(store, pod(make_spec(node="node-2")), "bench-1") is None
    assert arrived_of_pod(store, {"spec": {"containers": []}}, "bench-1") is None


@pytest.mark.parametrize(
    "text", ['{"status": "ok"}', "[]", make_result("node-2").model_dump_json()], ids=["no result", "a list", "foreign"]
)
def test_what_is_no_result_of_the_run_is_left_to_the_judgement(store: Store, text: str) -> None:
    assert store_arrival(store, pod(make_spec(node="node-1")), json.loads(text)) is None
    assert store.campaign_ids() == ()


def test_a_pod_that_is_none_of_ours_stores_nothing(store: Store) -> None:
    assert store_arrival(store, {"spec": {"containers": [{"name": "base"}]}}, {}) is None


def test_the_ranks_of_a_gang_are_joined_to_one_run_when_nobody_else_did(store: Store) -> None:
    for rank in (0, 1):
        store_arrival(store, pod(GANG, rank), payload(GANG))
    (result,) = store.read_results(GANG.identity.campaign_id).results

    assert (result.status, result.spec.identity.run_id) == (Status.OK, GANG.identity.run_id)
    assert len(result.telemetry.gpus) == 2 * len(make_result(gpus_per_node=1).telemetry.gpus)


def test_a_gang_whose_rank_handed_over_nothing_is_one_failed_run(store: Store) -> None:
    store_arrival(store, pod(GANG, 0), payload(GANG))
    (result,) = store.read_results(GANG.identity.campaign_id).results

    assert result.status is Status.INCOMPLETE
    assert result.error is not None
    assert result.error.message.startswith("node-2: ")


def test_a_published_gang_is_not_counted_again_by_its_ranks(store: Store) -> None:
    for rank in (0, 1):
        store_arrival(store, pod(GANG, rank), payload(GANG))
    (joined,) = store.read_results(GANG.identity.campaign_id).results
    store.write_result(joined)

    assert store.read_results(GANG.identity.campaign_id).results == (joined,)


def test_arrivals_are_listed_by_run_and_rank(store: Store) -> None:
    single = make_result("node-1")
    store_arrival(store, pod(single.spec), json.loads(single.model_dump_json()))
    store_arrival(store, pod(GANG, 1), payload(GANG))

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
    """The same result, begun at this minute and half a minute long."""
    times = {"started_at": f"2026-11-22T02:{minute:02}:00Z", "finished_at": f"2026-11-22T02:{minute:02}:30Z"}
    return text | times


def test_ranks_of_different_tries_are_never_joined(store: Store) -> None:
    """Both ranks arrived at 02:10. The gang is run again at 02:50, and rank 1 hands over nothing."""
    for rank in (0, 1):
        store_arrival(store, pod(GANG, rank), at(10, payload(GANG)))
    again = at(50, payload(GANG))
    first, second = complete_payloads(store, (GANG, GANG), [again, None], [None, None])
    assert (first, second) == (again, None)

    store_arrival(store, pod(GANG, 0), again)
    (result,) = store.read_results(GANG.identity.campaign_id).results
    assert result.status is Status.INCOMPLETE
    assert result.error is not None
    assert result.error.message.startswith("node-2: ")


def test_a_rank_of_the_same_try_is_taken_from_the_store(store: Store) -> None:
    store_arrival(store, pod(GANG, 1), at(10, payload(GANG)))
    _, second = complete_payloads(store, (GANG, GANG), [at(10, payload(GANG)), None], [None, None])

    assert isinstance(second, str)
    assert json.loads(second)["started_at"] == "2026-11-22T02:10:00Z"


def test_an_end_that_the_pod_s_task_gave_is_not_replaced_by_an_earlier_result(store: Store) -> None:
    result = make_result("node-1")
    store.write_result(result)
    lost = PodEnd(kind=EndKind.NODE_LOST, message="node-1 stopped answering")

    assert complete_payloads(store, [result.spec], [None], [lost]) == [None]
    assert complete_payloads(store, [result.spec], [None], [None]) != [None]


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
