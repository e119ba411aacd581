"""Figures that cannot be: refused with field, value and bound, wherever in a result they stand."""

from __future__ import annotations

from typing import Any

import pytest

from bench_image.contract.frozen import ContractError, fields_of
from bench_image.contract.parse import implausible_reason, parse_result, parse_spec
from bench_image.contract.result_sections import GpuTelemetry, HostTelemetry
from tests.builders import make_failed, make_result, make_spec
from tests.unit.image.contract.documents import put, refusal, result_document

Path = tuple[str | int, ...]


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        (("performance", "samples_per_second"), 1e308, "performance.samples_per_second: Input should be less than"),
        (("performance", "samples_per_second"), 5e-324, "performance.samples_per_second: Input should be greater than"),
        (("performance", "samples_per_second"), -9.5, "performance.samples_per_second: Input should be greater than"),
        (("performance", "step_time", "p95_s"), 1e308, "performance.step_time.p95_s: Input should be less than"),
        (("performance", "step_times_s", 0), 0.0, "performance.step_times_s.0: Input should be greater than 0.00000"),
        (("performance", "windows", 1, "wall_s"), -1.0, "performance.windows.1.wall_s: Input should be greater than"),
        (("performance", "windows", 1, "num_steps"), 0, "performance.windows.1.num_steps: Input should be greater"),
        (("performance", "first_loss"), -1e308, "performance.first_loss: Input should be greater than"),
        (("memory", "peak_during_training"), 1e308, "memory.peak_during_training: Input should be less than or equal"),
        (("memory", "peak_allocated_bytes"), 2**63, "memory.peak_allocated_bytes: Input should be less than or equal"),
        (("startup", "total_s"), -1e308, "startup.total_s: Input should be greater than or equal to 0 (got -1e+308)"),
        (("telemetry", "gpus", 0, "power_mean_w"), 4e6, "telemetry.gpus.0.power_mean_w: Input should be less than"),
        (("telemetry", "gpus", 0, "temperature_mean_c"), -274, "telemetry.gpus.0.temperature_mean_c: Input should be"),
        (("telemetry", "gpus", 0, "utilisation_mean_pct"), 250, "telemetry.gpus.0.utilisation_mean_pct: Input should"),
        (("telemetry", "gpus", 0, "throttle_share_pct", "thermal"), 1e9, "throttle_share_pct.thermal: Input should be"),
        (("telemetry", "gpus", 0, "power_mean_w"), 1e5, "telemetry.gpus.0.power_mean_w: Input should be less than"),
        (("performance", "mfu_pct"), 1e6, "performance.mfu_pct: Input should be less than or equal to 200"),
        (("performance", "last_loss"), 1e12, "performance.last_loss: Input should be less than or equal to 1000000"),
        (("chosen", "micro_batch_size"), 2**63, "chosen.micro_batch_size: Input should be less than or equal to 65536"),
        (("parameters", "total"), -1, "parameters.total: Input should be greater than or equal to 0 (got -1)"),
        (("finished_at",), "9999-12-31T23:59:59-12:00", "finished_at: the date must lie between 1970"),
        (("started_at",), "0001-01-01T00:00:00+14:00", "started_at: "),
        (("context", "driver"), "5" * 4001, "context.driver: String should have at most 4000 characters"),
        (("missing",), {f"a.{i}": "x" for i in range(10_001)}, "missing: Dictionary should have at most 10000 items"),
    ],
)
def test_a_figure_that_cannot_be_is_refused_with_field_value_and_bound(path: Path, value: Any, message: str) -> None:
    text = refusal(put(result_document(), path, value))

    assert text.startswith("result breaks the contract: ")
    assert message in text


def numbers(value: Any, path: Path = ()) -> list[Path]:
    """Where the numbers of a JSON document lie; of each list the first one."""
    if isinstance(value, bool):
        return []
    if isinstance(value, int | float):
        return [path]
    items = value.items() if isinstance(value, dict) else enumerate(value[:1]) if isinstance(value, list) else ()
    return [deeper for key, item in items for deeper in numbers(item, (*path, key))]


@pytest.mark.parametrize("value", [1e308, -1e308, 2**63, 10**400], ids=["1e308", "-1e308", "2^63", "10^400"])
def test_no_number_of_a_result_is_without_bounds(value: Any) -> None:
    """Found by walking a whole result: a new field without bounds fails here. The rest of the spec is checked above."""
    paths = numbers(result_document())

    assert len(paths) > 90
    assert [path for path in paths if not refusal(put(result_document(), path, value)).startswith("result ")] == []


@pytest.mark.parametrize("digits", [400, 4_301, 100_000])
def test_an_integer_of_thousands_of_digits_is_a_sentence(digits: int) -> None:
    text = make_result().model_dump_json().replace('"num_cpus":16', f'"num_cpus":{"9" * digits}')

    with pytest.raises(ContractError, match=r"^result (is not JSON|breaks the contract: context\.num_cpus)"):
        parse_result(text)
    with pytest.raises(ContractError, match=r"^the run spec is not valid: "):
        parse_spec(make_spec().model_dump_json().replace('"round":1', f'"round":{"9" * digits}'))


@pytest.mark.parametrize("depth", [50, 300, 100_000])
def test_endless_nesting_is_a_sentence(depth: int) -> None:
    for text in (make_result().model_dump_json(), make_result().model_dump_json().replace(":2,", ":1,", 1)):
        nested = text.replace('"num_cpus":16', '"num_cpus":' + "[" * depth + "]" * depth)
        with pytest.raises(ContractError, match=r"^result "):
            parse_result(nested)
    with pytest.raises(ContractError, match=r"^the run spec is not valid: "):
        parse_spec(make_spec().model_dump_json().replace('"round":1', '"round":' + "[" * depth + "]" * depth))


def test_a_text_with_a_nul_can_be_stored_anywhere() -> None:
    """PostgreSQL refuses it, and one message of native code would cost the whole night's history."""
    failed = make_failed(message="cudaError\0 719")

    assert failed.error is not None
    assert failed.error.message == "cudaError\ufffd 719"
    assert parse_result(failed.model_dump_json()) == failed


@pytest.mark.parametrize(
    ("field", "value", "reason"),
    [
        ("power_mean_w", 640.0, None),
        ("power_mean_w", None, None),
        ("power_mean_w", 4_294_967.295, "4294967.295: Input should be less than or equal to 10000"),
        ("energy_j", -5.0, "-5.0: Input should be greater than or equal to 0"),
        ("energy_j", float("nan"), "nan: Input should be a finite number"),
    ],
)
def test_a_reading_can_be_checked_before_it_spoils_a_result(field: str, value: Any, reason: str | None) -> None:
    assert implausible_reason(GpuTelemetry, field, value) == reason


@pytest.mark.filterwarnings("error")
def test_to_check_a_reading_warns_of_nothing() -> None:
    """Pydantic's warning of a field as a mere bound stood at the head of every log of a run on a GPU."""
    for field in fields_of(GpuTelemetry):
        implausible_reason(GpuTelemetry, field, None)


def test_the_host_may_round_a_share_a_little_above_100() -> None:
    assert implausible_reason(HostTelemetry, "cpu_steal_pct", 100.4) is None
    assert implausible_reason(HostTelemetry, "cpu_steal_pct", 140.0) is not None
