from __future__ import annotations

from typing import Any

import pytest

from bench_image.contract.result import RunResult
from bench_image.contract.spec import Drill
from tests.builders import make_cpu_result, make_failed, make_result
from trainbench.comparison.doubts import doubts_between_runs, doubts_of_run
from trainbench.core.verdicts import Level


def with_performance(result: RunResult, **fields: object) -> RunResult:
    return result.model_copy(update={"performance": result.performance.model_copy(update=fields)})


def categories(result: RunResult) -> list[str]:
    return [finding.category for finding in doubts_of_run(result)]


def test_a_good_run_raises_no_doubt() -> None:
    assert doubts_of_run(make_result()) == ()


def test_a_failed_run_is_not_doubted_twice() -> None:
    assert doubts_of_run(make_failed()) == ()


def test_a_drill_is_not_doubted() -> None:
    """It sleeps in each step: its GPU waits and its steps are uneven on purpose."""
    assert doubts_of_run(make_result(drill=Drill(slowdown_pct=75)), min_gpu_use_pct=101) == ()
    assert doubts_of_run(make_result(), min_gpu_use_pct=101) != ()


@pytest.mark.parametrize(
    ("use_pct", "expected"), [(80.0, []), (79.9, ["low_gpu_use"]), (None, ["incomplete_telemetry"])]
)
def test_a_gpu_that_waits_for_its_host_is_information(use_pct: float | None, expected: list[str]) -> None:
    """At least 80 % of the time busy; the least used GPU counts; unknown is not low."""
    result = make_result()
    gpu = result.telemetry.gpus[0].model_copy(update={"utilisation_mean_pct": use_pct})
    gpus = (gpu, gpu.model_copy(update={"utilisation_mean_pct": 99.0}))
    doubts = doubts_of_run(result.model_copy(update={"telemetry": result.telemetry.model_copy(update={"gpus": gpus})}))
    assert [doubt.category for doubt in doubts] == expected
    assert [doubt.measured for doubt in doubts if doubt.level is Level.INFO] == ["79.9 % of the time busy"] * (
        expected == ["low_gpu_use"]
    )


@pytest.mark.parametrize(
    ("use_pct", "limit_pct", "reported"), [(47.0, 45.0, False), (44.9, 45.0, True), (0.0, 0.0, False)]
)
def test_the_limit_of_gpu_use_is_a_setting(use_pct: float, limit_pct: float, reported: bool) -> None:
    """The published guide's job keeps an A10 busy for 45 to 50 % of the time: with 45 that is as expected; 0 is off."""
    result = make_result()
    gpu = result.telemetry.gpus[0].model_copy(update={"utilisation_mean_pct": use_pct})
    result = result.model_copy(update={"telemetry": result.telemetry.model_copy(update={"gpus": (gpu,)})})
    doubts = doubts_of_run(result, min_gpu_use_pct=limit_pct)
    assert [(each.category, each.expected) for each in doubts] == [("low_gpu_use", "at least 45 %")] * reported


@pytest.mark.parametrize(("wall_s", "reported"), [(1.0, True), (0.99, False)])
def test_a_window_shorter_than_a_reading_does_not_show_that_a_gpu_waited(wall_s: float, reported: bool) -> None:
    """A run that measures for 0.2 s: the reading at its end was 0 % on a GPU that computed all the time."""
    result = make_result()
    gpu = result.telemetry.gpus[0].model_copy(update={"utilisation_mean_pct": 0.0})
    first, *others = result.performance.windows
    windows = (first.model_copy(update={"wall_s": wall_s}), *others)
    doubts = doubts_of_run(
        with_performance(result, windows=windows).model_copy(
            update={"telemetry": result.telemetry.model_copy(update={"gpus": (gpu,)})}
        )
    )
    assert [doubt.category for doubt in doubts] == ["low_gpu_use"] * reported


@pytest.mark.parametrize("result", [make_result(), make_cpu_result(step_cv_pct=0.2)])
def test_a_loss_that_does_not_fall_is_only_information(result: RunResult) -> None:
    (doubt,) = doubts_of_run(with_performance(result, first_loss=10.0, last_loss=10.1))
    assert (doubt.category, doubt.level, doubt.measured) == ("loss_not_falling", Level.INFO, "10.000 -> 10.100")


def test_unsteady_windows_are_a_warning_on_a_gpu_and_nothing_on_a_shared_cpu() -> None:
    """CV 5 % over 10 steps: 1.96 * 5 / sqrt(10) = 3.10 % instead of 0.5 %."""
    (doubt,) = doubts_of_run(make_result(step_cv_pct=5.0))
    assert (doubt.category, doubt.level) == ("unsteady_windows", Level.WARNING)
    assert doubt.measured == "3 of 3 windows, worst ± 3.1 %"
    assert doubts_of_run(make_cpu_result(step_cv_pct=5.0)) == ()


def test_little_gain_from_more_gpus_is_a_doubt() -> None:
    """10 samples/s on one GPU, 23.6 on four: 5.9 per GPU are 59 %; 24.0 are 60 %."""
    one = make_result("node-1", 10.0)
    poor, fair = (make_result("node-1", rate, strategy="fsdp", gpus_per_node=4) for rate in (23.6, 24.0))

    (doubt,) = doubts_between_runs([one, poor])
    assert (doubt.category, doubt.measured) == ("low_scaling_efficiency", "59.0 % on 4 GPUs")
    assert doubt.expected == "at least 60 % of the throughput per GPU at 1 GPU"
    assert doubt.summary.endswith("'fsdp' gains little from more GPUs")
    assert doubts_between_runs([one, fair]) == ()
    assert doubts_between_runs([make_result("node-7", 10.0), poor]) == ()  # another machine is no base of a doubt


STATED: dict[str, Any] = {
    "model": "tier-a",
    "recipe": "full",
    "seq_length": 2048,
    "micro_batch_size": 1,
    "gradient_accumulation_steps": 4,
    "strategy": "ddp",
    "gpus_per_node": 2,
    "gpu_name": "NVIDIA A10",
}


@pytest.mark.parametrize(
    ("tokens_per_s", "changes", "doubted"),
    [
        (5_999.0, {}, True),
        (6_000.0, {}, False),
        (11_000.0, {}, False),
        (11_001.0, {}, True),
        (12_000.0, {"gpus_per_node": 4}, False),
        (8_900.0, {"gpus_per_node": 4}, True),
        (19_000.0, {"gpus_per_node": 4}, True),
        (40_000.0, {"gpu_name": "NVIDIA H200"}, False),
        (40_000.0, {"gpus_per_node": 8}, False),
        (40_000.0, {"recipe": "lora"}, False),
        (40_000.0, {"seq_length": 1024}, False),
        (40_000.0, {"gradient_accumulation_steps": 1}, False),
    ],
)
def test_the_published_range_is_for_its_own_work_and_gpu_only(
    tokens_per_s: float, changes: dict[str, Any], doubted: bool
) -> None:
    work = STATED | changes
    run = make_result("node-1", tokens_per_s / work["seq_length"], **work)

    exact = with_performance(run, tokens_per_second=tokens_per_s)
    assert ("throughput_out_of_range" in categories(exact)) == doubted


def test_sharding_that_needs_more_memory_is_information() -> None:
    """zero3 11 GB above ddp 10 GB and fsdp 9 GB; zero2 9.9 GB is in order, and 10.1 GB would be within 2 %."""
    memory = {"ddp": 10.0, "fsdp": 9.0, "zero2": 10.1, "zero3": 11.0}
    runs = [make_result("node-1", memory_gb=gb, strategy=name, gpus_per_node=2) for name, gb in memory.items()]
    (doubt,) = doubts_between_runs(runs)

    assert (doubt.category, doubt.level) == ("memory_order", Level.INFO)
    assert doubt.expected == "zero3 below ddp and zero3 below fsdp"
    assert doubt.measured == "zero3 11.00 GB, ddp 10.00 GB; zero3 11.00 GB, fsdp 9.00 GB"


def test_memory_of_other_work_is_not_compared() -> None:
    ddp = make_result("node-1", memory_gb=5.0, strategy="ddp", gpus_per_node=2, seq_length=128)
    zero3 = make_result("node-1", memory_gb=9.0, strategy="zero3", gpus_per_node=2)

    assert doubts_between_runs([ddp, zero3]) == ()


def test_equal_runs_whose_steps_differ_by_more_than_10_pct() -> None:
    """8 samples a step at 10.0 and 8.9 samples/s: 0.8 and 0.899 s; apart by 0.099 of a median of 0.849 is 11.6 %."""
    fast, slow = make_result("node-1", 10.0), make_result("node-1", 8.9, round=2)
    (doubt,) = doubts_between_runs([fast, slow])

    assert (doubt.category, doubt.measured) == ("unstable_between_runs", "median step times of 2 runs 11.6 % apart")
    assert doubt.subject == slow.spec.identity.run_id
    assert doubts_between_runs([fast, make_result("node-2", 8.9)]) == ()
    assert doubts_between_runs([fast, make_result("node-1", 9.5, round=2)]) == ()


def test_a_cpu_is_too_noisy_for_these_doubts() -> None:
    assert doubts_between_runs([make_cpu_result("node-1", 40.0), make_cpu_result("node-1", 20.0, round=2)]) == ()


@pytest.mark.parametrize(("less_gb", "is_doubted"), [(10.1, False), (10.2, False), (10.25, True)])
def test_memory_that_is_equal_within_2_pct_is_in_order(less_gb: float, is_doubted: bool) -> None:
    """zero2 should need less than ddp's 10 GB; up to 10.2 is the same, more is out of order."""
    runs = [
        make_result("node-1", 10.0, strategy=name, gpus_per_node=2, memory_gb=gb)
        for name, gb in (("zero2", less_gb), ("ddp", 10.0))
    ]
    assert [doubt.category for doubt in doubts_between_runs(runs)] == ["memory_order"] * is_doubted


@pytest.mark.parametrize(
    ("gpus", "samples_per_s", "is_no_faster"), [(2, 9.95, True), (2, 10.0, True), (2, 10.05, False), (4, 10.0, True)]
)
def test_two_gpus_slower_than_one_do_not_pass(gpus: int, samples_per_s: float, is_no_faster: bool) -> None:
    (doubt,) = doubts_between_runs(
        [make_result("node-1", 10.0), make_result("node-1", samples_per_s, strategy="ddp", gpus_per_node=gpus)]
    )
    assert ("is no faster than single on 1 GPU" in doubt.summary) is is_no_faster


def test_a_run_without_steps_or_a_drill_is_not_compared_with_its_equals() -> None:
    """20 % apart: two real runs are a doubt, a drilled one is slow on purpose, one without step times says nothing."""
    slow = make_result("node-1", 8.0, round=2)
    assert [doubt.category for doubt in doubts_between_runs([make_result("node-1", 10.0), slow])] == [
        "unstable_between_runs"
    ]
    drilled = make_result("node-1", 8.0, round=2, drill=Drill(slowdown_pct=20))
    silent = with_performance(slow, step_time=None)
    assert doubts_between_runs([make_result("node-1", 10.0), drilled]) == ()
    assert doubts_between_runs([make_result("node-1", 10.0), silent]) == ()


@pytest.mark.parametrize(("cv_pct", "is_doubted"), [(10.0, False), (10.1, True)])
def test_a_step_time_may_vary_by_exactly_10_pct(cv_pct: float, is_doubted: bool) -> None:
    result = make_result()
    assert result.performance.step_time is not None
    steps = result.performance.step_time.model_copy(update={"cv_pct": cv_pct})
    doubts = doubts_of_run(with_performance(result, step_time=steps))
    assert [(doubt.category, doubt.measured) for doubt in doubts] == [("unstable_step_time", "CV 10.1 %")] * is_doubted


@pytest.mark.parametrize(
    ("reserved", "allocated", "is_doubted"),
    [(95e9, 80e9, False), (95.1e9, 80e9, True), (None, 95.1e9, True), (None, 95e9, False), (None, None, False)],
)
def test_memory_is_nearly_full_above_95_pct_of_the_smallest_gpu(
    reserved: float | None, allocated: float | None, is_doubted: bool
) -> None:
    """GPUs of 100 and 150 GB. What the allocator holds counts; where it is not known, what tensors hold."""
    result = make_result(strategy="ddp", gpus_per_node=2, memory_total_gb=150.0)
    assert result.context is not None
    small = result.context.gpus[0].model_copy(update={"memory_total_bytes": 100_000_000_000})
    context = result.context.model_copy(update={"gpus": (small, result.context.gpus[1])})
    memory = result.memory.model_copy(update={"peak_reserved_bytes": reserved, "peak_allocated_bytes": allocated})
    actual = doubts_of_run(result.model_copy(update={"context": context, "memory": memory}))
    assert [doubt.category for doubt in actual] == ["memory_nearly_full"] * is_doubted
    assert [doubt.expected for doubt in actual] == ["at most 95 % of 100.0 GB"] * is_doubted


def test_a_loss_that_stays_as_it_is_does_not_fall() -> None:
    assert categories(with_performance(make_result(), first_loss=10.0, last_loss=10.0)) == ["loss_not_falling"]
    assert categories(with_performance(make_result(), first_loss=None, last_loss=10.0)) == []


def test_gpus_without_telemetry_are_counted_beside_those_with_gaps() -> None:
    result = make_result(strategy="ddp", gpus_per_node=4)
    gap = result.telemetry.gpus[0].model_copy(update={"power_mean_w": None})
    part = result.model_copy(update={"telemetry": result.telemetry.model_copy(update={"gpus": (gap,)})})
    (doubt,) = doubts_of_run(part)
    assert doubt.measured == "missing: 3 of 4 GPUs, power_mean_w"


@pytest.mark.parametrize(("slow_s", "is_doubted"), [(21.0, False), (21.1, True)])
def test_equal_runs_may_lie_exactly_10_pct_apart(slow_s: float, is_doubted: bool) -> None:
    """Median steps of 19, 20 and 21 s: 2 of the median 20."""
    runs = []
    for round_, median_s in enumerate((19.0, 20.0, slow_s), start=1):
        result = make_result("node-1", 8.0, round=round_)
        assert result.performance.step_time is not None
        steps = result.performance.step_time.model_copy(update={"median_s": median_s})
        runs.append(with_performance(result, step_time=steps))
    actual = doubts_between_runs(runs)
    assert [doubt.subject for doubt in actual] == [runs[2].spec.identity.run_id] * is_doubted


def test_the_worst_of_the_unsteady_windows_is_named_and_steady_ones_are_not_counted() -> None:
    result = make_result()
    widths = ((0.4, True), (0.9, False), (2.5, False))
    windows = tuple(
        window.model_copy(update={"half_width_pct": width, "steady": steady})
        for window, (width, steady) in zip(result.performance.windows, widths, strict=True)
    )
    (doubt,) = doubts_of_run(with_performance(result, windows=windows))
    assert doubt.measured == "2 of 3 windows, worst ± 2.5 %"
