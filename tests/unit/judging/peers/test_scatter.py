from __future__ import annotations

import math
import random
import statistics

import pytest

from bench_image.contract.result import RunResult
from tests.builders import make_result
from tests.builders.fleets import by_name
from trainbench.core.verdicts import GroupVerdict, Level, Metric, State, Tolerances
from trainbench.judging.diagnosis.diagnose import diagnose
from trainbench.judging.noise import Run
from trainbench.judging.peers.node_verdicts import judge_groups
from trainbench.judging.peers.outliers import outlier_ratio
from trainbench.judging.peers.scatter import ALPHA_OF_ROUNDS, Unit, measure

LIMITS = Tolerances()
STEADY = (0.999, 1.0, 1.001)


def run(round_: int, *logs: float) -> Run:
    return Run(round_, math.exp(statistics.fmean(logs)), tuple(math.exp(log) for log in logs))


def unit(node: str, *runs: Run) -> Unit:
    return Unit(node, runs)


def fleet(num: int, rate: float = 10.0, **odd: tuple[float, ...]) -> list[RunResult]:
    """`num` nodes of one round; `odd`: node_3=(1.0, 0.5, 1.0) are a node's windows as shares of its rate.

    Windows of equal length in samples: the run's rate is their harmonic mean.
    """
    results = []
    for i in range(1, num + 1):
        shares = odd.get(f"node_{i}", tuple(share * (1 + 1e-4 * (i % 5)) for share in STEADY))
        windows = [rate * share for share in shares]
        results.append(make_result(f"node-{i}", statistics.harmonic_mean(windows), windows=windows))
    return results


def judged(results: list[RunResult]) -> GroupVerdict:
    (group,) = judge_groups(results, [], LIMITS)
    return group


class TestOutlierRatio:
    def test_four_nodes_of_three_windows_by_hand(self) -> None:
        """chi squared(2) / 2 is exponential; of three others the middle one: P = 6 / ((c + 2) (c + 3)) = 0.001 / 4,
        so c^2 + 5 c + 6 = 24,000 and c = -2.5 + sqrt(24,000.25) = 152.42.
        """
        assert outlier_ratio(2, 2, 3, 4) == pytest.approx(152.42, rel=1e-3)

    def test_one_other_by_hand(self) -> None:
        """P(X > c * Y) of two exponentials is 1 / (1 + c): at 0.001 / 2 it is 1,999."""
        assert outlier_ratio(2, 2, 1, 2) == pytest.approx(1999, rel=2e-3)


class TestPool:
    def test_windows_of_steady_nodes_are_pooled_as_before(self) -> None:
        """Windows (-0.1, 0.1), (-0.2, 0.2), (-0.1, 0.1): (0.02 + 0.08 + 0.02) / 3 = 0.04, 3 degrees of freedom."""
        actual = measure([unit(n, run(1, -x, x)) for n, x in (("a", 0.1), ("b", 0.2), ("c", 0.1))])
        assert actual.pool
        assert (actual.pool.sd, actual.pool.degrees_of_freedom) == (pytest.approx(0.2), 3)
        assert (actual.apart, actual.outlying) == ({}, {})

    def test_a_scatter_too_small_to_stand_out_counts_ten_times_the_median_at_most(self) -> None:
        """Mean squares 1, 1, 1, 49 (in 1e-6), three windows each: 49 < 152, so it stays in, as 10:
        sqrt((1 + 1 + 1 + 10) / 4) = sqrt(3.25) = 1.803 instead of sqrt(52 / 4) = 3.606.
        """
        units = [unit(f"n{i}", run(1, -1e-3 * x, 0.0, 1e-3 * x)) for i, x in enumerate((1, 1, 1, 7))]
        actual = measure(units)
        assert actual.pool
        assert actual.pool.sd == pytest.approx(1.8028e-3, rel=1e-4)
        assert actual.pool.degrees_of_freedom == 8
        assert actual.full
        assert actual.full.sd == pytest.approx(3.6056e-3, rel=1e-4)
        assert actual.full.degrees_of_freedom == 8
        assert actual.apart == {}

    def test_what_a_round_does_to_all_nodes_is_no_noise(self) -> None:
        """Three nodes lose 10 % in round 2 alike, and scatter by +-1e-3 besides: the middle one moves with the drift.

        Differences of the rounds less their median: -2e-3, 0, 2e-3: squares 2e-6, 0 (at least 1e-10), 2e-6 with one
        degree of freedom each; the drift takes a third: sqrt(4e-6 / (3 * 2 / 3)) = 1.414e-3.
        """
        units = [
            unit(f"n{i}", Run(1, 1.0, ()), Run(2, math.exp(-0.1 + off), ())) for i, off in enumerate((-2e-3, 0.0, 2e-3))
        ]
        actual = measure(units)
        assert actual.pool
        assert actual.pool.sd == pytest.approx(1.4142e-3, rel=1e-3)
        assert actual.pool.degrees_of_freedom == 2

    def test_the_drift_of_two_nodes_is_no_noise_either(self) -> None:
        """Both lose 10 % in round 2, one 0.2 % more than that and the other 0.2 % less: without the mean of both,
        -0.001 and 0.001 about each mean: squares 2e-6 each, half of which the drift takes: sqrt(4e-6) = 2e-3.
        """
        units = [unit(n, Run(1, 1.0, ()), Run(2, math.exp(-0.1 + off), ())) for n, off in (("a", -2e-3), ("b", 2e-3))]
        actual = measure(units)
        assert actual.pool
        assert (actual.pool.sd, actual.pool.degrees_of_freedom) == (pytest.approx(2e-3, rel=1e-6), 1)

    def test_the_rounds_of_one_node_are_its_noise_and_no_drift(self) -> None:
        """The other node has one round only. Logs -0.01 and 0.01: sqrt(2e-4 / 1) = 1.414e-2."""
        actual = measure(
            [unit("a", Run(1, math.exp(-0.01), ()), Run(2, math.exp(0.01), ())), unit("b", Run(1, 1.0, ()))]
        )
        assert actual.pool
        assert actual.pool.sd == pytest.approx(1.4142e-2, rel=1e-4)

    def test_gpus_of_one_node_give_its_degrees_of_freedom_once(self) -> None:
        """Two nodes of four GPUs, three windows each: 2 * 2 degrees of freedom, not 16."""
        units = [unit(node, run(1, -1e-3, 0.0, 1e-3)) for node in ("a", "b") for _ in range(4)]
        actual = measure(units)
        assert actual.pool
        assert (actual.pool.sd, actual.pool.degrees_of_freedom) == (pytest.approx(1e-3), 4)

    def test_gpus_of_a_lone_node_are_set_beside_each_other(self) -> None:
        gpus = [unit("a", run(1, -1e-3, 0.0, 1e-3)) for _ in range(7)]
        actual = measure([*gpus, unit("a", run(1, -0.3, 0.0, 0.3))])
        assert list(actual.apart) == [7]
        assert actual.pool
        assert (actual.pool.sd, actual.pool.degrees_of_freedom) == (pytest.approx(1e-3), 14)

    def test_nothing_repeated_nothing_known(self) -> None:
        assert measure([unit("a", Run(1, 1.0, ())), unit("b", Run(1, 1.1, ()))]).pool is None
        assert measure([]).pool is None


class TestOneBadNodeDoesNotBlindTheFleet:
    @pytest.mark.parametrize("num", [4, 8, 32, 256])
    def test_a_window_at_half_the_speed_leaves_the_others_judged(self, num: int) -> None:
        """Its windows' logs are 0, -0.693, 0: SD 0.4002; the peers' 0.001: 400 times."""
        nodes = by_name(judged(fleet(num, node_2=(1.0, 0.5, 1.0))))
        bad = nodes.pop("node-2")
        assert {node.state for node in nodes.values()} == {State.OK}
        assert not any(node.is_unsteady for node in nodes.values())
        assert (bad.state, bad.is_unsteady) == (State.INSUFFICIENT, True)
        assert bad.unsteady_factor == pytest.approx(400, rel=0.01)
        assert "round 1: window 2 of 3 at 5.000 samples/s, the others 10.00" in bad.reason

    @pytest.mark.parametrize("num", [4, 8, 32])
    def test_a_slow_node_is_red_beside_it(self, num: int) -> None:
        results = fleet(num, node_2=(1.0, 0.5, 1.0), node_1=tuple(0.9 * share for share in STEADY))
        nodes = by_name(judged(results))
        assert {name for name, node in nodes.items() if node.state is State.BREACH} == {"node-1"}
        assert {name for name, node in nodes.items() if node.state is State.INSUFFICIENT} == {"node-2"}

    def test_an_unsteady_node_is_judged_by_its_own_scatter(self) -> None:
        """Its windows' logs: 0, ln 0.9, 0: SD 0.0608, 2 degrees of freedom, t = 9.925; its peers' SD 0.001, 6 degrees
        of freedom, t = 3.707, for a reference of the variance pi / 6: hypot(0.6037, 0.0027) -> 1 - exp(-0.6037).
        """
        nodes = by_name(judged(fleet(4, node_2=(1.0, 0.9, 1.0))))
        rate = nodes["node-2"].metric(Metric.SAMPLES_PER_SECOND)
        assert rate
        assert rate.noise == pytest.approx(100 * (1 - math.exp(-9.925 * abs(math.log(0.9)) / 3**0.5)), rel=1e-3)
        assert rate.state is State.INSUFFICIENT

    def test_a_scatter_that_hides_nothing_is_not_called_unsteady(self) -> None:
        """SD 0.001 * 15 = 0.3 % own and 0.02 % of the peers: 9.925 * 0.3 % = 3 %, less than the limit of 5 %."""
        results = [
            make_result(f"node-{i}", 10.0, windows=[10 * (1 - x), 10.0, 10 * (1 + x)])
            for i, x in enumerate((0.0002, 0.0002, 0.003, 0.0002), 1)
        ]
        nodes = by_name(judged(results))
        assert {node.state for node in nodes.values()} == {State.OK}
        assert not nodes["node-3"].is_unsteady

    def test_what_hides_less_than_the_limit_on_the_slow_side_is_not_unsteady(self) -> None:
        """SD 0.504 %: 9.925 * 0.00504 = 0.05002 as a logarithm, so 4.88 % slow or 5.13 % fast; the limit is 5 %."""
        results = [
            make_result(f"node-{i}", 10.0, windows=[10 * math.exp(-x), 10.0, 10 * math.exp(x)])
            for i, x in enumerate((0.0002, 0.0002, 0.00504, 0.0002), 1)
        ]
        assert not any(node.is_unsteady for node in judged(results).nodes)

    def test_an_unsteady_node_is_no_reference_for_the_others(self) -> None:
        """node-1 10 % slow, node-2 unsteady and at 75 %: the median of node-3's others would be node-1's 9, and node-3
        and node-4 would read +11 % fast.
        """
        nodes = by_name(judged(fleet(5, node_1=tuple(0.9 * s for s in STEADY), node_2=(1.0, 0.5, 1.0))))
        rate = nodes["node-3"].metric(Metric.SAMPLES_PER_SECOND)
        assert rate
        assert rate.reference == pytest.approx(10.0, rel=1e-3)

    def test_a_throttled_node_of_four_is_named_with_its_cause(self) -> None:
        results = fleet(4)
        results[2] = make_result(
            "node-3",
            8.5897,
            windows=[10.0, 6.7, 10.0],
            throttle_share_pct={"thermal": 33.0},
            sm_clock_mhz=1700.0,
            temperature_c=68.0,
        )
        group = judged(results)
        (finding,) = (f for f in diagnose([group], results) if f.category == "unsteady")
        nodes = by_name(group)
        assert [nodes[f"node-{i}"].state for i in (1, 2, 4)] == [State.OK] * 3
        assert nodes["node-3"].is_unsteady
        assert (finding.subject, finding.level) == ("node-3", Level.WARNING)
        assert "window 2 of 3 at 6.700" in finding.explanation
        assert (
            "The GPU was too hot and slowed itself down for 33 % of the time (68 °C, its peers 60 °C)"
            in finding.explanation
        )
        assert "its SM clock fell to 1670 MHz at the lowest, its peers' to 1890" in finding.explanation

    def test_a_throttled_node_whose_heat_is_a_breach_is_reported_as_one_with_its_scatter(self) -> None:
        results = fleet(4)
        hot = {"thermal": 33.0}
        results[2] = make_result(
            "node-3", 8.5897, windows=[10.0, 6.7, 10.0], throttle_share_pct=hot, sm_clock_mhz=1700.0, temperature_c=84.0
        )
        group = judged(results)
        (finding,) = diagnose([group], results)
        assert (finding.subject, finding.category, finding.level) == ("node-3", "thermal_throttling", Level.ERROR)
        assert "its windows scatter" in finding.explanation
        assert by_name(group)["node-3"].is_unsteady


def three_rounds(num: int, *odd: tuple[int, int, float]) -> list[RunResult]:
    """Rounds of `num` nodes; `odd`: (node, round, share of the usual rate)."""
    draw = random.Random(1)
    share = {(node, round_): share for node, round_, share in odd}
    return [
        make_result(f"node-{i}", 10 * draw.uniform(0.999, 1.001) * share.get((i, r), 1.0), round=r)
        for r in (1, 2, 3)
        for i in range(1, num + 1)
    ]


class TestMoreRoundsAreNeverWorseThanOne:
    @pytest.mark.parametrize("num", [4, 32])
    def test_a_disturbed_run_does_not_hide_a_slow_node(self, num: int) -> None:
        slow = tuple((1, r, 0.9) for r in (1, 2, 3))
        nodes = by_name(judged(three_rounds(num, *slow, (2, 3, 0.75))))
        assert {name for name, node in nodes.items() if node.state is not State.OK} == {"node-1"}
        assert nodes["node-1"].state is State.BREACH
        assert nodes["node-2"].disturbed_rounds == (3,)
        assert not nodes["node-2"].is_unsteady

    def test_a_disturbed_run_of_the_slow_node_itself_does_not_hide_it(self) -> None:
        nodes = by_name(judged(three_rounds(4, (1, 1, 0.9), (1, 2, 0.9), (1, 3, 0.7))))
        assert nodes["node-1"].state is State.BREACH
        assert nodes["node-1"].disturbed_rounds == (3,)
        assert [nodes[f"node-{i}"].state for i in (2, 3, 4)] == [State.OK] * 3

    def test_a_node_that_is_another_one_in_each_round_is_unsteady(self) -> None:
        nodes = by_name(judged(three_rounds(4, (1, 2, 0.8), (1, 3, 0.6))))
        assert (nodes["node-1"].state, nodes["node-1"].is_unsteady) == (State.INSUFFICIENT, True)
        assert "its rounds scatter" in nodes["node-1"].reason
        assert [nodes[f"node-{i}"].state for i in (2, 3, 4)] == [State.OK] * 3


def test_one_of_two_rounds_is_no_minority() -> None:
    """Which of the two is right, nobody knows: its mean of 6.5 is judged by its own scatter."""
    results = [result for result in three_rounds(4, (1, 2, 0.3)) if result.spec.identity.round < 3]
    node = by_name(judged(results))["node-1"]
    assert (node.state, node.is_unsteady, node.disturbed_rounds) == (State.INSUFFICIENT, True, ())


def test_two_of_four_nodes_disturbed_in_one_round_are_no_drift_of_that_round() -> None:
    """Half of the fleet lost 20 % in round 2: their median is half of that, and both halves would be off."""
    units = [
        unit(f"n{i}", *(run(r, *(x - 0.2 * (i < 2 and r == 2) for x in (-1e-3, 0.0, 1e-3))) for r in (1, 2, 3)))
        for i in range(4)
    ]
    actual = measure(units)
    assert actual.outlying == {0: frozenset({2}), 1: frozenset({2})}
    assert actual.apart == {}


def test_of_a_unit_s_rounds_the_one_farthest_from_their_median_is_left_out() -> None:
    """Rounds at -1, -0.9, 0, 0 and 0.95 times 0.0058: the median is 0, so round 1 is the farthest; of the mean, -0.19,
    round 5 would be. Mean squares (in 0.0058^2): 0.642 of all five, 0.571 without round 1; that of the others is 1e-6,
    so 21.6 and 19.2 times it. With four others the bound is 19.6 for five rounds, 22.3 for four: round 1 is enough.
    """
    rounds = [(-1e-3, 1e-3, 0.0, -1e-3, 1e-3)] * 4 + [tuple(0.0058 * x for x in (-1.0, -0.9, 0.0, 0.0, 0.95))]
    units = [
        unit(f"n{i}", *(Run(r, math.exp(x), ()) for r, x in enumerate(logs, start=1))) for i, logs in enumerate(rounds)
    ]
    actual = measure(units, rounds_are_shared=False)
    assert actual.outlying == {4: frozenset({1})}


def test_where_even_the_capped_noise_hides_the_limit_all_scatter_counts() -> None:
    """Mean squares 1, 1, 1 and 49 in (1 %)^2: capped 1.8 %, times 3.355 and 1.234 over the limit of 5 %; so 3.6 %."""
    results = [
        make_result(f"node-{i}", 10.0, windows=[10 * math.exp(-x), 10.0, 10 * math.exp(x)])
        for i, x in enumerate((0.01, 0.01, 0.01, 0.07), 1)
    ]
    assert judged(results).noise_pct == pytest.approx(3.6056, rel=0.01)


@pytest.mark.parametrize(("num", "rounds"), [(3, 1), (4, 1), (4, 3), (8, 1)])
def test_a_fleet_of_equal_nodes_is_rarely_reported_as_unsteady(num: int, rounds: int) -> None:
    """1,000 nights at noise 1 %, seeded: one in a thousand by the limit's making, and room for chance (P < 0.01)."""
    draw = random.Random(7)
    times = 0
    for _ in range(1000):
        units = [
            unit(f"n{i}", *(run(r, *(draw.gauss(0, 0.01) for _ in range(3))) for r in range(rounds)))
            for i in range(num)
        ]
        times += bool(measure(units).apart)
    assert times <= 6


def test_the_widest_scatter_of_two_nodes_is_not_cut() -> None:
    """Mean squares 1 and 25 in (0.1 %)^2: of two nobody knows which is usual, so both count: sqrt(13) = 3.606."""
    actual = measure([unit(n, run(1, -1e-3 * x, 0.0, 1e-3 * x)) for n, x in (("a", 1), ("b", 5))])
    assert actual.pool
    assert actual.pool.sd == pytest.approx(math.sqrt(13) * 1e-3, rel=1e-3)


def test_rounds_stand_out_ten_times_more_rarely_than_windows() -> None:
    """As by hand above, at a tenth: P = 6 / ((c + 2) (c + 3)) = 0.0001 / 4, so c = -2.5 + sqrt(240,000.25) = 487.4."""
    assert outlier_ratio(2, 2, 3, 4, ALPHA_OF_ROUNDS) == pytest.approx(487.4, rel=1e-3)


def test_what_is_known_of_one_difference_has_one_degree_of_freedom_at_least() -> None:
    """Two nodes of two rounds have two, of which the drift takes half."""
    actual = measure([unit(n, Run(1, 1.0, ()), Run(2, rate, ())) for n, rate in (("a", 1.01), ("b", 1.0))])
    assert actual.pool
    assert actual.pool.degrees_of_freedom == 1


def test_a_gpu_is_set_beside_those_of_other_nodes_and_not_beside_its_quiet_neighbours() -> None:
    """Node a: one GPU at SD 10 %, seven that hardly scatter; all of node b at 5 %. Among all 16 the middle is quiet,
    but of b's, which count, it is 5 %: twice that is nothing that stands out.
    """
    a = [unit("a", run(1, -x, 0.0, x)) for x in (0.1, *[1e-5] * 7)]
    actual = measure([*a, *(unit("b", run(1, -0.05, 0.0, 0.05)) for _ in range(8))])
    assert 0 not in actual.apart
