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


def test_two_entries_without_a_figure_are_not_apart() -> None:
    assert apart_pct(entry(make_failed()), entry(make_failed())) == 0.0
    assert apart_pct(entry(make_failed()), entry(make_result())) == 100.0


def run(rate: float, **fields: Any) -> RunResult:
    """Equal windows unless given."""
    return make_result("node-1", rate, **{"windows": (rate,)} | fields)


def test_how_far_apart_two_are_is_a_share_of_the_faster_in_either_order() -> None:
    """8 of 10: 20 %. Of two single runs chance explains 1 - e^-(sqrt(2) x 0.04962) = 6.8 %."""
    fast, slow = entry(run(10.0)), entry(run(8.0))
    assert (apart_pct(fast, slow), apart_pct(slow, fast)) == (pytest.approx(20.0), pytest.approx(20.0))
    assert both_noises_pct(fast, slow) == pytest.approx(6.78, abs=0.01)
    assert not is_tie(fast, slow)
    assert is_tie(fast, entry(run(9.33)))
    assert not is_tie(fast, entry(run(9.31)))


def gang(rate: float, strategy: str, gpus: int, **fields: Any) -> RunResult:
    return run(rate, strategy=strategy, gpus_per_node=gpus, **fields)


def test_of_one_size_the_fastest_is_first_and_a_tie_is_named() -> None:
    """ddp at 20 and fsdp at 19.8 are 1.0 % apart, within 6.8 %; zero2 at 15 is not."""
    runs = [gang(15.0, "zero2", 2), gang(19.8, "fsdp", 2), gang(20.0, "ddp", 2), gang(36.0, "ddp", 4)]
    (group,) = work_groups(runs)
    result = entries(group, 2)

    assert world_sizes(group) == [2, 4]
    assert [one.strategy.value for one in result] == ["ddp", "fsdp", "zero2"]
    assert [one.strategy.value for one in level_with(result[0], result)] == ["fsdp"]
    assert tie_sentences(result) == ("ddp on 2 GPUs and fsdp are level: 1.0 % apart, within their noise of 6.8 %.",)


def test_a_gang_of_several_nodes_is_named_so_and_holds_all_of_them() -> None:
    both = make_result("node-1", strategy="ddp", nodes=2, gpus_per_node=1, peers=("node-2",))
    result = Entry(strategy=Strategy.DDP, world_size=2, results=(both,))
    assert (result.name, result.num_nodes, result.nodes) == ("ddp on 2 GPUs of 2 nodes", 2, {"node-1", "node-2"})
    assert Entry(strategy=Strategy.SINGLE, world_size=1, results=(make_result(),)).name == "single on 1 GPU"
