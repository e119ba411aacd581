"""The figures of a run that count."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from bench_image.contract.result import RunResult, Status
from bench_image.contract.result_sections import Clock, Performance, Window
from tests.builders import STARTED_AT, make_cpu_result, make_failed, make_independent, make_result
from tests.builders.judged_fleets import by_name, judge_fleet
from trainbench.core.verdicts import Against, GroupVerdict, Metric, NodeVerdict, State, Why
from trainbench.judging.node_runs import (
    GpuPlace,
    NodeRuns,
    by_gpu,
    judged_rate,
    least_sd,
    rates_in_turns,
    run_figure,
    scatter_of_run,
    window_rates,
)
from trainbench.judging.past import records_of
from trainbench.results.readings import shared_by


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


def test_a_run_of_one_window_scatters_as_its_steps() -> None:
    """ln 0.08, 0.1, 0.1, 0.1 and 0.125 lie 0.223, 0, 0, 0 and -0.223 from their mean: sqrt(2 * 0.0498 / 4) = 0.158. By
    that noise nobody is blamed for 17 %.
    """
    steps = (0.08, 0.1, 0.1, 0.1, 0.125)
    runs = [on_cpu(f"node-{i}", [steps]) for i in (1, 2, 3)] + [on_cpu("node-4", [[1.2 * step for step in steps]])]
    (group,) = judge_fleet(runs).groups
    assert group.noise_pct == pytest.approx(15.78, abs=0.01)
    assert {verdict.state for verdict in group.nodes} == {State.NOT_CHECKED}


def test_independent_ranks_count_with_the_slowest() -> None:
    assert judged_rate(make_independent("node-1", (40.0, 30.0, 41.0))) == pytest.approx(30.0)
    assert judged_rate(make_independent("node-1", (40.0, 30.0))) == pytest.approx(30.0)


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


GOOD = (10.0, 10.01, 9.99, 10.0)
SLOW_2 = (10.0, 10.01, 9.0, 10.0)


def fleet(*of_nodes: tuple[float, ...]) -> list[RunResult]:
    return [make_independent(f"node-{i}", rates) for i, rates in enumerate(of_nodes, 1)]


def judged(results: list[RunResult], *reruns: RunResult) -> GroupVerdict:
    (group,) = judge_fleet(results, reruns).groups
    return group


def whys(node: NodeVerdict) -> list[Why]:
    return [gpu.why for gpu in node.gpus]


class TestSplit:
    def test_each_gpu_gets_its_own_figures_and_those_of_its_host(self) -> None:
        result = make_independent("node-1", (10.0, 9.0), temperatures={1: 71.0}, num_other_processes=1)
        first, second = by_gpu(result).items()
        assert (first[0], second[0]) == (GpuPlace(0, "GPU-node-1-0"), GpuPlace(1, "GPU-node-1-1"))
        run = second[1]
        assert run.performance.samples_per_second == 9.0
        assert [gpu.temperature_mean_c for gpu in run.telemetry.gpus] == [71.0]
        assert run.context
        assert [gpu.uuid for gpu in run.context.gpus] == ["GPU-node-1-1"]
        assert run.memory.peak_during_training == pytest.approx(7.1)
        assert (run.status, run.spec.placement.gpus_per_node, len(run.ranks)) == (Status.OK, 1, 1)
        assert run.telemetry.host == result.telemetry.host
        shared = shared_by(run)
        assert shared
        assert shared.sentence == "1 other process on GPU 1"

    def test_a_rank_is_the_gpu_that_it_names_whatever_its_number(self) -> None:
        result = make_independent("node-1", (10.0, 9.0))
        first, second = result.ranks
        crossed = (
            first.model_copy(update={"gpu_uuid": second.gpu_uuid}),
            second.model_copy(update={"gpu_uuid": first.gpu_uuid}),
        )
        runs = by_gpu(result.model_copy(update={"ranks": crossed}))
        assert {place: run.performance.samples_per_second for place, run in runs.items()} == {
            GpuPlace(0, "GPU-node-1-0"): 9.0,
            GpuPlace(1, "GPU-node-1-1"): 10.0,
        }

    def test_a_rank_that_failed_is_a_failed_run_of_its_gpu_alone(self) -> None:
        runs = list(by_gpu(make_independent("node-1", (10.0, 9.0, 10.0), failed={1: "CUDA error: ECC"})).values())
        assert [run.status for run in runs] == [Status.OK, Status.ERROR, Status.OK]
        assert runs[1].error
        assert runs[1].error.message == "CUDA error: ECC"
        assert runs[0].error is None

    def test_a_gpu_whose_rank_never_reported_is_a_failed_run(self) -> None:
        result = make_independent("node-1", (10.0, 9.0, 10.0), failed={1: "killed by SIGSEGV"})
        result = result.model_copy(update={"ranks": (result.ranks[0], result.ranks[2])})
        runs = by_gpu(result)
        lost = runs[GpuPlace(1, "GPU-node-1-1")]
        assert list(runs) == [GpuPlace(i, f"GPU-node-1-{i}") for i in range(3)]
        assert lost.status is Status.ERROR
        assert lost.error
        assert "killed by SIGSEGV" in lost.error.message
        assert (lost.performance.samples_per_second, lost.performance.measured_steps) == (None, 0)

    def test_two_ranks_that_failed_do_not_get_each_other_s_cause(self) -> None:
        """The run has one error, of rank 1: rank 2 ended for a reason of its own, which its log says."""
        failed = {1: "CUDA error: ECC", 2: "out of memory"}
        runs = list(by_gpu(make_independent("node-1", (10.0, 9.0, 10.0), failed=failed)).values())
        assert [run.error.message if run.error else None for run in runs] == [
            None,
            "CUDA error: ECC",
            "rank 2 ended as error: see the pod's log",
        ]

    def test_one_gpu_and_other_strategies_are_not_split(self) -> None:
        alone = make_independent("node-1", (10.0,))
        for whole in (alone, make_result("node-1"), make_result("node-1", strategy="ddp", gpus_per_node=4)):
            assert by_gpu(whole) == {}
        assert [node.gpus for node in judged([alone, make_independent("node-2", (10.0,))]).nodes] == [(), ()]


class TestVerdict:
    def test_one_slow_gpu_of_sixteen_makes_its_node_red_and_is_named(self) -> None:
        """Its reference is the median of the other nodes' medians, 10: -10 %."""
        nodes = by_name(judged(fleet(GOOD, SLOW_2, GOOD, GOOD)))
        bad = nodes.pop("node-2")
        assert {node.state for node in nodes.values()} == {State.WELL}
        assert (bad.state, bad.is_confirmed) == (State.RED, False)
        assert whys(bad) == [Why.WELL, Why.WELL, Why.SLOW, Why.WELL]
        assert bad.reason.startswith("GPU 2 (GPU-node-2-2): samples/s −10.0 %")
        assert (bad.samples_per_second, bad.deviation(Metric.SAMPLES_PER_SECOND)) == (9.0, pytest.approx(-10.0))
        assert [(gpu.index, gpu.uuid) for gpu in bad.gpus] == [(i, f"GPU-node-2-{i}") for i in range(4)]

    def test_a_lone_node_is_judged_by_itself(self) -> None:
        (node,) = judged(fleet(SLOW_2)).nodes
        assert whys(node) == [Why.WELL, Why.WELL, Why.SLOW, Why.WELL]
        assert node.why is Why.SLOW
        (node,) = judged(fleet((10.0, 9.0))).nodes
        assert whys(node) == [Why.PAIR] * 2
        assert "its only peer GPU 0" in node.gpus[1].reason

    def test_one_unsteady_gpu_leaves_its_neighbours_judged(self) -> None:
        results = fleet(GOOD, GOOD, GOOD)
        results[0] = make_independent("node-1", GOOD, windows={3: (10.0, 5.0, 10.0)})
        node = by_name(judged(results))["node-1"]
        assert whys(node) == [Why.WELL, Why.WELL, Why.WELL, Why.UNSTEADY]
        assert node.why is Why.UNSTEADY
        assert node.reason.startswith("GPU 3 (GPU-node-1-3): its figures scatter by ")

    def test_a_failed_rank_fails_the_node_by_name_and_its_neighbours_are_judged(self) -> None:
        results = fleet(GOOD, GOOD, GOOD)
        results[1] = make_independent("node-2", GOOD, failed={1: "CUDA error: uncorrectable ECC"})
        nodes = by_name(judged(results))
        assert whys(nodes["node-2"]) == [Why.WELL, Why.FAILED, Why.WELL, Why.WELL]
        assert nodes["node-2"].why is Why.FAILED
        assert nodes["node-2"].reason == "GPU 1 (GPU-node-2-1): round 1 error: CUDA error: uncorrectable ECC"
        assert {nodes[name].state for name in ("node-1", "node-3")} == {State.WELL}

    def test_a_slow_neighbour_of_a_failed_gpu_is_still_re_run(self) -> None:
        results = fleet(GOOD, SLOW_2, GOOD, GOOD)
        results[1] = make_independent("node-2", SLOW_2, failed={0: "CUDA error"})
        assert judge_fleet(results).suspects == ("node-2",)

    def test_a_pod_that_failed_fails_its_node_though_another_round_measured(self) -> None:
        results = fleet(GOOD, GOOD, GOOD)
        results.append(make_failed("node-2", round=2, strategy="independent", gpus_per_node=4, message="no image"))
        nodes = by_name(judged(results))
        assert nodes["node-2"].why is Why.FAILED
        assert "no image" in nodes["node-2"].reason
        assert whys(nodes["node-2"]) == [Why.WELL] * 4


class TestReRun:
    def reruns(self, rates: tuple[float, ...], **fields: Any) -> list[RunResult]:
        return [
            make_independent(
                node, rates if node == "node-2" else GOOD, round=round_, **fields if node == "node-2" else {}
            )
            for round_ in (2, 3)
            for node in ("node-1", "node-2", "node-3")
        ]

    @pytest.mark.parametrize(
        ("rates", "fields", "is_confirmed"),
        [
            ((10.0, 10.0, 9.1, 10.0), {}, True),
            ((9.0, 10.0, 10.0, 10.0), {}, False),  # another GPU is slow
            ((10.0, 10.0, 9.1, 10.0), {"failed": {0: "CUDA error"}}, True),  # a neighbour fails
        ],
    )
    def test_the_gpu_s_own_part_of_the_re_run_decides(
        self, rates: tuple[float, ...], fields: dict[str, Any], is_confirmed: bool
    ) -> None:
        node = by_name(judged(fleet(GOOD, SLOW_2, GOOD, GOOD), *self.reruns(rates, **fields)))["node-2"]
        assert (node.is_confirmed, node.is_red) == (is_confirmed, is_confirmed)


def test_a_node_s_rate_is_that_of_its_slowest_gpu_and_not_the_sum_also_in_its_past() -> None:
    result = make_independent("node-1", SLOW_2)
    (record,) = records_of([result], STARTED_AT)
    assert judged_rate(result) == record.samples_per_second == 9.0
    assert result.performance.samples_per_second == pytest.approx(39.01)
    assert judged_rate(make_result("node-1", 9.5)) == 9.5
