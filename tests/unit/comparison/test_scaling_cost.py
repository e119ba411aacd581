"""Time and money of sizes beside each other, at the borders."""

from __future__ import annotations

import pytest

from bench_image.contract.options import Strategy
from tests.builders import make_failed, make_result
from tests.unit.reporting.test_more_gpus import made
from trainbench.comparison.entries import Entry
from trainbench.comparison.scaling import (
    ScalingPoint,
    comparable_points,
    crossover_cost_samples,
    crossover_time_samples,
    scaling_point,
    scaling_step,
    worth_choosing,
)


def test_a_size_without_a_throughput_is_not_compared() -> None:
    nothing = ScalingPoint(
        entry=Entry(strategy=Strategy.DDP, world_size=2, results=(make_failed(),)), usd_per_gpu_hour=0.6, startup_s=None
    )
    one = made(10.0, 1)
    assert comparable_points([one, nothing]) == (one,)


@pytest.mark.parametrize(("before", "after"), [(0.6, None), (None, 0.6)])
def test_a_difference_in_usd_needs_both_prices(before: float | None, after: float | None) -> None:
    assert scaling_step(made(10.0, 1, usd=before), made(18.0, 2, usd=after), 10_000).extra_usd is None


def test_of_two_sizes_that_cost_the_same_the_faster_is_chosen_alone() -> None:
    """20 samples/s on two GPUs cost exactly what 10 on one do: the slower is no choice."""
    one, two = made(10.0, 1), made(20.0, 2)
    assert worth_choosing([one, two], 10_000) == (two,)


def test_without_prices_a_gpu_second_is_what_is_paid() -> None:
    """1 x (10 + n / 10) = 2 x (30 + n / 25): 50 / (0.1 - 0.08) = 2,500 samples, as with any one price."""
    small, large = made(10.0, 1, startup_s=10.0, usd=None), made(25.0, 2, startup_s=30.0, usd=None)
    assert crossover_cost_samples(small, large) == pytest.approx(2_500.0)


def test_what_saves_nothing_per_sample_never_overtakes() -> None:
    """Equal rates: the difference in start-up stays for ever, and nothing is divided by zero."""
    assert crossover_time_samples(made(10.0, 1, startup_s=10.0), made(10.0, 2, startup_s=30.0)) is None


def test_start_up_is_the_sum_of_its_parts_or_unknown() -> None:
    """The builder's launch, import, build and compile; without one of them nothing is said."""
    whole = make_result()
    parts = whole.startup
    known = [parts.launch_s, parts.import_s, parts.build_s, parts.compile_s]
    assert None not in known
    entry = Entry(strategy=Strategy.SINGLE, world_size=1, results=(whole,))
    assert scaling_point(entry).startup_s == pytest.approx(sum(part or 0.0 for part in known))
    gap = whole.model_copy(update={"startup": parts.model_copy(update={"compile_s": None})})
    unknown = Entry(strategy=Strategy.SINGLE, world_size=1, results=(gap,))
    assert scaling_point(unknown).startup_s is None


def test_each_size_is_paid_at_its_own_price() -> None:
    """$0.6 x (10 + n / 10) = 2 x $0.3 x (30 + n / 18): 12 / (0.06 - 0.0333) = 450 samples."""
    small, large = made(10.0, 1, startup_s=10.0, usd=0.6), made(18.0, 2, startup_s=30.0, usd=0.3)
    assert crossover_cost_samples(small, large) == pytest.approx(450.0)


def test_what_is_cheaper_or_no_faster_has_no_price_of_an_hour_less() -> None:
    cheaper = scaling_step(made(10.0, 1, usd=0.6), made(25.0, 2, usd=0.6), 36_000)
    slower = scaling_step(made(10.0, 1, usd=0.6), made(10.0, 2, usd=0.6), 36_000)
    assert cheaper.extra_usd is not None
    assert cheaper.extra_usd < 0
    assert (cheaper.usd_per_hour_saved, slower.usd_per_hour_saved) == (None, None)


def test_of_equals_in_time_and_cost_the_smaller_is_chosen() -> None:
    one, two = made(10.0, 1, usd=0.6), made(10.0, 2, usd=0.3)
    assert worth_choosing([two, one], 10_000) == (one,)


def test_a_larger_size_that_starts_no_later_pays_from_the_first_sample_on() -> None:
    assert crossover_time_samples(made(10.0, 1, startup_s=30.0), made(20.0, 2, startup_s=30.0)) == 0.0
    assert crossover_cost_samples(made(10.0, 1, startup_s=30.0), made(20.0, 2, startup_s=None)) is None
