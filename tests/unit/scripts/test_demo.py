"""What the exit status of `make demo DRILL=node-3` says."""

from __future__ import annotations

import pytest

from demo import _found_only
from trainbench.core.states import NodeState
from trainbench.core.verdicts import State, Why


@pytest.mark.parametrize(
    ("third", "fourth", "is_found"),
    [
        ((State.DRILL, Why.SLOW), (State.WELL, Why.WELL), True),
        ((State.DRILL, Why.SLOW), (State.RED, Why.SLOW), False),
        ((State.WELL, Why.WELL), (State.DRILL, Why.SLOW), False),
        ((State.RED, Why.SLOW), (State.WELL, Why.WELL), False),
        ((State.WELL, Why.WELL), (State.WELL, None), False),
    ],
)
def test_a_drill_succeeds_where_it_alone_makes_the_run_red(
    third: tuple[State, Why], fourth: tuple[State, Why], is_found: bool
) -> None:
    states = [NodeState("node-3", *third), NodeState("node-4", *fourth)]
    assert _found_only("node-3", states) == is_found
