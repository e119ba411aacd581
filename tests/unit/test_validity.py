from __future__ import annotations

import pytest

from bench_control.validity import validate
from bench_control.verdicts import Level
from bench_image.contract import RunResult
from tests.builders import make_cpu_result, make_failed, make_result


def with_performance(result: RunResult, **fields: object) -> RunResult:
    return result.model_copy(update={"performance": result.performance.model_copy(update=fields)})


def categories(result: RunResult) -> list[str]:
    return [finding.category for finding in validate(result)]


def test_a_good_run_raises_no_doubt() -> None:
    assert validate(make_result()) == ()


def test_a_failed_run_is_not_doubted_twice() -> None:
    assert validate(make_failed()) == ()


def test_step_time_varies_by_more_than_10_pct_on_a_gpu() -> None:
    doubt = validate(make_result(step_cv_pct=11.0))[0]
    assert (doubt.category, doubt.level) == ("unstable_step_time", Level.WARNING)
    assert (doubt.measured, doubt.expected) == ("CV 11.0 %", "at most 10 %")
    assert "unstable_step_time" not in categories(make_result(step_cv_pct=9.0))


def test_allocator_retries() -> None:
    assert categories(make_result(alloc_retries=2)) == ["allocator_retries"]


def test_memory_nearly_full() -> None:
    """The builder reserves 1.1 x allocated: 132 GB is 88 % of 150 GB, 143 GB is 95.3 %."""
    assert categories(make_result(memory_gb=120.0)) == []
    assert categories(make_result(memory_gb=130.0)) == ["memory_nearly_full"]


def test_a_gap_in_the_telemetry() -> None:
    (doubt,) = validate(make_result(temperature_c=None))
    assert (doubt.category, doubt.measured) == ("incomplete_telemetry", "missing: temperature_mean_c")


def test_a_gpu_without_telemetry() -> None:
    result = make_result()
    blind = result.model_copy(update={"telemetry": result.telemetry.model_copy(update={"gpus": ()})})
    assert validate(blind)[0].measured == "missing: 1 of 1 GPUs"


@pytest.mark.parametrize("result", [make_result(), make_cpu_result(step_cv_pct=0.2)])
def test_a_loss_that_does_not_fall_is_only_information(result: RunResult) -> None:
    (doubt,) = validate(with_performance(result, first_loss=10.0, last_loss=10.1))
    assert (doubt.category, doubt.level, doubt.measured) == ("loss_not_falling", Level.INFO, "10.000 -> 10.100")


def test_unsteady_windows_are_a_warning_on_a_gpu_and_expected_on_a_shared_cpu() -> None:
    """CV 5 % over 50 steps: 1.96 * 5 / sqrt(50) = 1.39 % instead of 0.5 %."""
    (doubt,) = validate(make_result(step_cv_pct=5.0))
    assert (doubt.category, doubt.level) == ("unsteady_windows", Level.WARNING)
    assert doubt.measured == "3 of 3 windows, worst ± 1.4 %"
    (on_cpu,) = validate(make_cpu_result(step_cv_pct=5.0))
    assert on_cpu.level is Level.INFO


def test_the_cpu_has_no_gpu_telemetry_to_miss() -> None:
    assert categories(make_cpu_result(step_cv_pct=0.2)) == []
