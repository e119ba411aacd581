"""A figure of a run on several GPUs."""

from __future__ import annotations

from tests.builders import make_cpu_result, make_failed, make_result
from trainbench.figure_catalogue.run_figures import (
    FIRST_STEP_S,
    GPU_UTILISATION_MEAN_PCT,
    POWER_MEAN_W,
    SM_CLOCK_MEAN_MHZ,
    SM_CLOCK_MIN_MHZ,
    TEMPERATURE_MAX_C,
    TEMPERATURE_MEAN_C,
)


def test_several_gpus_become_one_number() -> None:
    """A GPU of 640 W and one of 500 W: 1140 W together; temperature of the hotter, clock and use of the lower one."""
    result = make_result(strategy="ddp", gpus_per_node=2)
    first, second = result.telemetry.gpus
    cooler = second.model_copy(
        update={"temperature_mean_c": 50.0, "temperature_max_c": 55.0, "power_mean_w": 500.0,
                "sm_clock_mean_mhz": 1800.0, "sm_clock_min_mhz": 1700.0, "utilisation_mean_pct": 91.0}
    )  # fmt: skip
    gpus = result.model_copy(update={"telemetry": result.telemetry.model_copy(update={"gpus": (first, cooler)})})
    assert (TEMPERATURE_MEAN_C.value(gpus), TEMPERATURE_MAX_C.value(gpus), POWER_MEAN_W.value(gpus)) == (60, 63, 1140)
    assert (SM_CLOCK_MEAN_MHZ.value(gpus), SM_CLOCK_MIN_MHZ.value(gpus)) == (1800, 1700)
    assert GPU_UTILISATION_MEAN_PCT.value(gpus) == 91


def test_the_power_of_all_is_unknown_as_soon_as_one_gpu_does_not_report() -> None:
    result = make_result(strategy="ddp", gpus_per_node=2, temperature_c=70.0)
    first, second = result.telemetry.gpus
    silent = second.model_copy(update={"power_mean_w": None, "temperature_mean_c": None})
    gpus = result.model_copy(update={"telemetry": result.telemetry.model_copy(update={"gpus": (first, silent)})})
    assert (POWER_MEAN_W.value(gpus), TEMPERATURE_MEAN_C.value(gpus)) == (None, 70)


def test_without_a_gpu_nothing_is_known() -> None:
    result = make_cpu_result()
    assert (POWER_MEAN_W.value(result), TEMPERATURE_MEAN_C.value(result)) == (None, None)


def test_the_first_measured_step_begins_the_first_window() -> None:
    """The first of three windows begins 29 s after the process; a run without windows has no such step."""
    result = make_result()
    assert [window.started_s for window in result.performance.windows][:1] == [29.0]
    assert FIRST_STEP_S.value(result) == 29.0
    assert FIRST_STEP_S.value(make_failed()) is None
