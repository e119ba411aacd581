from __future__ import annotations

import math
import statistics

import numpy as np
import pytest

from trainbench.judging.noise import (
    Noise,
    Run,
    between_rounds,
    between_runs,
    chance_of_median,
    chance_quantile,
    median_noise,
    median_sd,
    median_variance,
    one_run_pct,
    pooled,
    t_995,
    to_pct,
    within_runs,
)


def run(round_: int, *logs: float) -> Run:
    """A run whose windows have these log rates."""
    return Run(round_, math.exp(statistics.fmean(logs)), tuple(math.exp(log) for log in logs))


class TestEstimates:
    def test_between_runs_without_what_a_round_does_to_all(self) -> None:
        """Two nodes, two rounds, log rates (0, 1.2) and (0, 0.8): every node gained 1.0 on average.

        Residuals about the node's means: (-0.6, 0.6), (-0.4, 0.4); less the rounds' means -0.5, 0.5: all +-0.1.
        Variance 4 * 0.01 / ((2 - 1) * (2 - 1)) = 0.04, SD 0.2 with 1 degree of freedom. With an own reference the drift
        of the rounds is noise: (2 * 0.36 + 2 * 0.16) / (2 * (2 - 1)) = 0.52.
        """
        nodes = [[run(1, 0.0), run(2, 1.2)], [run(1, 0.0), run(2, 0.8)]]
        assert between_runs(nodes, rounds_are_shared=True) == (pytest.approx(0.2), 1)
        assert between_runs(nodes, rounds_are_shared=False) == (pytest.approx(0.52**0.5), 2)

    def test_one_node_measured_five_times(self) -> None:
        """Log rates 0, 0, 0, 0, 0.1: variance 0.1^2 * 4 / 5 / 4 = 0.002; 4 degrees of freedom."""
        runs = [*(run(r, 0.0) for r in (1, 2, 3, 4)), run(5, 0.1)]
        assert between_runs([runs], rounds_are_shared=True) == (pytest.approx(0.002**0.5), 4)

    def test_within_runs_is_pooled_over_nodes_and_not_divided_by_the_windows(self) -> None:
        """Windows (-0.1, 0.1) and (-0.3, 0.3): (0.02 + 0.18) / (1 + 1) = 0.1."""
        assert within_runs([[run(1, -0.1, 0.1)], [run(1, -0.3, 0.3)]]) == (pytest.approx(0.1**0.5), 2)

    def test_a_bad_value_hardly_moves_the_median_deviation(self) -> None:
        """About 1.5 the values 0, 1, 2 and 100 lie 1.5, 0.5, 0.5 and 98.5: 1.0 in the median."""
        assert median_sd([0.0, 1.0, 2.0, 100.0]) == pytest.approx(1.4826)

    def test_the_larger_estimate_counts(self) -> None:
        """One node, two runs. Logs 0.2 apart: between runs the variance 0.02 with one degree of freedom, beside the
        prior's 0.25e-4 with two; windows equal. Then equal runs with windows of -0.1 and 0.1: 0.1414 within each, 0
        between.
        """
        between = ((0.02 + 2 * 0.25e-4) / 3) ** 0.5
        assert pooled([[run(1, 0.0, 0.0), run(2, 0.2, 0.2)]]).noise == (pytest.approx(between), 3)
        assert pooled([[run(1, -0.1, 0.1), run(2, -0.1, 0.1)]]).noise == (pytest.approx(0.02**0.5), 2)

    def test_nothing_repeated_nothing_known(self) -> None:
        assert pooled([[run(1, 0.0)], [run(1, 0.1)]]) == (None, {})
        assert between_runs([[run(1, 0.0)], [run(1, 0.1)]], rounds_are_shared=True) is None
        assert within_runs([]) is None


class TestMedian:
    def test_one_run_may_be_off_by_what_equal_runs_are_known_to_differ_by(self) -> None:
        """0.5 % with two degrees of freedom, t = 9.925: 1 - e^-0.0496 = 4.84 %. Windows of +-2 % say more."""
        assert chance_of_median([run(1, 0.0)]) == pytest.approx(9.925 * 0.005, rel=1e-4)
        assert chance_of_median([run(1, -0.02, 0.0, 0.02)]) == pytest.approx(9.925 * 0.02, rel=1e-4)
        assert one_run_pct() == pytest.approx(4.84, abs=0.01)

    def test_repeats_take_over(self) -> None:
        """Logs of -0.01, 0 and 0.01: 1 % with two degrees; with the prior sqrt((2 * 0.25e-4 + 2 * 1e-4) / 4) = 0.79 %,
        four degrees, t = 4.604; a median of three has the variance pi / 6.
        """
        expected = 4.604 * math.sqrt(0.625e-4) * math.sqrt(math.pi / 6)
        assert chance_of_median([run(1, -0.01), run(2, 0.0), run(3, 0.01)]) == pytest.approx(expected, rel=1e-4)


class TestHalfWidth:
    def test_by_hand(self) -> None:
        """Four nodes, two rounds: 3 degrees of freedom, t = 5.841; variance 1/2 + pi/6 * 1/2 = 0.7618."""
        variance = median_variance(2) + median_variance(3) * median_variance(2)
        assert variance == pytest.approx(0.7618, abs=1e-4)
        assert Noise(0.01, 3).half_width(variance) == pytest.approx(0.01 * 5.841 * 0.8728, rel=1e-4)

    @pytest.mark.parametrize("n", [1, 2, 3, 4, 5, 9])
    def test_the_variance_of_a_median_is_not_understated(self, n: int) -> None:
        medians = np.median(np.random.default_rng(1).normal(size=(20_000, n)), axis=1)
        assert medians.var() <= median_variance(n) * 1.03

    @pytest.mark.parametrize(
        ("df", "quantile"),
        [(1, 63.657), (3, 5.841), (12, 3.055), (13, 3.012), (39, 2.708), (120, 2.617), (10**6, 2.576)],
    )
    def test_the_quantiles_of_student_t_are_those_of_the_tables(self, df: int, quantile: float) -> None:
        assert t_995(df) == pytest.approx(quantile, abs=5e-4)

    def test_ln_2_is_half_the_rate(self) -> None:
        assert to_pct(math.log(2)) == pytest.approx(50.0)


class TestPool:
    def test_one_bad_variance_counts_for_four_times_the_median_at_most(self) -> None:
        """Variances 1, 1, 1 and 100, two degrees of freedom each: (3 * 1 + 4) / 4 = 1.75."""
        noise = median_noise(dict(enumerate([(1.0, 2), (1.0, 2), (1.0, 2), (100.0, 2)])))
        assert noise
        assert (noise.sd, noise.degrees_of_freedom) == (pytest.approx(1.75**0.5), 8)

    def test_of_two_nobody_knows_which_is_typical(self) -> None:
        noise = median_noise({0: (1.0, 2), 1: (100.0, 2)})
        assert noise
        assert noise.sd == pytest.approx(50.5**0.5)

    def test_between_runs_less_what_a_round_does_to_all(self) -> None:
        """Three units gain 1.0 from round 1 to 2, but the third only 0.6: residuals (-0.5, 0.5) twice and (-0.3, 0.3),
        less the rounds' medians (-0.5, 0.5): 0, 0 and +-0.2, so squares 0, 0 and 0.08, of which a common effect of
        three leaves two thirds: 0.12. Median and cap are 0, and half of the prior's variance is left.
        """
        units = [[run(1, 0.0), run(2, 1.0)], [run(1, 0.0), run(2, 1.0)], [run(1, 0.0), run(2, 0.6)]]
        pool = pooled(units)
        assert pool.noise == (pytest.approx(0.005 / 2**0.5), 4)
        assert pool.own[2].sd == pytest.approx(0.12**0.5)
        assert set(pool.own) == {2}

    def test_two_units_halve_what_differs_between_them_and_share_its_degree_of_freedom(self) -> None:
        """The first goes from -0.1 to 0.1, the second stays: their differences, -0.1 and 0.1, have the variance 0.02,
        so one run has 0.01. Less the common effects of -0.05 and 0.05 each of them has squares of 0.005, half of that.
        Two differences are one degree of freedom, not two; the prior adds two of 0.25e-4.
        """
        units = [[run(1, -0.1), run(2, 0.1)], [run(1, 0.0), run(2, 0.0)]]
        assert pooled(units).noise == (pytest.approx(((0.01 + 2 * 0.25e-4) / 3) ** 0.5), 3)
        assert between_runs(units, rounds_are_shared=True) == (pytest.approx(0.1), 1)

    def test_of_a_round_with_fewer_units_the_common_effect_takes_more(self) -> None:
        """Three units, of which the third lacks round 3: there it takes a half, of the others a third. Medians 0, 0 and
        0.1 leave the first -0.1, -0.1 and 0.1: 0.03 / 2, of which the mean of 2/3, 2/3 and 1/2 was left.
        """
        units = [[run(i, log) for i, log in enumerate(logs)] for logs in ((-0.1, -0.1, 0.2), (0.0,) * 3, (0.0,) * 2)]
        squares, lost = between_rounds(units)
        assert (squares[0], lost) == ((pytest.approx(0.03 / 2 / (11 / 18)), 2), 2)

    def test_a_unit_that_scatters_within_the_run_is_apart(self) -> None:
        quiet = [[run(1, 0.001 * i, -0.001 * i, 0.0)] for i in (1, 2, 3, 2, 1)]
        pool = pooled([*quiet, [run(1, 0.3, -0.3, 0.0)]])
        assert set(pool.own) == {5}
        assert pool.own[5].sd == pytest.approx(0.3)
        assert pool.noise
        assert pool.noise.sd < 0.005


@pytest.mark.parametrize(("units", "quantile"), [(1, 2.326), (4, 2.806), (256, 3.949)])
def test_chance_among_all_units_in_one_night_of_a_hundred(units: int, quantile: float) -> None:
    """Of the normal distribution, 0.99 ** (1 / units): 0.99, 0.99749, 0.9999607."""
    assert chance_quantile(10**7, units) == pytest.approx(quantile, abs=2e-3)
    assert Noise(0.01, 10**7).chance(4.0, units) == pytest.approx(0.02 * quantile, rel=1e-3)
