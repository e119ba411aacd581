"""One figure for several runs, and its noise: where something was not measured, and at the borders."""

from __future__ import annotations

from bench_control.comparing.entries import Entry, apart_pct
from bench_image.contract import RunResult, Strategy
from tests.builders import make_failed, make_result


def entry(*runs: RunResult) -> Entry:
    return Entry(strategy=Strategy.SINGLE, world_size=1, results=runs)


def test_a_run_without_a_figure_is_no_throughput_and_no_noise() -> None:
    failed = entry(make_failed())
    assert (failed.tokens_per_s, failed.samples_per_s, failed.memory_gb, failed.noise_pct) == (0.0, 0.0, None, 0.0)


def test_two_entries_without_a_figure_are_not_apart() -> None:
    assert apart_pct(entry(make_failed()), entry(make_failed())) == 0.0
    assert apart_pct(entry(make_failed()), entry(make_result())) == 100.0
