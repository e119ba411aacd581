"""Patterns: from figures alone, on equal work, ties named."""

from __future__ import annotations

from typing import Any

import pytest

from bench_image.contract.options import Strategy
from bench_image.contract.result import RunResult
from tests.builders import make_result
from trainbench.comparison.entries import Entry, entries, is_tie, tie_sentences, work_groups
from trainbench.comparison.scaling import Efficiency, Scaling
from trainbench.comparison.strategy_standings import Pattern, Standing, Traits, traits_of

NAMES = ("ddp", "fsdp", "zero2", "zero3")


def peers(*figures: tuple[float, float], **fields: Any) -> list[Entry]:
    """(samples/s, GB) of ddp, fsdp, zero2, zero3, in this order, on four GPUs."""
    runs = [
        make_result("node-1", rate, memory_gb=gb, strategy=name, gpus_per_node=4, **fields)
        for name, (rate, gb) in zip(NAMES, figures, strict=False)
    ]
    return entries(work_groups(runs)[0], 4)


def scaled(pct: float, gpus: int = 4, noise_pct: float = 0.0, elsewhere: str | None = None) -> Scaling:
    base = Efficiency(pct=pct, base_world_size=1, base_strategy=Strategy.SINGLE, elsewhere=elsewhere)
    return Scaling(efficiency=base, noise_pct=noise_pct, world_size=gpus)


def by_strategy(actual: list[Entry], efficiency: float | None = 100.0, **fields: Any) -> dict[str, Traits]:
    scaling = None if efficiency is None else scaled(efficiency, **fields)
    return {p.strategy.value: own for p, own in zip(actual, traits_of(actual, [scaling] * len(actual)), strict=True)}


def test_the_four_published_patterns() -> None:
    """The published figures as if the work had been equal: 12.2, 9.4, 18.1 and 16.0 K tokens/s, median 14.1;
    13.97, 10.9 (between the two others, as stated), 10.47 and 9.67 GB, median 10.69.
    """
    actual = by_strategy(peers((12.2, 13.97), (9.4, 10.9), (18.1, 10.47), (16.0, 9.67)), efficiency=69.6)

    assert (actual["zero2"].kind, actual["zero2"].throughput, actual["zero2"].memory) == (
        Pattern.FASTEST, Standing.HIGHEST, Standing.MEDIUM,
    )  # fmt: skip
    assert (actual["zero3"].kind, actual["zero3"].memory) == (Pattern.SAVER, Standing.LOW)
    assert actual["fsdp"].kind is Pattern.OVERHEAD
    assert actual["ddp"].memory is Standing.HIGH


def test_a_saver_that_is_slow_pays_with_speed() -> None:
    actual = by_strategy(peers((20.0, 14.0), (19.0, 13.0), (10.0, 6.0)))
    assert (actual["zero2"].kind, actual["zero2"].throughput) == (Pattern.SAVER, Standing.LOW)


@pytest.mark.parametrize(
    ("efficiency", "kind"), [(69.9, Pattern.OVERHEAD), (70.0, Pattern.SLOWER), (None, Pattern.SLOWER)]
)
def test_high_overhead_needs_a_measured_poor_scaling(efficiency: float | None, kind: Pattern) -> None:
    actual = by_strategy(peers((20.0, 10.0), (19.0, 10.0), (10.0, 10.0)), efficiency)
    assert actual["zero2"].kind is kind


def test_ties_within_the_noise_are_named_and_share_the_first_place() -> None:
    """Single runs: 19.2 lies 4.0 % below 20, within 6.8 %; 12 does not."""
    first, second, third, _ = peers((20.0, 10.0), (19.2, 10.0), (12.0, 10.0), (11.0, 12.0))
    actual = by_strategy([first, second, third])

    assert is_tie(first, second)
    assert not is_tie(second, third)
    assert tie_sentences([first, second, third]) == (
        "ddp on 4 GPUs and fsdp are level: 4.0 % apart, within their noise of 6.8 %.",
    )
    assert actual["ddp"].kind is actual["fsdp"].kind is Pattern.SWEET_SPOT


def test_too_few_strategies_or_an_unknown_memory_give_no_pattern() -> None:
    assert traits_of(peers((20.0, 10.0), (19.0, 10.0)), [None, None]) == ()
    unknown: list[RunResult] = [make_result("node-1", memory_gb=None, strategy=n, gpus_per_node=4) for n in NAMES]
    assert traits_of(entries(work_groups(unknown)[0], 4), [None] * 4) == ()


EVEN = ((20.0, 10.0), (15.0, 10.0), (14.9, 10.0), (14.0, 9.9))


def first(**fields: Any) -> Traits:
    return by_strategy(peers(*EVEN), **fields)["ddp"]


def test_a_gang_as_fast_as_one_gpu_is_never_the_first_choice() -> None:
    """25 % of the throughput per GPU on 4 GPUs is that of one; 24 % is less, 26 % with 5 % of noise may be less."""
    for fields in ({"efficiency": 25.0}, {"efficiency": 24.0}, {"efficiency": 26.0, "noise_pct": 5.0}):
        assert first(**fields).kind is Pattern.NO_GAIN


def test_a_gang_that_costs_more_per_sample_than_one_gpu_is_fastest_not_the_first_choice() -> None:
    """96 % on 4 GPUs: 3.84 times the speed; a sample on one GPU takes 4 % less of a GPU."""
    assert first(efficiency=96.0).kind is Pattern.FASTEST


@pytest.mark.parametrize(("efficiency", "noise_pct"), [(100.0, 0.0), (104.0, 0.5), (99.0, 1.0)])
def test_the_first_choice_is_faster_and_within_the_noise_no_dearer(efficiency: float, noise_pct: float) -> None:
    assert first(efficiency=efficiency, noise_pct=noise_pct).kind is Pattern.SWEET_SPOT


def test_a_base_on_another_machine_is_no_reason_for_a_recommendation() -> None:
    """117.7 % against a base on other GPUs compares GPUs, too; neither does 20 % there prove an overhead."""
    fast = first(efficiency=117.7, elsewhere="other GPUs of node-1")
    slow = by_strategy(peers((20.0, 10.0), (19.0, 10.0), (10.0, 10.0)), 20.0, elsewhere="node-7")["zero2"]

    assert fast.kind is Pattern.FASTEST
    assert slow.kind is Pattern.SLOWER


def test_without_a_measured_base_there_is_no_first_choice() -> None:
    assert first(efficiency=None).kind is Pattern.FASTEST


def test_near_the_median_is_within_5_pct_of_it() -> None:
    """Memories of 10.45, 10 and 9.55 GB: 4.5 % off is medium; 10.6 and 9.4 are 6 % off."""
    near = by_strategy(peers((20.0, 10.45), (15.0, 10.0), (10.0, 9.55)))
    far = by_strategy(peers((20.0, 10.6), (15.0, 10.0), (10.0, 9.4)))

    assert {profile.memory for profile in near.values()} == {Standing.MEDIUM}
    assert [profile.memory for profile in far.values()] == [Standing.HIGH, Standing.MEDIUM, Standing.LOW]
