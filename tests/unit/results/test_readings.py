from __future__ import annotations

from bench_image.contract.spec import Drill
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
    """55 s from process start to the result, 25 s of them measured: 30 s."""
    result = make_result()
    assert (result.startup.total_s, result.startup.measure_s) == (55.0, 25.0)
    assert readings.startup_s(result) == 30.0
    assert readings.startup_s(make_failed()) is None
