"""When a node that lost throughput is back, and when it has lost more."""

from __future__ import annotations

import pytest

from trainbench.core.verdicts import RateChange
from trainbench.judging.rate_changes import is_back, is_worse


def change(after: float, limit_pct: float = 5.0) -> RateChange:
    return RateChange(node="node-1", fingerprint="f", before=10.0, after=after, limit_pct=limit_pct)


@pytest.mark.parametrize(("rate", "back"), [(10.0, True), (9.75, True), (9.74, False), (9.5, False), (10.4, True)])
def test_a_node_is_back_when_it_lost_less_than_half_of_what_counts(rate: float, back: bool) -> None:
    """The limit is 5 %: 9.75 of 10 is 2.5 % less, half of it; 9.74 is more."""
    assert is_back(rate, change(9.0)) is back


@pytest.mark.parametrize(("after", "worse"), [(8.55, False), (8.54, True), (9.5, False)])
def test_a_node_is_worse_when_it_lost_as_much_again(after: float, worse: bool) -> None:
    """From 9.0, 5 % less are 8.55; 8.54 is more than that."""
    assert is_worse(change(after), change(9.0)) is worse
