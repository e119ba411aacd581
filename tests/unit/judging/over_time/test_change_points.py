"""Levels and drifts of a series; the simulations are the figures that the module's text quotes."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence

import pytest

from trainbench.judging.over_time.change_points import Drift, LevelStep, _line, last_change, step_at

LIMIT_PCT, MADS = 1.5, 4.0


def actual(values: Sequence[float]) -> LevelStep | Drift | None:
    return last_change(range(len(values)), values, LIMIT_PCT, MADS)


def noisy(levels: Sequence[float], sd_pct: float, rng: random.Random) -> list[float]:
    return [level * (1 + rng.gauss(0, sd_pct / 100)) for level in levels]


def test_a_step_is_found_where_it_is_with_the_medians_of_both_levels() -> None:
    """9.4 / 10 - 1 = -6 %."""
    step = actual([10.0, 10.01, 9.99, 10.0, 9.4, 9.41, 9.39])
    assert isinstance(step, LevelStep)
    assert step[:4] == (4, 10.0, 9.4, 4)
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
    assert actual(values) is None, why


def test_the_last_of_several_steps_is_measured_from_the_level_before_it() -> None:
    assert actual([10.0] * 8 + [9.0] * 8 + [10.0] * 4) == LevelStep(
        16, before=9.0, after=10.0, num_before=8, limit_pct=1.5
    )
    assert actual([10.0] * 8 + [9.5] * 8 + [9.0] * 8) == LevelStep(
        16, before=9.5, after=9.0, num_before=8, limit_pct=1.5
    )


def test_three_nights_that_noise_may_make_are_no_change_however_long_the_series() -> None:
    """197 nights at 10 +- 0.1 by turns, then three at 9.32. Scale: 1.4826 x 0.2 / sqrt(2) = 0.2097, so a cut costs
    2 x 0.2097 x ln 200 = 2.22; it saves 3 x 0.68 = 2.04 less what the turns leave. At half the price it would be made.
    """
    turns = [10 + 0.1 * (-1) ** night for night in range(197)]
    assert actual([*turns, 9.32, 9.32, 9.32]) is None
    assert isinstance(actual([*turns, 9.2, 9.2, 9.2]), LevelStep)


def test_a_ramp_is_a_drift_and_no_step() -> None:
    """From 10 down to 9.5 in 30 nights: 9.5 / 10 - 1 = -5 %."""
    drift = actual([10 - 0.5 * i / 29 for i in range(30)])
    assert isinstance(drift, Drift)
    assert drift.change_pct == pytest.approx(-5.0)


def test_equal_series_hardly_ever_seem_to_change() -> None:
    rng = random.Random(1)
    for sd_pct, most in ((0.3, 0), (1.0, 2), (10.0, 3)):
        for nights in (6, 10, 15):
            detected = [actual(noisy([10.0] * nights, sd_pct, rng)) for _ in range(200)]
            assert sum(change is not None for change in detected) <= most, (sd_pct, nights)


@pytest.mark.parametrize(("slower_pct", "least"), [(6.0, 100), (2.0, 70)])
def test_a_step_is_found_on_its_third_night(slower_pct: float, least: int) -> None:
    rng = random.Random(2)
    levels = [10.0] * 20 + [10.0 * (1 - slower_pct / 100)] * 3
    detected = [actual(noisy(levels, 0.3, rng)) for _ in range(100)]
    places = Counter(step.at for step in detected if isinstance(step, LevelStep))
    assert places[20] >= least


@pytest.mark.parametrize(
    ("values", "at", "change_pct"),
    [
        # The first night of the change lies nearer the old level, and is the best estimate of its date.
        ([10.01, 9.99, 10.0, 10.02, 9.98, 10.0, 10.01, 9.85, 9.46, 9.47], 7, -5.4),
        ([10.0, 9.99, 10.01, 10.0, 10.02, 9.99, 10.01, 10.28, 11.06, 11.05], 7, 10.5),
        ([10.01, 10.0, 10.0, 10.02, 9.99, 9.99, 10.01, 9.88, 9.72, 9.71], 7, -2.8),
        # It is the old level's, and the change begins with the next.
        ([10.0, 10.01, 9.99, 10.0, 10.02, 9.98, 9.46, 9.47, 9.45, 9.46], 6, -5.4),
        # A cut that was taken out again, between 9.94 and 9.78, had drawn the last cut to it.
        ([10.03, 10.07, 10.07, 9.94, 9.78, 9.77, 9.6, 9.63, 9.65, 9.61], 4, -4.1),
    ],
)
def test_a_change_whose_first_night_lies_nearer_the_old_level_is_dated(
    values: list[float], at: int, change_pct: float
) -> None:
    step = actual(values)
    assert isinstance(step, LevelStep)
    assert step.at == at
    assert step.change_pct == pytest.approx(change_pct, abs=0.2)


def test_two_bad_nights_are_no_change_because_the_night_before_is_counted_in() -> None:
    """Of 300 series each: chance lifts the last good night away from its level in few."""
    rng = random.Random(3)
    for sd_pct in (0.1, 0.3, 1.0):
        detected = [actual(noisy([10.0] * 12 + [9.0] * 2, sd_pct, rng)) for _ in range(300)]
        assert sum(change is not None for change in detected) <= 3, sd_pct


def test_a_step_at_a_known_place_needs_one_value_after_it() -> None:
    """8 / 10 - 1 = -20 %. 1.4 % is within the limit of 1.5 %."""
    step = step_at([10.0, 10.01, 9.99, 10.0, 10.0, 8.0], 5, LIMIT_PCT, MADS)
    assert step == LevelStep(at=5, before=10.0, after=8.0, num_before=5, limit_pct=1.5)
    assert step_at([10.0, 10.01, 9.99, 10.0, 10.0, 9.86], 5, LIMIT_PCT, MADS) is None


def test_few_values_widen_the_limit_by_hand() -> None:
    """Medians 10 and 8. Of the six distances from them, two are the medians' own; the median of the others is 0.1.
    Noise (1 + 6 / 6) x 1.4826 x 0.1 = 0.29652, limit 4 x 0.29652 = 1.18608, which is 11.8608 % of 10.
    """
    step = step_at([10.1, 9.9, 10.0, 10.1, 9.9, 8.0], 5, LIMIT_PCT, MADS)
    assert step
    assert step.limit_pct == pytest.approx(11.8608)


def test_a_step_at_a_known_place_is_hardly_ever_found_by_chance() -> None:
    rng = random.Random(4)
    for sd_pct in (0.3, 1.0, 10.0):
        for nights in (6, 10, 20):
            detected = [step_at(noisy([10.0] * nights, sd_pct, rng), nights - 1, LIMIT_PCT, MADS) for _ in range(300)]
            assert sum(step is not None for step in detected) <= 3, (sd_pct, nights)


def test_no_unit_of_the_figures_makes_a_change() -> None:
    """A hundredth of the ramp, of the steps and of the noise is the same drift, step and none."""
    ramp = [10 - 0.5 * i / 29 for i in range(30)]
    for values in (ramp, [10.0] * 8 + [9.5] * 8 + [9.0] * 8, [9.0, 11.0] * 10):
        whole, hundredth = actual(values), actual([value / 100 for value in values])
        assert type(whole) is type(hundredth)
        if whole and hundredth:
            assert hundredth.change_pct == pytest.approx(whole.change_pct)


def test_a_series_within_the_limit_has_not_changed_wherever_its_line_leads() -> None:
    """29 nights rise from 10 to 10.149, 1.49 %; the last one, four nights later, is no higher: the line would be there.
    Without the 29 of 1.49 % but of 1.6 %, which is beyond the limit of 1.5 %, it is a drift.
    """

    def ramp(rise: float) -> LevelStep | Drift | None:
        values = [10 * (1 + rise * i / 28) for i in range(29)]
        return last_change([*range(29), 32], [*values, values[-1]], LIMIT_PCT, MADS)

    assert ramp(0.0149) is None
    assert isinstance(ramp(0.016), Drift)


def test_the_line_of_a_drift_goes_through_the_medians_of_all_pairs_by_hand() -> None:
    """Ten nights: nine fall by 0.1 each, the fourth lies 0.05 above its place. Of 45 slopes 36 are -0.1, so the line
    falls by 0.1 a night, from 10 to 9.1.
    """
    values = [10 - 0.1 * i + (0.05 if i == 3 else 0.0) for i in range(10)]
    drift = actual(values)
    assert isinstance(drift, Drift)
    assert (drift.first, drift.last) == (pytest.approx(10.0), pytest.approx(9.1))


def test_neighbours_count_in_a_line_as_all_other_pairs() -> None:
    """Three values 0, 1 and 4 a night apart: slopes 1 (of neighbours), 3 (of neighbours) and 2; their median is 2, and
    the line through the median of 0, -1 and 0 begins at 0. Of 0, 0 and 3 the slopes are 0, 3 and 1.5.
    """
    assert _line(range(3), [0.0, 1.0, 4.0]) == (0.0, 2.0)
    assert _line(range(3), [0.0, 0.0, 3.0]) == (0.0, 1.5)
    assert _line([0, 1], [5.0, 7.0]) == (5.0, 2.0)
