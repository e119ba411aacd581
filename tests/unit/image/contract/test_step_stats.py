"""Statistics of step times against values computed by hand and against t tables."""

from __future__ import annotations

import pytest

from bench_image.contract.step_stats import half_width_pct, quantile, step_time, t_975


@pytest.mark.parametrize(
    ("share", "value"),
    [
        (0.0, 10.0),
        (0.05, 11.5),  # position 0.05 * 3 = 0.15 between 10 and 20
        (0.5, 25.0),
        (0.95, 38.5),  # position 2.85 between 30 and 40
        (1.0, 40.0),
    ],
)
def test_quantiles_interpolate_between_order_statistics(share: float, value: float) -> None:
    assert quantile([40.0, 10.0, 30.0, 20.0], share) == pytest.approx(value)


def test_the_quantile_of_one_value_is_that_value() -> None:
    assert quantile([7.0], 0.95) == 7.0


@pytest.mark.parametrize(
    ("degrees", "t"),
    [(1, 12.7062), (2, 4.3027), (9, 2.2622), (10, 2.2281), (20, 2.0860), (30, 2.0423), (120, 1.9799), (10**6, 1.9600)],
)
def test_t_quantiles_are_those_of_the_tables(degrees: int, t: float) -> None:
    assert t_975(degrees) == pytest.approx(t, abs=1e-4)


def test_half_width_in_percent_of_the_mean() -> None:
    """Mean 10, sample deviation 1, three values: 4.3027 * 1 / sqrt(3) = 2.4842, which is 24.842 % of 10."""
    assert half_width_pct([9.0, 10.0, 11.0]) == pytest.approx(24.842, abs=1e-3)


@pytest.mark.parametrize("values", [[], [1.0]])
def test_fewer_than_two_values_show_no_spread(values: list[float]) -> None:
    assert half_width_pct(values) is None


def test_equal_values_have_no_width() -> None:
    assert half_width_pct([0.5] * 10) == 0


def test_the_summary_of_step_times() -> None:
    """0.9, 1.0 and 1.1 s: sample deviation 0.1, hence CV 10 %; half-width 4.3027 * 0.1 / sqrt(3) = 24.842 %."""
    summary = step_time([1.1, 0.9, 1.0])

    assert summary.mean_s == pytest.approx(1.0)
    assert summary.median_s == 1.0
    assert summary.p5_s == pytest.approx(0.91)
    assert summary.p95_s == pytest.approx(1.09)
    assert (summary.min_s, summary.max_s) == (0.9, 1.1)
    assert summary.cv_pct == pytest.approx(10.0)
    assert summary.half_width_pct == pytest.approx(24.842, abs=1e-3)


def test_one_step_has_no_summary() -> None:
    with pytest.raises(ValueError, match="1 step times: at least 2 are needed"):
        step_time([1.0])
