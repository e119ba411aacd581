"""Since when each node could not be judged."""

from __future__ import annotations

from datetime import timedelta

from tests.builders import make_result
from tests.builders.recorded_nights import DAY_1, make_night
from trainbench.core.verdicts import (
    State,
)
from trainbench.history.history import History
from trainbench.judging.over_time.undecided_streaks import Streak


def test_since_when_each_node_could_not_be_judged(history: History) -> None:
    both = (make_result("node-1"), make_result("node-2"))
    noisy = {"node-1": State.INSUFFICIENT}
    for day, states in enumerate([{}, noisy, {"node-1": State.BUSY}, noisy, {"node-2": State.INSUFFICIENT}], start=1):
        history.record(make_night(day, *both, states=states))
    ended = DAY_1 + timedelta(hours=1)

    assert history.undecided_before("node_consistency", "", ended + timedelta(days=4)) == {
        "node-1": Streak(ended + timedelta(days=1), 2)
    }
    assert set(history.undecided_before("node_consistency", "night-5", ended + timedelta(days=9))) == {"node-1"}
    assert set(history.undecided_before("node_consistency", "", ended + timedelta(days=9))) == {"node-2"}
    assert history.undecided_before("another_dag", "", ended + timedelta(days=9)) == {}


def test_work_that_ran_on_one_node_only_makes_nobody_undecided_who_was_judged_beside_it(history: History) -> None:
    both = make_night(1, make_result("node-1"), make_result("node-2"))
    alone = make_night(1, make_result("node-1", seq_length=1024), states={"node-1": State.INSUFFICIENT})
    costs = (*both.costs, *alone.costs)
    history.record(both.model_copy(update={
        "results": (*both.results, *alone.results), "groups": (*both.groups, *alone.groups), "costs": costs,
    }))  # fmt: skip
    assert history.undecided_before("node_consistency", "", DAY_1 + timedelta(days=9)) == {}
