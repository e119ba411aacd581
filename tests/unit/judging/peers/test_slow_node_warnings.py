"""Slow, but not red."""

from __future__ import annotations

import pytest

from bench_image.contract.result import RunResult
from tests.builders import make_result
from tests.builders.verdicts import make_metric
from trainbench.core.verdicts import Level, NodeVerdict, ReferenceMode, State, Tolerances
from trainbench.judging.peers import slow_node_warnings
from trainbench.judging.peers.confirmation import confirm
from trainbench.judging.peers.node_verdicts import judge_groups, nodes_to_confirm
from trainbench.judging.peers.slow_node_warnings import slow_node_findings

LIMITS = Tolerances()


def fleet(rate: float, **fields: object) -> list[RunResult]:
    """Three nodes at 10 samples/s, node-4 at `rate`. Noise 0.1 %: half-width 0.41 %."""
    return [*(make_result(f"node-{i}", 10.0) for i in (1, 2, 3)), make_result("node-4", rate, **fields)]


def last(results: list[RunResult], limits: Tolerances = LIMITS) -> NodeVerdict:
    return judge_groups(results, [], limits)[0].nodes[-1]


@pytest.mark.parametrize(("rate", "is_watched"), [(9.74, True), (9.75, False), (9.5, True), (10.4, False)])
def test_more_than_half_of_the_limit_on_the_slow_side(rate: float, is_watched: bool) -> None:
    """Half of 5 % is 2.5 %: 9.74 is 2.6 % slow, 9.75 exactly half, 9.5 exactly at the limit, so not red."""
    node = last(fleet(rate))
    assert (node.state, node.is_watched) == (State.OK, is_watched)
    assert nodes_to_confirm(judge_groups(fleet(rate), [], LIMITS)) == ()


def test_a_red_node_is_not_watched() -> None:
    node = last(fleet(9.4))
    assert (node.state, node.is_watched) == (State.BREACH, False)


def test_within_the_noise_nothing_is_reported() -> None:
    """Windows 1 % around the whole: SD 1 %, half-width 1 % * 3.355 * sqrt(1.524) = 4.1 %: 3.5 % slow may be chance."""
    noisy = [
        make_result(f"node-{i}", rate, windows=(rate * 0.99, rate, rate * 1.01))
        for i, rate in enumerate((10.0, 10.0, 10.0, 9.65), 1)
    ]
    assert not last(noisy).is_watched
    assert last(fleet(9.65)).is_watched


def test_without_repeats_nothing_is_reported() -> None:
    rates = (10.0, 10.0, 10.0, 9.65)
    assert not last([make_result(f"node-{i}", rate, windows=(rate,)) for i, rate in enumerate(rates, 1)]).is_watched


@pytest.mark.parametrize(("again", "is_watched"), [(9.55, True), (9.9, False), (10.6, False)])
def test_a_breach_that_is_not_confirmed_is_watched_when_it_was_slow_again(again: float, is_watched: bool) -> None:
    """-5.5 % first: not confirmed at -4.5 %, but slow both times."""
    first = judge_groups(fleet(9.45), [], LIMITS)
    (group,) = confirm(first, [make_result("node-4", again, round=2)], LIMITS)
    node = group.nodes[-1]
    assert (node.state, node.is_watched) == (State.NOTICE, is_watched)
    (finding,) = slow_node_findings([group])
    assert finding.summary.startswith(
        "is slow, but" if is_watched else "was out of its limits once, and not in its re-"
    )


def test_a_confirmed_breach_is_red_and_nothing_else() -> None:
    (group,) = confirm(judge_groups(fleet(9.45), [], LIMITS), [make_result("node-4", 9.4, round=2)], LIMITS)
    assert (group.nodes[-1].state, group.nodes[-1].is_watched) == (State.BREACH, False)
    assert slow_node_findings([group]) == ()


def test_the_finding_says_by_how_much_and_what_to_do() -> None:
    groups = judge_groups(fleet(9.7), [], LIMITS)
    (finding,) = slow_node_findings(groups)
    assert (finding.level, finding.category, finding.subject) == (Level.WARNING, "watched", "node-4")
    assert finding.measured == "samples/s −3.0 %"
    assert finding.summary == "is slow, but not red: samples/s: deviation −3.0 %, limit 5.0 %, noise 0.4 %"
    assert groups[0].nodes[-1].reason.startswith("within all limits, but watched: samples/s")
    assert slow_node_findings(judge_groups(fleet(9.9), [], LIMITS)) == ()


def test_against_its_own_history_too() -> None:
    limits = Tolerances(reference=ReferenceMode.HISTORY)
    (group,) = judge_groups(fleet(9.7), [], limits, {"node-4": 10.0})
    assert group.nodes[-1].is_watched


@pytest.mark.parametrize(("noise", "watched"), [(2.9, True), (3.0, False), (None, False)])
def test_what_is_exactly_within_chance_is_not_watched(noise: float | None, watched: bool) -> None:
    rate = make_metric(9.7, 10.0, deviation=-3.0, noise=noise)
    assert slow_node_warnings.is_watched(rate) is watched
