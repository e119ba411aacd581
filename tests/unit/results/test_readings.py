from __future__ import annotations

from bench_image.contract.spec import Drill
from tests.builders import make_cpu_result, make_failed, make_result, spoilt
from trainbench.results import readings


def test_several_gpus_become_one_number() -> None:
    """Two GPUs of 640 W each: 1280 W together; temperature and throttling of the worst, clock of the slowest."""
    result = make_result(strategy="ddp", gpus_per_node=2, temperature_c=70.0, throttle_share_pct={"thermal": 12.0})
    assert readings.power_mean_w(result) == 1280.0
    assert readings.temperature_mean_c(result) == 70.0
    assert readings.temperature_max_c(result) == 73.0
    assert readings.sm_clock_mean_mhz(result) == 1920.0
    assert readings.sm_clock_min_mhz(result) == 1890.0
    assert readings.utilisation_mean_pct(result) == 98.0
    assert readings.throttle_pct(result, "thermal") == 12.0
    assert readings.gpu_name(result) == "NVIDIA H200"


def test_without_a_gpu_nothing_is_known() -> None:
    result = make_cpu_result()
    assert readings.power_mean_w(result) is None
    assert readings.temperature_mean_c(result) is None
    assert readings.throttle_pct(result, "thermal") is None
    assert readings.gpu_name(result) is None


def test_what_failed_after_its_first_window_has_a_rate_that_does_not_count() -> None:
    assert readings.is_measured(make_result())
    assert spoilt(make_result()).performance.samples_per_second
    assert not readings.is_measured(spoilt(make_result()))
    assert not readings.is_measured(make_failed())
    assert not readings.is_measured(make_result(drill=Drill(slowdown_pct=20)))


def test_start_up_is_what_was_not_measured() -> None:
    """55 s from process start to the result, 25 s of them measured: 30 s."""
    result = make_result()
    assert (result.startup.total_s, result.startup.measure_s) == (55.0, 25.0)
    assert readings.startup_s(result) == 30.0
    assert readings.startup_s(make_failed()) is None
