from __future__ import annotations

import math
import statistics
from typing import Any

import numpy as np
import pytest

from trainbench.core.verdicts import State
from trainbench.judging.deviations import decide_state
from trainbench.judging.noise import Noise, Run, deviation_pct, estimate, from_pct, median_variance, t_995, to_pct
from trainbench.judging.peers.scatter import Unit, measure


def run(round_: int, *logs: float) -> Run:
    """A run whose windows have these log rates."""
    return Run(round_, math.exp(statistics.fmean(logs)), tuple(math.exp(log) for log in logs))


class TestEstimate:
    def test_between_runs_without_what_a_round_does_to_all(self) -> None:
        """Two nodes, two rounds, log rates (0, 1.2) and (0, 0.8): every node gained 1.0 on average.

        Residuals about the node's means: (-0.6, 0.6), (-0.4, 0.4); less the rounds' means -0.5, 0.5: all +-0.1.
        Variance 4 * 0.01 / ((2 - 1) * (2 - 1)) = 0.04, SD 0.2 with 1 degree of freedom.
        """
        noise = estimate([[run(1, 0.0), run(2, 1.2)], [run(1, 0.0), run(2, 0.8)]])
        assert noise
        assert noise.sd == pytest.approx(0.2)
        assert noise.degrees_of_freedom == 1

    def test_with_an_own_reference_the_drift_of_the_rounds_is_noise(self) -> None:
        """The same without removing the rounds: (2 * 0.36 + 2 * 0.16) / (2 * (2 - 1)) = 0.52."""
        nodes = [[run(1, 0.0), run(2, 1.2)], [run(1, 0.0), run(2, 0.8)]]
        noise = estimate(nodes, rounds_are_shared=False)
        assert noise
        assert noise.sd == pytest.approx(0.52**0.5)
        assert noise.degrees_of_freedom == 2

    def test_within_runs_is_pooled_over_nodes_and_not_divided_by_the_windows(self) -> None:
        """Windows (-0.1, 0.1) and (-0.3, 0.3): (0.02 + 0.18) / (1 + 1) = 0.1."""
        noise = estimate([[run(1, -0.1, 0.1)], [run(1, -0.3, 0.3)]])
        assert noise
        assert noise.sd == pytest.approx(0.1**0.5)
        assert noise.degrees_of_freedom == 2

    def test_one_node_measured_five_times(self) -> None:
        """Log rates 0, 0, 0, 0, 0.1: variance 0.1^2 * 4 / 5 / 4 = 0.002; 4 degrees of freedom."""
        noise = estimate([[*(run(r, 0.0) for r in (1, 2, 3, 4)), run(5, 0.1)]])
        assert noise
        assert noise.sd == pytest.approx(0.002**0.5)
        assert noise.degrees_of_freedom == 4

    def test_the_larger_estimate_counts(self) -> None:
        """One node, two runs. Logs 0.2 apart: between runs 0.2 / sqrt(2) = 0.1414, windows equal. Then equal runs with
        windows of -0.1 and 0.1: 0.1414 within each, 0 between.
        """
        between = estimate([[run(1, 0.0, 0.0), run(2, 0.2, 0.2)]])
        within = estimate([[run(1, -0.1, 0.1), run(2, -0.1, 0.1)]])
        assert between
        assert within
        assert (between.sd, between.degrees_of_freedom) == (pytest.approx(0.02**0.5), 1)
        assert (within.sd, within.degrees_of_freedom) == (pytest.approx(0.02**0.5), 2)
        steady_windows = [[run(r, 0.2 * r * n, 0.2 * r * n) for r in (1, 2)] for n in (0, 1)]
        noise = estimate(steady_windows)
        assert noise
        assert noise.degrees_of_freedom == 1

    def test_nothing_repeated_nothing_known(self) -> None:
        assert estimate([[run(1, 0.0)], [run(1, 0.1)]]) is None
        assert estimate([]) is None


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

    def test_percent_on_either_side(self) -> None:
        """ln 2: half the rate, or twice."""
        assert (to_pct(math.log(2), slow=True), to_pct(math.log(2), slow=False)) == pytest.approx((50.0, 100.0))
        assert from_pct(50.0, slow=True) == from_pct(100.0, slow=False) == pytest.approx(math.log(2))


class TestDecision:
    @pytest.mark.parametrize(
        ("deviation", "noise", "state"),
        [
            (-5.0, 1.0, State.OK),
            (-5.1, 1.0, State.BREACH),
            (5.1, 5.0, State.BREACH),
            (-5.1, None, State.BREACH),
            (-1.0, 22.4, State.INSUFFICIENT),
            (-12.0, 22.4, State.INSUFFICIENT),
            (-27.4, 22.4, State.INSUFFICIENT),
            (-27.5, 22.4, State.BREACH),
        ],
    )
    def test_limit_5_pct(self, deviation: float, noise: float | None, state: State) -> None:
        assert decide_state(deviation, 5.0, noise) is state


def nights(cv: float, slow: float, *, rounds: int, num: int, window_share: float = 0.0) -> dict[State, float]:
    """Share of nights in which node 1 of 4, being `slow`, ends in each state; breaches have passed the re-run.

    `cv` is the scatter of a whole run; `window_share` of its variance shows between the three windows too. With
    slow=0 the worst state of all four nodes counts.
    """
    random = np.random.default_rng(2026)
    sd = math.sqrt(math.log1p(cv**2))
    across, inside = sd * math.sqrt(1 - window_share), sd * math.sqrt(3 * window_share)
    count = dict.fromkeys((State.OK, State.INSUFFICIENT, State.BREACH), 0)
    handicap = np.array([math.log1p(-slow), 0, 0, 0])
    for _ in range(num):
        logs = (
            handicap[:, None, None]
            + random.normal(0, across, (4, rounds, 1))
            + random.normal(0, inside, (4, rounds, 3))
        )
        again = (handicap + random.normal(0, sd, 4)).tolist()
        count[night(logs, again, rounds, watched=1 if slow else 4)] += 1
    return {state: times / num for state, times in count.items()}


def night(logs: Any, again: list[float], rounds: int, watched: int) -> State:
    units = [Unit(str(i), tuple(run(r, *w) for r, w in enumerate(node))) for i, node in enumerate(logs.tolist())]
    scatter = measure(units)
    assert scatter.pool
    assert scatter.full
    values = np.median(logs.mean(axis=2), axis=1).tolist()
    of_reference = median_variance(3) * median_variance(rounds)
    is_too_wide = to_pct(scatter.pool.half_width(median_variance(rounds) + of_reference), slow=True) > 5.0
    result = scatter.full if is_too_wide else scatter.pool
    worst = State.OK
    for i in range(watched):
        reference = statistics.median(values[:i] + values[i + 1 :])
        state = verdict(values[i] - reference, result.half_width(median_variance(rounds) + of_reference))
        if state is State.BREACH:
            state = State.INSUFFICIENT
            same_side = (again[i] < reference) == (values[i] < reference)
            if same_side and verdict(again[i] - reference, result.half_width(1 + of_reference)) is State.BREACH:
                return State.BREACH
        worst = State.INSUFFICIENT if state is State.INSUFFICIENT else worst
    return worst


def verdict(log_ratio: float, half_width: float) -> State:
    return decide_state(deviation_pct(math.exp(log_ratio), 1.0), 5.0, to_pct(half_width, slow=log_ratio < 0))


class TestFalseAlarmsAndDetection:
    """Four nodes, limit 5 %, seeded. 30 %: a shared CPU; 0.3 %: a GPU (published run CVs: 0.05-0.4 %)."""

    @pytest.mark.parametrize("rounds", [1, 2])
    def test_a_quiet_fleet_of_gpus_is_green_every_night(self, rounds: int) -> None:
        assert nights(0.003, 0.0, rounds=rounds, num=500, window_share=0.3)[State.OK] >= 0.99

    def test_a_10_pct_slow_gpu_node_is_found_every_night(self) -> None:
        assert nights(0.003, 0.10, rounds=2, num=500, window_share=0.3)[State.BREACH] >= 0.99

    @pytest.mark.parametrize("window_share", [0.0, 0.3])
    def test_a_shared_cpu_turns_red_by_chance_in_a_thousandth_of_the_nights(self, window_share: float) -> None:
        assert nights(0.30, 0.0, rounds=3, num=4000, window_share=window_share)[State.BREACH] <= 0.002

    def test_a_75_pct_slow_node_on_a_shared_cpu_is_never_judged_as_well(self) -> None:
        counts = nights(0.30, 0.75, rounds=4, num=300, window_share=0.3)
        assert counts[State.OK] == 0
        assert counts[State.BREACH] >= 0.6

    def test_a_75_pct_slow_node_is_found_where_runs_scatter_by_15_pct(self) -> None:
        assert nights(0.15, 0.75, rounds=3, num=300, window_share=0.3)[State.BREACH] >= 0.97
