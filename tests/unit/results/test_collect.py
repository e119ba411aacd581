"""Collection: one result for each planned run, whatever the pods handed back."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

import pytest

from bench_image.contract.pod_io import MAX_RESULT_BYTES
from bench_image.contract.result import RunResult, Status
from bench_image.contract.spec import Drill
from tests.builders import make_failed, make_result, make_spec
from trainbench.pods.pod_end import EndKind, PodEnd
from trainbench.results.collect import collect

AT = datetime(2026, 11, 21, 3, 0, tzinfo=UTC)
GOOD = make_result("node-1")
SPEC = GOOD.spec


def as_dict(result: RunResult) -> dict[str, Any]:
    """A result as XCom hands it over."""
    data: dict[str, Any] = json.loads(result.model_dump_json())
    return data


def collect_one(payload: object | None, state: str | None = None) -> RunResult:
    is_text = payload is None or isinstance(payload, str | bytes)
    (result,) = collect([SPEC], [payload if is_text else json.dumps(payload)], AT, [state])  # type: ignore[list-item]
    return result


@pytest.mark.parametrize(
    "payload",
    [as_dict(GOOD), GOOD.model_dump_json(), GOOD.model_dump_json().encode()],
    ids=["mapping", "text", "bytes"],
)
def test_a_good_result_is_taken_as_it_is(payload: object) -> None:
    assert collect_one(payload, "success") == GOOD


def test_a_failed_run_keeps_its_own_status_although_its_task_failed() -> None:
    oom = make_failed("node-1")
    assert collect_one(as_dict(oom), "failed") == oom


def test_a_missing_result_is_a_failed_sample_that_names_the_tasks_state() -> None:
    result = collect_one(None, "upstream_failed")
    assert result.status is Status.INCOMPLETE
    assert result.error is not None
    assert result.error.kind == "no_result"
    assert "node-1" in result.error.message
    assert "'upstream_failed'" in result.error.message
    assert result.spec == SPEC
    assert result.started_at == AT


def test_a_green_task_without_a_result_is_no_success() -> None:
    assert collect_one(None, "success").status is Status.INCOMPLETE


@pytest.mark.parametrize(
    ("payload", "message"),
    [
        (GOOD.model_dump_json()[:500], "not JSON"),
        ("", "not JSON"),
        ("x" * (MAX_RESULT_BYTES + 1), "larger than"),
        ({"hello": "world"}, "not written by trainbench"),
        ([1, 2], "not written by trainbench"),
        (as_dict(GOOD) | {"schema_version": 0}, "schema_version 0"),
        (as_dict(GOOD) | {"status": "brilliant"}, "brilliant"),
        (as_dict(GOOD) | {"surprise": 1}, "surprise"),
        (GOOD.model_dump_json().replace('"mean_loss":10.2', '"mean_loss":NaN', 1), "not JSON"),
        ({"schema_version": 1, "x": float("nan")}, "not JSON"),
        ("\ud800", "not JSON"),
        (b"\xff\xfe\x00", "not JSON"),
        ("[" * 100_000, "too many values"),
        (as_dict(GOOD) | {"status": "\ud800"}, "not JSON"),
    ],
    ids=[
        "truncated", "empty", "oversized", "foreign", "list", "older schema", "unknown status", "unknown field", "NaN",
        "NaN in a mapping", "half a character", "no UTF-8", "deeply nested", "half a character in a field",
    ],
)  # fmt: skip
def test_a_broken_payload_is_a_failed_sample_with_the_reason(payload: object, message: str) -> None:
    result = collect_one(payload, "success")
    assert result.status is Status.ERROR
    assert result.error is not None
    assert result.error.kind == "invalid_result"
    assert message in result.error.message
    assert RunResult.model_validate_json(result.model_dump_json()).spec == SPEC


@pytest.mark.parametrize(
    ("payload", "phrases"),
    [
        (make_result("node-2"), [make_spec(node="node-2").identity.run_id, SPEC.identity.run_id]),
        (make_result("node-1", campaign_id="another"), ["another", SPEC.identity.campaign_id]),
        (make_result("node-1", run_id=SPEC.identity.run_id, group_id="other", seq_length=1024), ["1024", "512"]),
        (make_result("node-1", drill=Drill(slowdown_pct=50)), ["drill", "50"]),
    ],
    ids=["another run", "another campaign", "other work", "a drill that was not planned"],
)
def test_a_foreign_result_is_not_counted_and_both_are_named(payload: RunResult, phrases: list[str]) -> None:
    result = collect_one(as_dict(payload))
    assert result.error is not None
    assert result.error.kind == "foreign_result"
    for phrase in phrases:
        assert phrase in result.error.message


def test_an_oom_kill_that_the_kubelet_reports_is_no_guess() -> None:
    """The supervisor sees a rank die by SIGKILL and can only guess why; the container's status knows."""
    failed = make_failed(
        "node-1", status=Status.ERROR, kind="SIGKILL", message="rank 0 was killed by SIGKILL; most likely ..."
    )
    end = PodEnd(kind=EndKind.OUT_OF_MEMORY, message="the kernel killed the program for the host's memory")

    (result,) = collect([failed.spec], [failed.model_dump_json()], AT, ends=[end])

    assert result.error is not None
    assert (result.error.kind, result.error.message) == ("host_out_of_memory", end.message)


def test_nothing_is_dropped_and_the_order_is_the_plans() -> None:
    """Four runs are planned; one payload is good, one broken, one the first again, the last is not there."""
    good = [make_result(f"node-{i}") for i in (1, 2, 3, 4)]
    specs = [result.spec for result in good]
    results = collect(specs, [good[0].model_dump_json(), "{", good[0].model_dump_json()], AT, ["success", "failed"])
    assert [result.spec for result in results] == specs
    assert [result.error and result.error.kind for result in results] == [
        None,
        "invalid_result",
        "foreign_result",
        "no_result",
    ]


def test_more_payloads_than_runs_are_refused() -> None:
    with pytest.raises(ValueError, match="2 payloads for 1 planned"):
        collect([SPEC], [None, None], AT)
