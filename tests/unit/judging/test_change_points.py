"""Levels and drifts of a series; the simulations are the figures that the module's text quotes."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence

import pytest

from bench_control.judging.change_points import Drift, Step, change

LIMIT_PCT, MADS = 1.5, 4.0


def found(values: Sequence[float]) -> Step | Drift | None:
    return change(range(len(values)), values, LIMIT_PCT, MADS)


def noisy(levels: Sequence[float], sd_pct: float, rng: random.Random) -> list[float]:
    return [level * (1 + rng.gauss(0, sd_pct / 100)) for level in levels]


def test_a_step_is_found_where_it_is_with_the_medians_of_both_levels() -> None:
    """9.4 / 10 - 1 = -6 %."""
    step = found([10.0, 10.01, 9.99, 10.0, 9.4, 9.41, 9.39])
    assert step == Step(at=4, before=10.0, after=9.4, num_before=4)
    assert isinstance(step, Step)
    assert step.change_pct == pytest.approx(-6.0)


@pytest.mark.parametrize(
    ("values", "why"),
    [
        ([], "no value"),
        ([10.0] * 5, "too few for two levels of three"),
        ([10.0] * 30, "nothing changes"),
        ([10.0] * 10 + [9.86] * 10, "1.4 % is within the limit"),
        ([10.0] * 10 + [9.0] + [10.0] * 10, "one bad night"),
        ([10.0] * 10 + [9.0] * 2, "two nights: the third will tell"),
        ([9.0, 11.0] * 10, "noise of 10 %"),
    ],
)
def test_what_is_no_change(values: list[float], why: str) -> None:
    assert found(values) is None, why


def test_the_last_of_several_steps_is_told_against_the_level_before_it() -> None:
    assert found([10.0] * 8 + [9.0] * 8 + [10.0] * 4) == Step(at=16, before=9.0, after=10.0, num_before=8)
    assert found([10.0] * 8 + [9.5] * 8 + [9.0] * 8) == Step(at=16, before=9.5, after=9.0, num_before=8)


def test_a_ramp_is_a_drift_and_no_step() -> None:
    """From 10 down to 9.5 in 30 nights: 9.5 / 10 - 1 = -5 %."""
    drift = found([10 - 0.5 * i / 29 for i in range(30)])
    assert isinstance(drift, Drift)
    assert drift.change_pct == pytest.approx(-5.0)


def test_equal_series_hardly_ever_seem_to_change() -> None:
    rng = random.Random(1)
    for sd_pct, most in ((0.3, 0), (1.0, 2), (10.0, 3)):
        for nights in (6, 10, 15):
            told = [found(noisy([10.0] * nights, sd_pct, rng)) for _ in range(200)]
            assert sum(change is not None for change in told) <= most, (sd_pct, nights)


@pytest.mark.parametrize(("slower_pct", "least"), [(6.0, 100), (2.0, 70)])
def test_a_step_is_found_on_its_third_night(slower_pct: float, least: int) -> None:
    rng = random.Random(2)
    levels = [10.0] * 20 + [10.0 * (1 - slower_pct / 100)] * 3
    told = [found(noisy(levels, 0.3, rng)) for _ in range(100)]
    places = Counter(step.at for step in told if isinstance(step, Step))
    assert places[20] >= least
