"""The figures of a run that count."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from bench_image.contract.result import RunResult
from bench_image.contract.result_sections import Clock, Performance, Window
from tests.builders import make_cpu_result, make_independent, make_result
from tests.builders.judged_fleets import judge_fleet
from trainbench.core.verdicts import Against, Metric, State
from trainbench.judging.node_runs import (
    NodeRuns,
    judged_rate,
    least_sd,
    rates_in_turns,
    run_figure,
    scatter_of_run,
    window_rates,
)


def test_the_temperature_of_a_run_is_that_of_its_hottest_gpu() -> None:
    """60, 80 and 64 degrees: 80, neither the coolest nor the mean of 68."""
    result = make_result("node-1", strategy="ddp", gpus_per_node=3)
    gpus = [
        gpu.model_copy(update={"temperature_mean_c": celsius})
        for gpu, celsius in zip(result.telemetry.gpus, (60.0, 80.0, 64.0), strict=True)
    ]
    telemetry = result.telemetry.model_copy(update={"gpus": tuple(gpus)})
    assert run_figure(result.model_copy(update={"telemetry": telemetry}), Metric.TEMPERATURE_C) == 80.0


def test_a_run_without_a_rate_has_none_to_compare() -> None:
    result = make_result()
    unmeasured = result.model_copy(update={"performance": Performance(clock=result.performance.clock)})
    assert NodeRuns("node-1", None, (unmeasured,)).rates == ()


def test_a_sensor_at_zero_reads_nothing() -> None:
    assert run_figure(make_result(temperature_c=0.0), Metric.TEMPERATURE_C) is None


def test_a_node_is_on_gpu_when_any_of_its_runs_was() -> None:
    gpu, cpu = make_result("node-1"), make_cpu_result("node-1")
    on_gpu = [NodeRuns("node-1", None, runs).on_gpu for runs in ((), (cpu,), (cpu, gpu), (gpu,))]
    assert on_gpu == [False, False, True, True]


def test_the_windows_of_slow_work_show_its_noise() -> None:
    """Half a sample a second is a rate as any other."""
    windows = (0.499, 0.5, 0.501)
    (group,) = judge_fleet([make_result(f"node-{i}", 0.5, windows=windows, timeout_s=3600) for i in (1, 2, 3)]).groups
    assert group.noise_pct is not None
    assert abs(group.noise_pct - 0.2) < 0.01


def on_cpu(node: str, windows: Sequence[Sequence[float]], turns_s: float = 1.0, starts_s: float = 0.0) -> RunResult:
    """A run with these step times, of 8 samples each, whose windows begin a second apart."""
    made = make_cpu_result(node)
    measured = tuple(
        Window(
            started_s=starts_s + number,
            wall_s=sum(steps),
            num_steps=len(steps),
            samples_per_second=8 * len(steps) / sum(steps),
            half_width_pct=0.0,
            steady=True,
        )
        for number, steps in enumerate(windows)
    )
    changed: dict[str, Any] = {
        "performance": made.performance.model_copy(
            update={"windows": measured, "step_times_s": tuple(s for steps in windows for s in steps)}
        ),
        "startup": made.startup.model_copy(update={"turns_s": turns_s}),
    }
    return made.model_copy(update=changed)


def test_a_window_counts_with_its_fast_steps() -> None:
    """Of 0.1, 0.1, 0.1, 0.1 and 0.6 s the lower quartile is 0.1 s: 8 / 0.1 = 80, not 8 * 5 / 1.0 = 40; of 0.1, 0.2 and
    0.3 s it is 0.15 s: 53.33.
    """
    run = on_cpu("node-1", [(0.1, 0.6, 0.1, 0.1, 0.1), (0.3, 0.1, 0.2)])
    assert window_rates(run.performance) == pytest.approx([80, 8 / 0.15])
    assert judged_rate(run) == pytest.approx((80 + 8 / 0.15) / 2)


def test_on_a_gpu_rates_are_those_of_all_steps() -> None:
    run = make_result(samples_per_s=40.0, windows=(38.0, 40.0, 42.0))
    assert run.performance.clock is Clock.WALL
    assert window_rates(run.performance) == tuple(window.samples_per_second for window in run.performance.windows)
    assert judged_rate(run) == run.performance.samples_per_second


def test_windows_without_their_step_times_keep_their_rates() -> None:
    run = on_cpu("node-1", [(0.1, 0.6)])
    unsplit = run.performance.model_copy(update={"step_times_s": (0.1,)})
    assert window_rates(unsplit) == pytest.approx([8 * 2 / 0.7])


def test_independent_ranks_count_with_the_slowest() -> None:
    assert judged_rate(make_independent("node-1", (40.0, 30.0, 41.0))) == pytest.approx(30.0)
    assert judged_rate(make_independent("node-1", (40.0, 30.0))) == pytest.approx(30.0)


def test_without_a_window_there_is_no_rate() -> None:
    run = make_cpu_result("node-1")
    empty = run.performance.model_copy(update={"windows": (), "step_times_s": (), "samples_per_second": None})
    assert judged_rate(run.model_copy(update={"performance": empty})) is None


def test_what_a_turn_did_to_all_is_taken_out() -> None:
    """The second turn halves the rates of all. Rates 80, 40; 80, 40; 40, 20: the turns' medians are 80 and 40, the
    level is 60, and the third node stays at half of the others.
    """
    slow, fast = (0.2, 0.2), (0.1, 0.1)
    runs = [on_cpu("node-1", [fast, slow]), on_cpu("node-2", [fast, slow]), on_cpu("node-3", [slow, (0.4, 0.4)])]
    in_turns = rates_in_turns(runs)
    assert in_turns is not None
    assert [pytest.approx(each) for each in in_turns] == [(60, 60), (60, 60), (30, 30)]


@pytest.mark.parametrize(
    "other",
    [
        on_cpu("node-2", [(0.1, 0.1)] * 2, turns_s=0.0),  # it waited for nobody
        on_cpu("node-2", [(0.1, 0.1)] * 2, starts_s=100.0),  # it began when the other had ended
        on_cpu("node-2", [(0.1, 0.1)] * 3),  # it has other windows
    ],
)
def test_runs_that_took_no_turns_have_no_such_rates(other: RunResult) -> None:
    assert rates_in_turns([on_cpu("node-1", [(0.1, 0.1)] * 2), other]) is None
    assert rates_in_turns([other]) is None


def test_the_median_of_a_run_scatters_less_than_its_blocks() -> None:
    """Blocks of two: medians 1, 2, 4, 8 and 16, and 4 of all. log(16 / 4) / sqrt(5) = log(1.8588)."""
    of_run = scatter_of_run([1.0, 1.0, 2.0, 2.0, 4.0, 4.0, 8.0, 8.0, 16.0, 16.0])
    assert of_run[2] == 4.0
    assert of_run[4] / 4.0 == pytest.approx(1.8588, rel=1e-4)
    assert of_run[0] * of_run[4] == pytest.approx(16.0)
    assert scatter_of_run([1.0, 2.0]) == ()


def test_processes_on_a_cpu_differ_by_more_than_their_windows_show() -> None:
    """Steps of 0.1 s without any scatter, and of 0.108 s: -7.4 %. Five blocks of four runs have 16 degrees of freedom,
    of four nodes none is beyond 3.25 sd in 99 of 100 nights: 3.25 * 0.025 * sqrt(1 + pi / 6) = 0.100, so 9.5 %.
    """
    runs = [on_cpu(f"node-{number}", [(step, step)] * 10) for number, step in enumerate((0.1, 0.1, 0.1, 0.108))]
    (group,) = judge_fleet(runs, params={"samples_per_second_tolerance_pct": 10.0}).groups
    assert {node.state for node in group.nodes} == {State.WELL}
    (against_peers,) = [c for c in group.nodes[3].comparisons if c.against is Against.PEERS]
    assert (against_peers.deviation, against_peers.chance) == (
        pytest.approx(-7.41, abs=0.01),
        pytest.approx(9.5, abs=0.1),
    )
    assert least_sd(make_result()) == 1e-4
