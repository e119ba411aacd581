from __future__ import annotations

import pytest

from bench_image.contract.result import RunResult
from tests.builders import make_cpu_result, make_failed, make_result
from tests.builders.fleets import by_name, fleet
from tests.builders.verdicts import make_group, make_metric, make_node
from trainbench.core.verdicts import Confirmation, GroupVerdict, NodeVerdict, Side, State, Tolerances
from trainbench.judging.peers.confirmation import _single_run_widening, confirm
from trainbench.judging.peers.node_verdicts import judge_groups, nodes_to_confirm

LIMITS = Tolerances()


def first() -> tuple[GroupVerdict, ...]:
    return judge_groups(fleet(9.5, 9.5, 8.5, 9.5), [], LIMITS)


def rerun(*again: RunResult) -> NodeVerdict:
    return by_name(confirm(first(), again, LIMITS)[0])["node-3"]


def test_only_breaches_are_re_run() -> None:
    assert nodes_to_confirm(first()) == ("node-3",)
    assert nodes_to_confirm(judge_groups([*fleet(9.5, 9.5, 9.5), make_failed("node-4")], ["node-5"], LIMITS)) == ()


def test_slow_again_is_confirmed() -> None:
    """8.6 / 9.5 - 1 = -9.47 %"""
    node = rerun(make_result("node-3", 8.6, round=2))
    assert (node.state, node.confirmation) == (State.BREACH, Confirmation.CONFIRMED)
    assert node.confirm_deviation_pct == pytest.approx(-9.474, abs=1e-3)
    assert node.reason == "samples/s: deviation −10.5 %, limit 5.0 %, noise 0.4 %; re-run −9.5 %"


@pytest.mark.parametrize("rate", [9.4, 10.5])
def test_within_the_limit_or_off_on_the_other_side_is_a_notice(rate: float) -> None:
    node = rerun(make_result("node-3", rate, round=2))
    assert (node.state, node.confirmation) == (State.NOTICE, Confirmation.NOT_CONFIRMED)
    assert node.metrics[0].state is State.NOTICE


def test_a_failed_or_lost_re_run_leaves_the_breach_standing() -> None:
    for again in ([make_failed("node-3", round=2)], []):
        node = rerun(*again)
        assert (node.state, node.confirmation) == (State.BREACH, Confirmation.INCONCLUSIVE)


@pytest.mark.parametrize(
    ("rate", "state"),
    [(9.5, State.NOTICE), (9.49, State.BREACH), (10.5, State.NOTICE)],
)
def test_a_re_run_exactly_at_the_limit_is_within_it(rate: float, state: State) -> None:
    """Peers at 10: 9.5 is -5 %, on the limit, 9.49 is -5.1 %."""
    groups = judge_groups(fleet(10.0, 10.0, 9.0, 10.0), [], LIMITS)
    assert by_name(confirm(groups, [make_result("node-3", rate, round=2)], LIMITS)[0])["node-3"].state is state


@pytest.mark.parametrize(("rate", "state"), [(9.0, State.INSUFFICIENT), (8.93, State.BREACH)])
def test_one_run_is_less_certain_than_the_median_of_three(rate: float, state: State) -> None:
    """Three runs of each of four nodes: variance of the median pi / 6 = 0.524, of the reference 0.524^2 = 0.274.

    The first noise of 4.5 % is -ln(0.955) = 0.04604; of one run it is sqrt(1.274 / 0.798) = 1.264 times that, 0.05819,
    or 5.65 %. That is over the limit, so a re-run has to be beyond 5 + 5.65 = 10.65 %: -10.0 % is not, -10.7 % is.
    """
    pending = make_metric(8.8, 10.0, state=State.BREACH, side=Side.SLOW, noise=4.5)
    nodes = [make_node(f"node-{i}", [make_metric(10.0, 10.0)], num_runs=3) for i in (1, 2, 4)]
    slow = make_node("node-3", [pending], state=State.BREACH, confirmation=Confirmation.PENDING, num_runs=3)
    again = make_result("node-3", rate, round=4)
    group = make_group([*nodes, slow], again.spec.identity.group_id)
    node = by_name(confirm([group], [again], LIMITS)[0])["node-3"]
    assert node.state is state


class TestADisturbedPeer:
    """Node-1 of four is 10 % slow, and node-2's one run was disturbed: the median of the others of 3 and 4 is 9."""

    def first(self) -> tuple[GroupVerdict, ...]:
        return judge_groups(fleet(9.0, 8.0, 10.0, 10.01), [], LIMITS)

    def settled(self, node_2: float) -> dict[str, NodeVerdict]:
        rates = {"node-1": 9.0, "node-2": node_2, "node-3": 10.0, "node-4": 10.01}
        again = [make_result(name, rate, round=2) for name, rate in rates.items()]
        return by_name(confirm(self.first(), again, LIMITS)[0])

    def test_the_first_verdict_has_both_sides(self) -> None:
        assert [node.state for node in self.first()[0].nodes] == [State.BREACH] * 4

    def test_once_it_is_cleared_the_good_nodes_are_not_red_for_it(self) -> None:
        nodes = self.settled(10.0)
        assert nodes["node-1"].confirmation is Confirmation.CONFIRMED
        assert nodes["node-1"].state is State.BREACH
        assert {nodes[name].state for name in ("node-2", "node-3", "node-4")} == {State.NOTICE}
        assert "once their own re-runs count" in nodes["node-3"].reason

    def test_while_it_stays_slow_both_sides_stay_red(self) -> None:
        assert {node.state for node in self.settled(8.0).values()} == {State.BREACH}


def test_without_a_planned_re_run_nobody_says_that_it_did_not_come_back() -> None:
    node = by_name(confirm(first(), [], LIMITS, has_reruns=False)[0])["node-3"]

    assert (node.state, node.confirmation) == (State.BREACH, Confirmation.NOT_PLANNED)
    assert "re-run" not in node.reason
    others = by_name(confirm(first(), [], LIMITS, has_reruns=False)[0])
    assert others["node-1"].confirmation is Confirmation.NOT_NEEDED


def test_a_re_run_within_the_noise_of_one_run_is_insufficient() -> None:
    """SD 0.1 of log rates in each window, two rounds: one run's noise is larger than that of two."""
    windows = (0.905, 1.0, 1.105)
    results = [
        make_cpu_result(f"node-{i}", rate, round=r, windows=[rate * w for w in windows])
        for r in (1, 2)
        for i, rate in enumerate((40.0, 40.0, 20.0, 40.0), 1)
    ]
    first = judge_groups(results, [], LIMITS)
    assert nodes_to_confirm(first) == ("node-3",)
    again = make_cpu_result("node-3", 30.0, round=3)
    (group,) = confirm(first, [again], LIMITS)
    node = by_name(group)["node-3"]
    assert (node.state, node.confirmation) == (State.INSUFFICIENT, Confirmation.INCONCLUSIVE)
    assert "re-run −25.0 %, beyond the limit but within the" in node.reason


def test_temperature_is_confirmed_by_temperature() -> None:
    results = [make_result(f"node-{i}", temperature_c=t) for i, t in enumerate((60, 60, 75, 60), 1)]
    first = judge_groups(results, [], LIMITS)
    (cool,) = confirm(first, [make_result("node-3", temperature_c=61.0)], LIMITS)
    (hot,) = confirm(first, [make_result("node-3", temperature_c=74.0)], LIMITS)
    assert by_name(cool)["node-3"].state is State.NOTICE
    assert by_name(hot)["node-3"].state is State.BREACH


def test_a_metric_that_is_there_again_is_a_notice() -> None:
    results = [*fleet(9.5, 9.5, 9.5), make_result("node-4", temperature_c=None)]
    first = judge_groups(results, [], LIMITS)
    (back,) = confirm(first, [make_result("node-4")], LIMITS)
    (gone,) = confirm(first, [make_result("node-4", temperature_c=None)], LIMITS)
    assert (by_name(back)["node-4"].state, by_name(gone)["node-4"].state) == (State.NOTICE, State.BREACH)


def test_what_could_not_be_judged_at_first_is_not_well_because_another_breach_was_none() -> None:
    """Repeats 30 % apart hide a slow node; its heat is gone in the re-run. `notice` would close its open breach."""
    noisy = [10.0, 7.0, 13.0]
    results = [
        make_result(f"node-{i}", 9.5, windows=noisy, temperature_c=80.0 if i == 3 else 60.0) for i in range(1, 5)
    ]
    groups = judge_groups(results, [], LIMITS)
    assert [metric.state for metric in by_name(groups[0])["node-3"].metrics][::2] == [State.INSUFFICIENT, State.BREACH]

    (settled,) = confirm(groups, [make_result("node-3", 9.5, round=2)], LIMITS)
    node = by_name(settled)["node-3"]

    assert (node.state, node.confirmation) == (State.INSUFFICIENT, Confirmation.NOT_CONFIRMED)
    assert node.reason.startswith("samples/s: deviation 0.0 %")


@pytest.mark.parametrize(("num_runs", "widening"), [(1, 1.0), (2, 1.29099)])
def test_a_re_run_knows_less_than_the_median_of_several_runs(num_runs: int, widening: float) -> None:
    """Three nodes of one run: the reference has the variance 1/2, and (1 + 1/2) / (1 + 1/2) is 1. Of two runs each: 1/4
    and 1/2, so sqrt((1 + 1/4) / (1/2 + 1/4)) = sqrt(5 / 3).
    """
    nodes = [make_node(f"node-{i}", num_runs=num_runs) for i in (1, 2, 3)]
    assert _single_run_widening(nodes[0], make_group(nodes, "group")) == pytest.approx(widening, rel=1e-4)
