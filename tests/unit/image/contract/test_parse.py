"""Reading results: schemas, the golden files, and documents that are refused."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tracemalloc
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from bench_image.contract.frozen import ContractError, fields_of
from bench_image.contract.parse import json_schemas, parse_result, strict_json
from bench_image.contract.pod_io import MAX_RESULT_BYTES
from bench_image.contract.result import RankSummary, Status
from bench_image.contract.result_sections import Cost
from committed import committed
from tests.builders import make_result
from tests.conftest import GOLDEN_DIR, Golden
from tests.unit.image.contract.documents import SCHEMA_DIR, at, parse, paths_of, put, refusal, result_document


@pytest.mark.parametrize("name", ["run-spec.v1.json", "run-result.v1.json"])
def test_the_committed_schemas_are_those_of_the_models(name: str, golden: Golden) -> None:
    golden(name, json.dumps(json_schemas()[name], indent=2, ensure_ascii=False) + "\n", folder=SCHEMA_DIR)


PUBLISHED = committed("*/result.json")
GOLDEN_V1 = ("result-v1.json", "result-v1-oom.json")


@pytest.mark.parametrize("name", GOLDEN_V1)
def test_a_result_of_schema_1_stays_readable(name: str) -> None:
    """Every value that these files hold is still there."""
    old = json.loads((GOLDEN_DIR / name).read_text())
    new = json.loads(parse(old).model_dump_json())

    for path in paths_of(old):
        assert isinstance(at(old, path), dict | list) or at(new, path) == at(old, path), path


def test_what_a_result_of_0_1_lacks_is_null_with_one_reason_for_all_gpus() -> None:
    result = parse_result((GOLDEN_DIR / "result-v1.json").read_bytes())

    assert (result.probes.memory_gb_per_s, result.telemetry.gpus[0].xids) == (None, None)
    for path in ("context.os", "probes.memory_gb_per_s", "telemetry.gpus.*.xids"):
        assert result.missing[path] == "not measured by the version that wrote this result"


@pytest.mark.parametrize("name", PUBLISHED)
def test_the_published_results_are_readable(name: str) -> None:
    status = parse_result(PUBLISHED[name].encode()).status
    does_not_fit = name.endswith("/h100/lora-8x2048/result.json")  # that is a result, too
    assert status is (Status.OOM if does_not_fit else Status.OK)


BROKEN_VALUES: tuple[Any, ...] = (None, [], {}, "x", 7, [[]], {"schema_version": 1}, 1e308, "\ud800", True)


@pytest.mark.parametrize("section", sorted(json.loads((GOLDEN_DIR / "result-v1.json").read_text())))
@pytest.mark.parametrize("value", BROKEN_VALUES, ids=repr)
def test_a_malformed_section_is_a_contract_error(section: str, value: Any) -> None:
    document = json.loads((GOLDEN_DIR / "result-v1.json").read_text())
    may_be = ("error", "chosen", "missing", "ranks", "started_at", "communication")
    # null for "no error" or nothing chosen, no ranks, seconds since 1970, a section of nulls with a reason
    assert refusal(document | {section: value}) or section in may_be


@pytest.mark.parametrize("constant", ["NaN", "Infinity", "-Infinity", "1e999"])
@pytest.mark.parametrize(
    "path",
    [
        ("performance", "samples_per_second"),
        ("performance", "step_times_s", 0),
        ("telemetry", "gpus", 0, "throttle_share_pct", "thermal"),
        ("probes", "matmul_tflops"),
    ],
)
def test_numbers_that_are_none_are_refused(path: tuple[Any, ...], constant: str) -> None:
    document = put(result_document(), path, "HERE")

    with pytest.raises(ContractError):
        parse_result(json.dumps(document).replace('"HERE"', constant))


def test_nan_cannot_even_be_written() -> None:
    with pytest.raises(ValidationError, match="finite number"):
        Cost(cost_per_1000_samples_usd=float("nan"))


def test_an_oversized_result_is_refused_before_it_is_parsed() -> None:
    with pytest.raises(ContractError, match="result of 16000001 bytes is larger than the 16000000 allowed"):
        parse_result(b" " * (MAX_RESULT_BYTES + 1))


RANKS, REASONS = '"ranks":[', '"missing":{'


@pytest.mark.parametrize(
    ("place", "value"),
    [
        (RANKS, "[],"),
        (RANKS, "{{}},"),
        (RANKS, '{{"{:x}":0}},'),
        (RANKS, '{{"a":[]}},'),
        (RANKS, '{{"a":null}},'),
        (RANKS, "[0],"),
        (RANKS, "{},"),
        (RANKS, '"{:05x}",'),
        (RANKS, '"\xe9{:03x}",'),
        (RANKS, '"\u0101{:x}",'),
        (RANKS, '"\U0001f600{:x}",'),
        ('"windows":[', '{{"started_s":{}.5}},'),
        ('"step_times_s":[', "0.{:x},"),
        (REASONS, '"{:x}":"{:x}",'),
        (REASONS, '"\U0001f600{:x}":"",'),
        ("{", '"a{}":0,'),
        (REASONS, '"\U0001f600' + "a" * 2_000_000 + '":"{}",'),
    ],
)
@pytest.mark.parametrize("bytes_per_item", [1, 12, 20])
def test_a_hostile_result_costs_at_most_ten_times_its_bytes(
    place: str, value: str, bytes_per_item: int, refusals: subprocess.Popen[str], tmp_path: Path
) -> None:
    """With spaces between its items it passes the bound by marks and is parsed. pydantic's JSON took 90 times the bytes
    for `[],`; each unknown name became a fault, and a dictionary of each took 2,800 times.
    """
    num_items = max(1, 2_000_000 // max(bytes_per_item, len(value)))
    items = "".join(value.format(index, index).ljust(bytes_per_item) for index in range(num_items))
    raw = make_result().model_dump_json().replace(place, place + items, 1).encode()
    (tmp_path / "result.json").write_bytes(raw)

    assert refusals.stdin
    assert refusals.stdout
    print(tmp_path / "result.json", file=refusals.stdin, flush=True)
    cost_bytes, message = refusals.stdout.readline().split(" ", 1)

    assert int(cost_bytes) < 10 * len(raw) + 1_000_000, message
    assert message != "it is taken\n"
    assert len(message) < 2000


@pytest.fixture(scope="module")
def refusals() -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, str(Path(__file__).with_name("cost_of_refusal.py"))]
    env = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=env) as process:
        yield process


def test_a_gang_whose_ranks_all_failed_before_they_measured_is_read() -> None:
    fields = dict.fromkeys(fields_of(RankSummary))
    ranks = [fields | {"rank": rank, "status": "error"} for rank in range(16_384)]
    document = json.dumps({"schema_version": 1, "ranks": ranks}, separators=(",", ":"))
    assert strict_json(document.encode())["ranks"] == ranks


def test_a_file_that_windows_saved_is_read() -> None:
    result = make_result()
    assert parse_result(b"\xef\xbb\xbf" + result.model_dump_json().encode()) == result


@pytest.mark.parametrize("text", ['{"accuracy": 0.97}', "[]", "7", '"ok"', "null"])
def test_a_foreign_document_is_refused(text: str) -> None:
    with pytest.raises(ContractError, match="result has no schema_version: not written by trainbench"):
        parse_result(text)


ERROR = {"kind": "OutOfMemoryError", "message": "CUDA out of memory", "phase": "warmup", "rank": 0}


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        *(("schema_version", version, "this version reads 1") for version in (0, 2, "1", None, True, 1.0, [1], {})),
        ("spec.schema_version", 3, "spec.schema_version: Input should be 1"),
        ("performance.samples_per_minute", 570, "performance.samples_per_minute: Unexpected keyword argument"),
        ("performance.samples_per_second", None, "status 'ok' needs performance.samples_per_second"),
        ("started_at", "2026-11-21T02:00:00", "started_at: Input should have timezone info"),
        ("error", ERROR, "an error goes with every status but ok"),
        ("status", "oom", "an error goes with every status but ok"),
    ],
)
def test_what_is_no_result_is_refused_by_its_field(path: str, value: Any, message: str) -> None:
    document = put(result_document(), tuple(path.split(".")), value)
    document["missing"][path] = "nobody looked"

    assert message in refusal(document)


@pytest.mark.parametrize("section", result_document().keys() - {"schema_version", "error", "links", "cost"})
def test_an_absent_section_is_null_which_needs_a_reason(section: str) -> None:
    """Of the result there is no error, no sweep of links, and a reason why it has no cost."""
    document = result_document()
    del document[section]
    assert re.search(rf"{section}: Field required|{section}[.a-z0-9_]* is null without a reason", refusal(document))


def test_reasons_full_of_dots_cost_no_more_memory_than_ten_times_their_text() -> None:
    """980 keys of 3,990 dots, 3.9 MB, took 743 MB: one dictionary for each dot."""
    document = json.loads(make_result().model_dump_json())
    document["missing"] |= {"." * 3_990 + str(number): "no reason" for number in range(980)}
    text = json.dumps(document)
    tracemalloc.start()
    try:
        parse_result(text)
        _, peak_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak_bytes < 10 * len(text)
