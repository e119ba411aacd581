"""One figure for several runs, and its noise: where something was not measured, and at the borders."""

from __future__ import annotations

from typing import Any

import pytest

from bench_image.contract.options import Strategy
from bench_image.contract.result import RunResult
from tests.builders import make_failed, make_result
from trainbench.comparison.entries import (
    Entry,
    apart_pct,
    both_noises_pct,
    entries,
    is_tie,
    level_with,
    tie_sentences,
    work_groups,
    world_sizes,
)


def entry(*runs: RunResult) -> Entry:
    return Entry(strategy=Strategy.SINGLE, world_size=1, results=runs)


def test_a_run_without_a_figure_is_no_throughput_and_no_noise() -> None:
    failed = entry(make_failed())
    assert (failed.tokens_per_s, failed.samples_per_s, failed.memory_gb, failed.noise_pct) == (0.0, 0.0, None, 0.0)


def test_two_entries_without_a_figure_are_not_apart() -> None:
    assert apart_pct(entry(make_failed()), entry(make_failed())) == 0.0
    assert apart_pct(entry(make_failed()), entry(make_result())) == 100.0


def run(rate: float, *, half_width_pct: float = 0.0, **fields: Any) -> RunResult:
    """Equal windows unless given, and a mean step time that is known to `half_width_pct`."""
    result = make_result("node-1", rate, **{"windows": (rate,)} | fields)
    steps = result.performance.step_time
    assert steps is not None
    known = steps.model_copy(update={"half_width_pct": half_width_pct})
    return result.model_copy(update={"performance": result.performance.model_copy(update={"step_time": known})})


def test_figures_are_medians_of_the_runs() -> None:
    """9, 10 and 14 samples/s of 512 tokens; 7, 8 and 12 GB."""
    result = entry(*(run(rate, round=i, memory_gb=gb) for i, (rate, gb) in enumerate(((9, 7), (14, 12), (10, 8)), 1)))
    assert (result.samples_per_s, result.tokens_per_s, result.memory_gb) == (10.0, pytest.approx(5120.0), 8.0)


@pytest.mark.parametrize(
    ("runs", "noise_pct"),
    [
        ([run(9.5), run(10.0, round=2), run(10.5, round=3)], 5.0),  # half the range of the runs: 50 x 1 / 10
        ([run(10.0, windows=(9.0, 10.0, 11.0))], 10.0),  # half the range of one run's windows
        ([run(10.0), run(10.0, round=2, half_width_pct=3.0)], 3.0),  # the mean step time of the run that knows it least
    ],
)
def test_the_noise_is_the_largest_of_three(runs: list[RunResult], noise_pct: float) -> None:
    assert entry(*runs).noise_pct == pytest.approx(noise_pct, rel=1e-2)


def test_how_far_apart_two_are_is_a_share_of_the_faster_in_either_order() -> None:
    """8 of 10: 20 %. Noises of 6 and 8 % are 10 % of the difference; a single run has 5 % at least."""
    fast, slow = entry(run(10.0, half_width_pct=6.0)), entry(run(8.0, half_width_pct=8.0))
    assert (apart_pct(fast, slow), apart_pct(slow, fast)) == (pytest.approx(20.0), pytest.approx(20.0))
    assert both_noises_pct(fast, slow) == pytest.approx(10.0)
    assert entry(run(10.0, half_width_pct=3.0)).noise_pct == 5.0
    assert not is_tie(fast, slow)


def gang(rate: float, strategy: str, gpus: int, **fields: Any) -> RunResult:
    return run(rate, strategy=strategy, gpus_per_node=gpus, half_width_pct=1.0, **fields)


def test_of_one_size_the_fastest_is_first_and_a_tie_is_named() -> None:
    """ddp at 20 and fsdp at 19.8 are 1.0 % apart, within sqrt(2) x 5 %; zero2 at 15 is not."""
    runs = [gang(15.0, "zero2", 2), gang(19.8, "fsdp", 2), gang(20.0, "ddp", 2), gang(36.0, "ddp", 4)]
    (group,) = work_groups(runs)
    result = entries(group, 2)

    assert world_sizes(group) == [2, 4]
    assert [one.strategy.value for one in result] == ["ddp", "fsdp", "zero2"]
    assert [one.strategy.value for one in level_with(result[0], result)] == ["fsdp"]
    assert tie_sentences(result) == ("ddp on 2 GPUs and fsdp are level: 1.0 % apart, within their noise of 7.1 %.",)


def test_a_gang_of_several_nodes_is_named_so_and_holds_all_of_them() -> None:
    both = make_result("node-1", strategy="ddp", nodes=2, gpus_per_node=1, peers=("node-2",))
    result = Entry(strategy=Strategy.DDP, world_size=2, results=(both,))
    assert (result.name, result.num_nodes, result.nodes) == ("ddp on 2 GPUs of 2 nodes", 2, {"node-1", "node-2"})
    assert Entry(strategy=Strategy.SINGLE, world_size=1, results=(make_result(),)).name == "single on 1 GPU"
