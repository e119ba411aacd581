from __future__ import annotations

import pytest

from bench_image.contract.options import Precision, Recipe
from bench_image.contract.result import RunResult
from bench_image.contract.spec import Drill
from bench_image.contract.work import Preset
from tests.builders import make_cpu_result, make_failed, make_result, spoilt
from trainbench.results import readings


def test_the_throttling_and_the_name_of_the_gpus() -> None:
    result = make_result(strategy="ddp", gpus_per_node=2, throttle_share_pct={"thermal": 12.0})
    assert (readings.throttle_pct(result, "thermal"), readings.gpu_name(result)) == (12.0, "NVIDIA H200")
    on_cpu = make_cpu_result()
    assert (readings.throttle_pct(on_cpu, "thermal"), readings.gpu_name(on_cpu)) == (None, None)


def test_what_failed_after_its_first_window_has_a_rate_that_does_not_count() -> None:
    assert readings.is_measured(make_result())
    assert spoilt(make_result()).performance.samples_per_second
    assert not readings.is_measured(spoilt(make_result()))
    assert not readings.is_measured(make_failed())
    assert not readings.is_measured(make_result(drill=Drill(slowdown_pct=20)))


def test_start_up_is_what_was_not_measured() -> None:
    """55 s from process start to the result, 25 s of them measured: 30 s; without 4 s of others' turns 26 s."""
    result = make_result()
    assert (result.startup.total_s, result.startup.measure_s) == (55.0, 25.0)
    assert readings.startup_s(result) == 30.0
    waited = result.startup.model_copy(update={"turns_s": 4.0})
    assert readings.startup_s(result.model_copy(update={"startup": waited})) == 26.0
    assert readings.startup_s(make_failed()) is None


def test_mfu_by_the_bf16_peak_compares_precisions() -> None:
    """An H200 has 1,979 TFLOP/s in 8 bits and 989 in bf16: 30 % of the one are 60.03 % of the other."""
    full = {"recipe": Recipe.FULL, "preset": Preset.TUNED}
    narrow, wide = (
        with_mfu(make_result(precision=precision, **full), 30.0) for precision in (Precision.FP8, Precision.BF16)
    )

    assert readings.mfu_bf16_pct(narrow) == pytest.approx(30 * 1979 / 989)
    assert readings.mfu_bf16_pct(wide) == 30.0
    assert readings.mfu_bf16_pct(make_cpu_result()) is None


def with_mfu(result: RunResult, mfu_pct: float) -> RunResult:
    return result.model_copy(update={"performance": result.performance.model_copy(update={"mfu_pct": mfu_pct})})


def test_xids_of_all_gpus_add_up() -> None:
    """Two GPUs with two events each: 4. A driver that tells of none leaves it open; one that saw none says 0."""
    two = make_result(strategy="ddp", gpus_per_node=2, events={"xids": {"94": 1, "63": 1}})
    assert readings.num_xids(two) == 4
    assert readings.num_xids(make_result(events={"xids": None})) is None
    assert readings.num_xids(make_result()) == 0


def test_memory_of_others_by_hand() -> None:
    """20 GB before the first process, 30 GB after the last one: 30 GB."""
    events = {"other_memory_at_start_gb": 20.0, "other_memory_at_end_gb": 30.0}
    assert readings.other_memory_gb(make_result(events=events)) == 30.0
    assert readings.other_memory_gb(make_cpu_result()) is None
