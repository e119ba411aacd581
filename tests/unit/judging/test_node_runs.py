"""The figures of a run that count."""

from __future__ import annotations

from tests.builders import make_cpu_result, make_result
from tests.builders.judged_fleets import judge_fleet
from trainbench.core.verdicts import Metric
from trainbench.judging.node_runs import NodeRuns, run_figure


def test_the_temperature_of_a_run_is_that_of_its_hottest_gpu() -> None:
    """60, 80 and 64 degrees: 80, neither the coolest nor the mean of 68."""
    result = make_result("node-1", strategy="ddp", gpus_per_node=3)
    gpus = [
        gpu.model_copy(update={"temperature_mean_c": celsius})
        for gpu, celsius in zip(result.telemetry.gpus, (60.0, 80.0, 64.0), strict=True)
    ]
    telemetry = result.telemetry.model_copy(update={"gpus": tuple(gpus)})
    assert run_figure(result.model_copy(update={"telemetry": telemetry}), Metric.TEMPERATURE_C) == 80.0


def test_a_sensor_at_zero_reads_nothing() -> None:
    assert run_figure(make_result(temperature_c=0.0), Metric.TEMPERATURE_C) is None


def test_a_node_is_on_gpu_when_any_of_its_runs_was() -> None:
    gpu, cpu = make_result("node-1"), make_cpu_result("node-1")
    on_gpu = [NodeRuns("node-1", None, runs).on_gpu for runs in ((), (cpu,), (cpu, gpu), (gpu,))]
    assert on_gpu == [False, False, True, True]


def test_the_windows_of_slow_work_show_its_noise() -> None:
    """Half a sample a second is a rate as any other."""
    windows = (0.499, 0.5, 0.501)
    (group,) = judge_fleet([make_result(f"node-{i}", 0.5, windows=windows) for i in (1, 2, 3)]).groups
    assert group.noise_pct is not None
    assert abs(group.noise_pct - 0.2) < 0.01
