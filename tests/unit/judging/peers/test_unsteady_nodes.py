"""The words for a node whose own runs scatter, and for disturbed runs."""

from __future__ import annotations

import pytest

from tests.builders.verdicts import make_group, make_node
from trainbench.core.verdicts import Level
from trainbench.judging.noise import Noise, Run
from trainbench.judging.peers.scatter import OwnScatter
from trainbench.judging.peers.unsteady_nodes import disturbed_node_findings, scatter_phrase


def own(what: str, factor: float) -> OwnScatter:
    return OwnScatter(Noise(0.1, 2), factor, what)


@pytest.mark.parametrize(("factor", "times"), [(9.94, "9.9"), (10.0, "10"), (12.4, "12")])
def test_from_ten_times_on_without_decimals(factor: float, times: str) -> None:
    runs = [Run(1, 10.0, (10.0, 5.0, 10.0))]
    assert scatter_phrase(runs, own("windows", factor)).startswith(
        f"its windows scatter {times} times more than its peers'"
    )


def test_the_window_farthest_from_the_median_of_its_own_run_is_named() -> None:
    """Round 2 runs at 20, where 24 is 20 % off; in round 1 the 7 of 10 is 30 % off. Of the others the median counts."""
    runs = [Run(1, 9.0, (10.0, 10.2, 7.0, 10.4)), Run(2, 21.0, (20.0, 20.0, 24.0)), Run(3, 5.0, (5.0,))]
    assert scatter_phrase(runs, own("windows", 20.0)).endswith(
        "(round 1: window 3 of 4 at 7.000 samples/s, the others 10.20)"
    )


def test_of_equally_odd_windows_the_first_of_the_first_round_is_named() -> None:
    runs = [Run(2, 10.0, (10.0, 5.0, 10.0)), Run(1, 10.0, (5.0, 10.0, 10.0, 10.0, 5.0))]
    assert "(round 1: window 1 of 5 at 5.000 samples/s, the others 10.00)" in scatter_phrase(runs, own("windows", 20.0))


def test_the_round_farthest_from_the_median_is_named() -> None:
    """10, 9.8, 10.2 and 8: the median of all is 9.9, and of the others 10. Of equal ones the first is named."""
    rates = ((1, 10.0), (2, 9.8), (3, 10.2), (4, 8.0))
    assert scatter_phrase([Run(r, rate, ()) for r, rate in rates], own("rounds", 20.0)) == (
        "its rounds scatter 20 times more than its peers' (round 4 at 8.000 samples/s, the others 10.00)"
    )
    pair = [Run(2, 12.0, ()), Run(1, 8.0, ()), Run(3, 10.0, ())]
    assert "(round 1 at 8.000 samples/s, the others 11.00)" in scatter_phrase(pair, own("rounds", 20.0))


def test_disturbed_runs_are_reported_and_need_no_action() -> None:
    group = make_group([make_node("node-1", num_runs=5, disturbed_rounds=(2, 4)), make_node("node-2")], "group")
    (finding,) = disturbed_node_findings([group])
    assert (finding.level, finding.subject, finding.measured) == (Level.INFO, "node-1", "round 2 and 4")
    assert finding.summary == "was disturbed in round 2 and 4, and not in most of its 5 runs, which judge it"


def test_of_two_windows_that_differ_the_first_is_named() -> None:
    """Both lie equally far from their median of 8."""
    runs = [Run(1, 8.0, (6.0, 10.0)), Run(2, 9.0, (9.0,))]
    assert "(round 1: window 1 of 2 at 6.000 samples/s, the others 10.00)" in scatter_phrase(runs, own("windows", 20.0))
