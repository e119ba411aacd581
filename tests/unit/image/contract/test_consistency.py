"""A run's rate is what its windows say."""

from __future__ import annotations

from typing import Any

import pytest

from bench_image.contract.consistency import contradictions, sum_of
from bench_image.contract.parse import parse_result
from bench_image.contract.result_sections import Clock, Performance, Window
from tests.builders import make_result, spoilt
from tests.unit.image.contract.documents import put, refusal, result_document


def performance(rate: float = 8.0, **fields: Any) -> Performance:
    """Two windows of 10 steps of 8 samples, 8 and 12 s long: 160 samples in 20 s are 8 samples/s."""
    windows = [
        Window(started_s=30, wall_s=wall_s, num_steps=10, samples_per_second=80 / wall_s, half_width_pct=1, steady=True)
        for wall_s in (8.0, 12.0)
    ]
    known: dict[str, Any] = {"measured_steps": 20, "measured_wall_s": 20.0, "windows": windows}
    return Performance(samples_per_second=rate, **known | fields)


@pytest.mark.parametrize("rate", [8.0, 8.07, 7.93])
def test_a_rate_within_one_percent_of_its_windows_agrees(rate: float) -> None:
    assert list(contradictions(performance(rate), 8)) == []


@pytest.mark.parametrize("rate", [8.09, 7.91])
def test_a_rate_beyond_one_percent_of_its_windows_contradicts_them(rate: float) -> None:
    assert list(contradictions(performance(rate), 8)) == [
        f"performance.samples_per_second is {rate:g}, its windows did 160 samples in 20 s: 8/s; they may differ by 1 %"
    ]


def test_the_rate_of_a_cpu_agrees_with_the_cpu_time_of_its_steps() -> None:
    """Windows of 8 and 12 s, of which the process had the CPU for 4 and 6 s: 160 samples in 10 s are 16 samples/s."""
    windows = tuple(
        window.model_copy(update={"samples_per_second": 2 * window.samples_per_second})
        for window in performance().windows
    )
    on_cpu = {"clock": Clock.PROCESS_CPU, "windows": windows, "step_times_s": (0.4,) * 10 + (0.6,) * 10}

    assert list(contradictions(performance(16.0, **on_cpu), 8)) == []
    assert list(contradictions(performance(8.0, **on_cpu), 8)) == [
        "performance.samples_per_second is 8, its windows did 160 samples in 10 s: 16/s; they may differ by 1 %"
    ]
    assert list(contradictions(performance(16.0, **on_cpu | {"step_times_s": (0.4,) * 10}), 8)) == [
        "performance.step_times_s holds 10 steps, its windows have 20"
    ]


def test_each_contradiction_names_its_field() -> None:
    sentences = list(contradictions(performance(measured_steps=21, measured_wall_s=25.0), 9))

    assert [sentence.split(" ")[0] for sentence in sentences] == [
        "performance.measured_steps",
        "performance.measured_wall_s",
        "performance.windows.0.samples_per_second",
        "performance.windows.1.samples_per_second",
    ]
    assert sentences[2].endswith("is 10, but 10 steps of 9 samples in 8 s are 11.25/s")


def test_where_nothing_was_measured_nothing_contradicts() -> None:
    nothing = performance(windows=(), measured_steps=0, measured_wall_s=None)

    assert list(contradictions(nothing.model_copy(update={"samples_per_second": None}), 8)) == []
    assert list(contradictions(performance(), None)) == []


def test_a_result_whose_rate_its_windows_contradict_is_refused() -> None:
    document = result_document()
    document["performance"] |= {"samples_per_second": 19.0, "tokens_per_second": 9728.0}

    assert "performance.samples_per_second is 19, its windows did 240 samples in" in refusal(document)


@pytest.mark.parametrize(
    ("path", "value", "sentence"),
    [
        (("startup", "total_s"), 1e7, "startup.total_s is 1e+07 s, but the run took 55 s from started_at"),
        (("startup", "measure_s"), 300.0, "startup.measure_s is 300 s, but the run took 55 s from started_at"),
        (("finished_at",), "2026-11-21T02:00:20Z", "startup.total_s is 55 s, but the run took 20 s"),
        (("performance", "windows", 0, "started_s"), 1800.0, "windows.0 ends 1808.43 s after the run began"),
        (("performance", "tokens_per_second"), 5e3, "tokens_per_second is 5000, but 9.5 samples/s have 512"),
        (("performance", "hfu_pct"), 30.0, "performance.mfu_pct is 38, above hfu_pct, which is 30"),
        (("parameters", "trainable"), 8_000_000_000, "parameters.trainable is 8e+09, above total, which is 7.26"),
        (("memory", "peak_reserved_bytes"), 7 * 10**9, "memory.peak_allocated_bytes is 7.1e+09, above peak_res"),
        (("ranks", 0, "peak_allocated_bytes"), 8 * 10**9, "memory.peak_allocated_bytes is 7100000000, but rank 0 has"),
        (("performance", "step_time", "mean_s"), 0.86, "step_time.mean_s is 0.86, that of step_times_s is 0.842105"),
        (("performance", "step_time", "max_s"), 1.0, "step_time.max_s is 1, that of step_times_s is 0.884211"),
        (("telemetry", "gpus", 0, "sm_clock_min_mhz"), 1980.0, "sm_clock_min_mhz is 1980, above sm_clock_mean_mhz"),
        (("telemetry", "gpus", 0, "temperature_max_c"), 41.0, "temperature_mean_c is 60, above temperature_max_c"),
        (("performance", "step_time", "min_s"), 50.0, "performance.step_time.min_s is 50, above p5_s"),
        (("performance", "step_time", "mean_s"), 50.0, "performance.step_time.mean_s is 50, above max_s"),
        (("performance", "step_times_s"), [0.8, 0.8421, 0.8842], "step_times_s holds 3 steps, its windows have 30"),
        (("performance", "windows"), [], "performance.samples_per_second is 9.5, of no window"),
        (("memory", "peak_reserved_bytes"), 10**15, "memory.peak_reserved_bytes is 1e+06 GB, but the largest GPU"),
        (("communication", "total_pct"), 3.0, "communication.exposed_pct is 4, above total_pct, which is 3"),
        (("context", "node"), "node-2", "context.node is 'node-2', but the run was planned for node-1"),
        (("ranks", 0, "status"), "oom", "status is 'ok', but ranks.0.status is 'oom'"),
    ],
)
def test_figures_that_exclude_each_other_are_refused_by_name(path: tuple[Any, ...], value: Any, sentence: str) -> None:
    document = make_result(exposed_communication_pct=4.0, step_cv_pct=5.0).model_dump(mode="json")

    assert sentence in refusal(put(document, path, value))


def test_windows_that_together_take_longer_than_their_run_are_refused() -> None:
    """Three of 8.42 s each, which all say that they began with the run: 25.26 s of a run of 20 s."""
    document = make_result().model_dump(mode="json")
    document["finished_at"] = "2026-11-21T02:00:20Z"
    document["startup"]["total_s"] = document["startup"]["measure_s"] = 20.0
    for window in document["performance"]["windows"]:
        window["started_s"] = 0.0

    assert "performance.windows.2 ends 25.2632 s after the run began, which took 20 s" in refusal(document)


def test_a_run_that_nobody_ended_may_take_longer_than_its_limit() -> None:
    long = make_result().model_dump(mode="json")
    long["spec"]["timeout_s"], long["finished_at"] = 5.0, "2026-12-31T00:00:00Z"
    assert refusal(long) == ""


def test_a_failed_gang_has_the_memory_of_one_pod_and_the_ranks_of_all() -> None:
    gang = spoilt(make_result())
    larger = tuple(rank.model_copy(update={"peak_allocated_bytes": 8 * 10**9}) for rank in gang.ranks)
    assert parse_result(gang.model_copy(update={"ranks": larger}).model_dump_json()).ranks == larger


@pytest.mark.parametrize("where", ["context", "telemetry"])
def test_more_gpus_than_were_planned_are_refused(where: str) -> None:
    document = make_result().model_dump(mode="json")
    document[where]["gpus"] *= 64

    assert f"{where}.gpus has 64, of a run that was planned with 1" in refusal(document)


def test_ranks_that_slow_down_at_different_times_contradict_nothing() -> None:
    """80 samples a window: 8 then 12 s, and 12 then 8 s, are 8/s each. Added up window by window over the first one's
    seconds they would be (16.67 * 8 + 16.67 * 12) / 20 = 16.67/s: their sum is 16/s.
    """
    one = performance()
    other = one.model_copy(update={"windows": one.windows[::-1]})
    both = one.model_copy(update={"samples_per_second": 16.0})

    assert list(sum_of(both, (one, other))) == []
    assert list(sum_of(both.model_copy(update={"samples_per_second": 16.7}), (one, other))) == [
        "performance.samples_per_second is 16.7, its ranks add up to 16; they may differ by 1 %"
    ]


def test_a_sum_of_ranks_with_fewer_windows_is_not_compared() -> None:
    one = performance()

    assert list(sum_of(one, (one, one.model_copy(update={"windows": one.windows[:1]})))) == []
    assert list(sum_of(one, ())) == []
