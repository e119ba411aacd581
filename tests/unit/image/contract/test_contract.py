"""The contract: what is refused and with which words, what is kept for ever, what makes two runs the same work."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel, ValidationError

from bench_image.contract import parse as contract_parse
from bench_image.contract.bounds import finite
from bench_image.contract.fingerprint import fingerprint
from bench_image.contract.frozen import ContractError
from bench_image.contract.model_shapes import Gpt2Shape
from bench_image.contract.options import Strategy
from bench_image.contract.parse import json_schemas, parse_result, parse_spec
from bench_image.contract.pod_io import MAX_RESULT_BYTES
from bench_image.contract.result import SECTIONS, Chosen, Phase, RunResult, Status, failed_result
from bench_image.contract.result_sections import Cost
from bench_image.contract.spec import Drill
from bench_image.contract.work import Device, Lora, Quantisation
from tests.builders import PARTS, STARTED_AT, make_cpu_result, make_failed, make_result, make_spec
from tests.conftest import GOLDEN_DIR, Golden

SCHEMA_DIR = Path(contract_parse.__file__).parent / "schemas"
Document = dict[str, Any]


def spec_document(**changes: Any) -> Document:
    document = make_spec().model_dump(mode="json")
    for name, value in changes.items():
        part = next((part for part, model in PARTS.items() if name in model.model_fields), None)
        (document[part] if part else document)[name] = value
    return document


# The only nulls of `result_document`.
NULL_HERE = {
    "cost": "no price", "probes.allreduce_bus_gb_per_s": "one rank has no peer",
    "ranks.0.performance": "one rank has one pace", "ranks.0.probes": "one rank has one pace",
}  # fmt: skip


def result_document() -> Document:
    return make_result(exposed_communication_pct=4.0).model_dump(mode="json")


def parse(document: Document) -> RunResult:
    return parse_result(json.dumps(document))


def paths_of(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Where each value of a JSON document lies, containers included."""
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [path, *(deeper for key, item in items for deeper in paths_of(item, (*path, key)))]


def at(document: Any, path: tuple[Any, ...]) -> Any:
    for key in path:
        document = document[key]
    return document


def parses(document: Document) -> bool:
    try:
        parse(document)
    except ContractError:
        return False
    return True


def put(document: Document, path: tuple[Any, ...], value: Any) -> None:
    *parents, last = path
    target: Any = document
    for key in parents:
        target = target[key]
    target[last] = value


# --- schemas and old files


@pytest.mark.parametrize("name", ["run-spec.v1.json", "run-result.v1.json"])
def test_the_committed_schemas_are_those_of_the_models(name: str, golden: Golden) -> None:
    golden(name, json.dumps(json_schemas()[name], indent=2, ensure_ascii=False) + "\n", folder=SCHEMA_DIR)


PUBLISHED = sorted(GOLDEN_DIR.parents[1].glob("docs/results/**/result.json"))
GOLDEN_V1 = ("result-v1.json", "result-v1-oom.json")


@pytest.mark.parametrize("name", GOLDEN_V1)
def test_a_result_of_schema_1_stays_readable(name: str) -> None:
    """Every value that these files hold is still there."""
    old = json.loads((GOLDEN_DIR / name).read_text())
    new = json.loads(parse(old).model_dump_json())

    for path in paths_of(old):
        assert isinstance(at(old, path), dict) or at(new, path) == at(old, path), path


@pytest.mark.parametrize("path", PUBLISHED, ids=lambda path: path.parent.name)
def test_the_published_results_are_readable(path: Path) -> None:
    assert parse_result(path.read_bytes()).status is Status.OK


BROKEN_VALUES: tuple[Any, ...] = (None, [], {}, "x", 7, [[]], {"schema_version": 1}, 1e308, "\ud800", True)


@pytest.mark.parametrize("section", sorted(json.loads((GOLDEN_DIR / "result-v1.json").read_text())))
@pytest.mark.parametrize("value", BROKEN_VALUES, ids=repr)
def test_a_malformed_section_is_a_contract_error(section: str, value: Any) -> None:
    document = json.loads((GOLDEN_DIR / "result-v1.json").read_text())
    if section in ("error", "chosen", "missing", "ranks", "started_at") and parses(document | {section: value}):
        return  # null for "no error" or nothing chosen, an empty list of ranks, seconds since 1970
    with pytest.raises(ContractError):
        parse(document | {section: value})


@pytest.mark.parametrize("depth", [100, 900, 5_000, 100_000])
def test_endless_nesting_is_a_contract_error(depth: int) -> None:
    with pytest.raises(ContractError):
        parse_result('{"schema_version": 1, "ranks": ' + "[" * depth + "]" * depth + "}")


def test_a_spec_of_another_version_inside_a_result_is_refused() -> None:
    document = json.loads((GOLDEN_DIR / "result-v1.json").read_text())
    document["spec"]["schema_version"] = 3

    with pytest.raises(ContractError, match=r"spec\.schema_version: Input should be 1"):
        parse(document)


def test_what_the_golden_result_says() -> None:
    result = parse_result((GOLDEN_DIR / "result-v1.json").read_bytes())

    assert result.status is Status.OK
    assert result.spec.placement.world_size == 1
    assert result.spec.samples_per_step == 8
    assert result.performance.samples_per_second == pytest.approx(15.976, abs=1e-3)
    assert result.memory.peak_during_training == pytest.approx(result.memory.peak_allocated_bytes / 1e9)  # type: ignore[operator]
    assert result.missing["probes.allreduce_bus_gb_per_s"] == "one rank has no peer"


@pytest.mark.parametrize(
    "path",
    [
        ("performance", "samples_per_second"),
        ("performance", "tokens_per_second"),
        ("memory", "peak_during_training"),
        ("cost", "cost_per_1000_samples_usd"),
    ],
)
def test_the_names_that_existing_readers_rely_on(path: tuple[str, str]) -> None:
    section, name = path

    assert name in result_document()[section]


# --- round trips


@pytest.mark.parametrize("make", [make_result, make_cpu_result, make_failed])
def test_a_result_survives_its_own_json(make: Callable[[], RunResult]) -> None:
    result = make()

    assert parse_result(result.model_dump_json()) == result


def test_a_spec_survives_its_own_json() -> None:
    spec = make_spec(drill=Drill(slowdown_pct=20), lora=Lora(rank=8, targets=("q_proj",)))

    assert parse_spec(spec.model_dump_json()) == spec


@pytest.mark.parametrize("status", [status for status in Status if status is not Status.OK])
def test_a_run_that_measured_nothing_still_has_a_valid_result(status: Status) -> None:
    result = failed_result(
        make_spec(), status=status, kind="SIGTERM", message="x" * 5000, phase=Phase.BUILD, at=STARTED_AT, rank=1
    )

    assert result.performance.samples_per_second is None
    assert result.error is not None
    assert len(result.error.message) == 4000
    assert parse_result(result.model_dump_json()) == result


# --- specs from outside


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"micro_batch_size": 0}, "Input should be greater than or equal to 1 (got 0)"),
        ({"nodes": 0}, "nodes: Input should be greater than or equal to 1 (got 0)"),
        ({"repeats": 0}, "repeats: Input should be greater than or equal to 1 (got 0)"),
        ({"seq_length": 4}, "seq_length: Input should be greater than or equal to 8 (got 4)"),
        ({"node": "../../x"}, "node: String should match pattern"),
        ({"node": "node-1\n"}, "node: String should match pattern"),
        ({"node": "Node 1"}, "node: String should match pattern"),
        ({"node": ""}, "node: String should match pattern"),
        ({"run_id": "a/b"}, "run_id: String should match pattern"),
        ({"recipe": "dora"}, "recipe: Input should be 'full', 'lora' or 'qlora' (got 'dora')"),
        ({"precision": "int8"}, "precision: Input should be 'fp32', 'fp16' or 'bf16' (got 'int8')"),
        ({"batch_size": 8}, "batch_size: Extra inputs are not permitted (got 8)"),
        ({"schema_version": 3}, "schema_version: Input should be 1 (got 3)"),
        ({"micro_batch_size": "largest"}, "micro_batch_size"),
        ({"gradient_checkpointing": "maybe"}, "gradient_checkpointing"),
        ({"data": "disk"}, "data"),
        ({"data": {"folder": ""}}, "data.DiskData.folder: String should have at least 1 character"),
        ({"dimensions": {"family": "gpt3"}}, "dimensions: Input tag 'gpt3'"),
        ({"model": "encoder-decoder"}, "recipe 'qlora' with an encoder-decoder model"),
        ({"lora": None}, "recipe 'qlora' with lora=None: LoRA settings go with lora and qlora only"),
        ({"quantisation": None}, "recipe 'qlora' with quantisation=None: it goes with qlora only"),
        ({"recipe": "full"}, "recipe 'full' with lora="),
        ({"nodes": 2}, "strategy 'single' runs on one GPU, not 2: choose one of the others"),
        ({"strategy": "ddp"}, "strategy 'ddp' needs at least 2 GPUs in all, got 1: choose single"),
        (
            {"precision": "fp16", "strategy": "zero2", "gpus_per_node": 2},
            "precision 'fp16' with strategy 'zero2': DeepSpeed turns all weights into fp16",
        ),
        ({"strategy": "independent", "nodes": 2}, "strategy 'independent' runs on the GPUs of one node, not of 2"),
        ({"max_window_s": 0.05}, "max_window_s: Input should be greater than or equal to 0.1 (got 0.05)"),
        ({"max_window_s": 90_000}, "max_window_s: Input should be less than or equal to 86400 (got 90000)"),
        ({"measured_steps": 300}, "max_measured_steps 200 < measured_steps 300"),
    ],
)
def test_a_wrong_spec_is_refused_with_the_field_and_what_is_allowed(changes: Document, message: str) -> None:
    with pytest.raises(ContractError) as refusal:
        parse_spec(json.dumps(spec_document(**changes)))

    assert str(refusal.value).startswith("the run spec is not valid: ")
    assert message in str(refusal.value)


@pytest.mark.parametrize("gpus", [1, 8])
def test_independent_ranks_are_as_many_as_the_node_has_gpus(gpus: int) -> None:
    spec = make_spec(strategy=Strategy.INDEPENDENT, gpus_per_node=gpus)

    assert parse_spec(spec.model_dump_json()) == spec
    assert (spec.of_one_rank.placement.strategy, spec.of_one_rank.placement.world_size) == (Strategy.SINGLE, 1)
    assert spec.of_one_rank.model_dump(exclude={"placement"}) == spec.model_dump(exclude={"placement"})


def test_the_rank_of_a_gang_does_not_work_by_itself() -> None:
    spec = make_spec(strategy=Strategy.DDP, gpus_per_node=4)

    assert spec.of_one_rank is spec


def test_independent_ranks_do_equal_work_however_many_they_are() -> None:
    one, eight = (make_spec(strategy=Strategy.INDEPENDENT, gpus_per_node=gpus) for gpus in (1, 8))

    assert one.fingerprint == eight.fingerprint
    assert one.fingerprint != make_spec(strategy=Strategy.SINGLE).fingerprint
    assert (
        make_spec(strategy=Strategy.DDP, gpus_per_node=2).fingerprint
        != make_spec(strategy=Strategy.DDP, gpus_per_node=4).fingerprint
    )


def test_a_refusal_names_five_fields_and_counts_the_rest() -> None:
    wrong = dict.fromkeys(("nodes", "gpus_per_node", "seq_length", "round", "repeats", "rank", "world"), 0)

    with pytest.raises(ContractError, match=r"; and 2 more$"):
        parse_spec(json.dumps(spec_document(**wrong)))


@pytest.mark.parametrize("text", ["", "{", "[]", "null", "not json", b"\xff\xfe"])
def test_a_spec_that_is_no_json_object_is_refused(text: str | bytes) -> None:
    with pytest.raises(ContractError, match="the run spec is not valid"):
        parse_spec(text)


# --- results from outside


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
    document = result_document()
    put(document, path, "HERE")

    with pytest.raises(ContractError):
        parse_result(json.dumps(document).replace('"HERE"', constant))


def test_nan_cannot_even_be_written() -> None:
    with pytest.raises(ValidationError, match="finite number"):
        Cost(
            cost_per_1000_samples_usd=float("nan"), usd_per_gpu_hour=None, price_source=None, price_as_of=None
        )  # fmt: skip


@pytest.mark.parametrize("kept", [0, 1, 100, -1])
def test_a_truncated_result_is_refused(kept: int) -> None:
    with pytest.raises(ContractError, match=r"^result is not JSON \(truncated\?\)"):
        parse_result(make_result().model_dump_json()[:kept])


def test_an_oversized_result_is_refused_before_it_is_parsed() -> None:
    with pytest.raises(ContractError, match="result of 4000001 bytes is larger than the 4000000 allowed"):
        parse_result(b" " * (MAX_RESULT_BYTES + 1))


def test_nesting_without_end_is_refused() -> None:
    with pytest.raises(ContractError):
        parse_result("[" * 1_000_000)


@pytest.mark.parametrize("text", ['{"accuracy": 0.97}', "[]", "7", '"ok"', "null"])
def test_a_foreign_document_is_refused(text: str) -> None:
    with pytest.raises(ContractError, match="result has no schema_version: not written by trainbench"):
        parse_result(text)


@pytest.mark.parametrize("version", [0, 2, "1", None, True, 1.0, [1], {}])
def test_another_schema_is_named(version: Any) -> None:
    with pytest.raises(ContractError, match=r"this version reads 1$"):
        parse(result_document() | {"schema_version": version})


def test_an_unknown_field_is_refused() -> None:
    document = result_document()
    document["performance"]["samples_per_minute"] = 570

    with pytest.raises(ContractError, match=r"performance\.samples_per_minute: Extra inputs are not permitted"):
        parse(document)


def test_a_result_needs_all_of_its_sections() -> None:
    for section in result_document().keys() - {"schema_version"}:
        document = result_document()
        del document[section]
        with pytest.raises(ContractError, match=f"{section}: Field required"):
            parse(document)


def test_a_time_without_a_zone_is_refused() -> None:
    with pytest.raises(ContractError, match="started_at: Input should have timezone info"):
        parse(result_document() | {"started_at": "2026-11-21T02:00:00"})


@pytest.mark.parametrize(
    ("status", "has_error", "message"),
    [("ok", True, "an error goes with every status but ok"), ("oom", False, "an error goes with every status but ok")],
)
def test_an_error_goes_with_every_status_but_ok(status: str, has_error: bool, message: str) -> None:
    error = {"kind": "OutOfMemoryError", "message": "CUDA out of memory", "phase": "warmup", "rank": 0}

    with pytest.raises(ContractError, match=message):
        parse(result_document() | {"status": status, "error": error if has_error else None})


def test_a_good_result_has_a_throughput() -> None:
    document = result_document()
    document["performance"]["samples_per_second"] = None
    document["missing"]["performance.samples_per_second"] = "nobody looked"

    with pytest.raises(ContractError, match=r"status 'ok' needs performance\.samples_per_second"):
        parse(document)


# --- every null has its reason


def nullable_paths() -> list[tuple[Any, ...]]:
    """All fields of the measured sections that may be null, by trying."""
    document = result_document()
    measured = [path for path in paths_of(document) if path and path[0] in SECTIONS]
    return [path for path in measured if "null without a reason" in _refusal_of_null(path)]


def _refusal_of_null(path: tuple[Any, ...]) -> str:
    document = result_document()
    document["missing"] = dict(NULL_HERE)
    put(document, path, None)
    try:
        parse(document)
    except ContractError as error:
        return str(error)
    return ""


@pytest.mark.parametrize("path", nullable_paths(), ids=lambda path: ".".join(map(str, path)))
def test_a_null_needs_a_reason(path: tuple[Any, ...]) -> None:
    where = ".".join(map(str, path))
    document = result_document()
    document["missing"] = dict(NULL_HERE)
    put(document, path, None)

    with pytest.raises(ContractError, match=f"{where} is null without a reason"):
        parse(document)
    if where == "performance.samples_per_second":
        return  # a good result has one, reason or not
    document["missing"][where] = "the driver does not tell"
    assert parse(document).missing[where] == "the driver does not tell"


def test_the_search_for_nullable_fields_finds_them() -> None:
    """Each section that is measured has some, and so has each GPU."""
    found = nullable_paths()

    assert {path[0] for path in found} == set(SECTIONS) - {"cost"}
    assert ("telemetry", "gpus", 0, "remapped_rows") in found


@pytest.mark.parametrize(
    "reason_path",
    [
        "telemetry.gpus.0.power_mean_w",
        "telemetry.gpus.*.power_mean_w",
        "telemetry.gpus.0",
        "telemetry.gpus.*",
        "telemetry.gpus",
        "telemetry",
    ],
)
def test_one_reason_may_stand_for_a_field_an_index_or_a_section(reason_path: str) -> None:
    document = result_document()
    document["telemetry"]["gpus"][0]["power_mean_w"] = None
    document["missing"][reason_path] = "NVML: Not Supported"

    assert parse(document).telemetry.gpus[0].power_mean_w is None


@pytest.mark.parametrize(
    "reason_path",
    [
        "telemetry.gpus.1.power_mean_w",
        "telemetry.gpus.0.power",
        "telemetry.*.power_mean_w",
        "tele",
        "",
        "telemetry.gpus.0.power_mean_w.x",
    ],
)
def test_a_reason_for_something_else_is_none(reason_path: str) -> None:
    document = result_document()
    document["telemetry"]["gpus"][0]["power_mean_w"] = None
    document["missing"][reason_path] = "NVML: Not Supported"

    with pytest.raises(ContractError, match=r"telemetry\.gpus\.0\.power_mean_w is null without a reason"):
        parse(document)


# --- the fingerprint: same work or not


def test_the_fingerprint_is_12_hex_digits_of_the_work() -> None:
    spec = make_spec()

    assert len(spec.fingerprint) == 12
    assert int(spec.fingerprint, 16) >= 0
    assert spec.fingerprint == parse_spec(spec.model_dump_json()).fingerprint


@pytest.mark.filterwarnings("ignore:Pydantic serializer warnings")  # of the value that no field takes
@pytest.mark.parametrize(("part", "field"), [(part, field) for part in PARTS for field in PARTS[part].model_fields])
def test_every_field_of_work_placement_and_measurement_enters_the_fingerprint(part: str, field: str) -> None:
    """A new field enters by itself: comparing unequal work must be impossible by accident."""
    spec = make_spec()
    changed = spec.changed(**{part: {field: "something else"}}).fingerprint != spec.fingerprint

    assert changed == (part != "identity")


@pytest.mark.parametrize(
    ("parts", "changes", "is_equal"),
    [
        (("work", "measurement"), {"strategy": "zero3", "nodes": 2, "gpus_per_node": 4}, True),
        (("work", "measurement"), {"strategy": "zero3", "gpus_per_node": 4, "gradient_accumulation_steps": 4}, False),
        (("work", "measurement"), {"warmup_steps": 3}, False),
        (("work", "placement"), {"warmup_steps": 3, "repeats": 1, "measured_steps": 5}, True),
        (("work", "placement"), {"warmup_steps": 3, "micro_batch_size": 4}, False),
    ],
)
def test_a_comparison_lets_differ_what_it_compares_and_nothing_else(
    parts: tuple[str, ...], changes: Document, is_equal: bool
) -> None:
    one, other = (fingerprint(*(getattr(spec, part) for part in parts)) for spec in (make_spec(), make_spec(**changes)))

    assert (one == other) == is_equal


def test_no_two_parts_have_a_field_of_one_name() -> None:
    """Fingerprints hash the fields of several parts side by side."""
    names = [name for part in PARTS.values() for name in part.model_fields]

    assert len(names) == len(set(names))


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ({"lora": Lora(rank=16)}, {"lora": Lora(rank=8)}),
        ({"quantisation": Quantisation(double=True)}, {"quantisation": Quantisation(double=False)}),
    ],
)
def test_settings_inside_a_field_are_work_too(one: Document, other: Document) -> None:
    assert make_spec(**one).fingerprint != make_spec(**other).fingerprint


def test_nodes_rounds_and_drills_share_their_work() -> None:
    """What runs on another node, or again, or under a drill, is compared with the first: it must be the same group."""
    first = make_spec(node="node-1")

    assert first.fingerprint == make_spec(node="node-2", round=3, drill=Drill(slowdown_pct=20)).fingerprint


# --- what was left to the program


def test_the_work_of_a_result_is_the_spec_with_what_was_chosen() -> None:
    asked = {"micro_batch_size": "auto", "gradient_checkpointing": "auto"}
    chosen = Chosen(micro_batch_size=12, gradient_checkpointing=True, why="the largest that fits", execution={})
    work = make_result(chosen=chosen, **asked).effective_spec

    assert (work.work.micro_batch_size, work.work.gradient_checkpointing, work.samples_per_step) == (12, True, 12)
    fixed = make_spec(micro_batch_size=12, gradient_checkpointing=True)
    assert work.fingerprint == fixed.fingerprint != make_spec(**asked).fingerprint


def test_a_run_that_never_came_to_choose_has_the_work_it_was_asked_for() -> None:
    assert make_failed(micro_batch_size="auto").effective_spec.work.micro_batch_size == "auto"


def test_the_global_batch_of_auto_is_not_known_before_the_run() -> None:
    with pytest.raises(ContractError, match="only the run's result knows it"):
        _ = make_spec(micro_batch_size="auto").samples_per_step


def test_dimensions_of_ones_own_need_no_known_model() -> None:
    mine = Gpt2Shape(family="gpt2", hidden_size=64, num_layers=2, num_heads=4)

    assert make_spec(model="mine", dimensions=mine, recipe="full").work.shape == mine
    with pytest.raises(ContractError, match="model 'mine' is not known"):
        _ = make_spec(model="mine").work.shape


# --- values


@pytest.mark.parametrize(("value", "kept"), [(1.5, 1.5), (None, None), (float("nan"), None), (float("inf"), None)])
def test_only_finite_numbers_enter_a_result(value: float | None, kept: float | None) -> None:
    assert finite(value) == kept


def test_the_global_batch_counts_all_ranks_and_micro_steps() -> None:
    """2 nodes * 4 GPUs * 8 samples * 3 micro-steps."""
    spec = make_spec(
        strategy="ddp", nodes=2, gpus_per_node=4, micro_batch_size=8, gradient_accumulation_steps=3, device=Device.CUDA
    )

    assert spec.placement.world_size == 8
    assert spec.samples_per_step == 192


def test_specs_and_results_cannot_be_changed() -> None:
    for value in (make_spec(), make_result(), make_result().performance):
        assert isinstance(value, BaseModel)
        with pytest.raises(ValidationError, match="frozen"):
            setattr(value, next(iter(type(value).model_fields)), 1)
