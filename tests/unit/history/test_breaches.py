"""When a breach opens and when it ends."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import pytest

from bench_image.contract.spec import Drill
from tests.builders import make_result
from tests.builders.recorded_nights import DAY_1, make_night, stored
from trainbench.core.verdicts import (
    Finding,
    Level,
    Metric,
    State,
)
from trainbench.history.history import History
from trainbench.history.run_tables import breaches
from trainbench.judging.checks.missing_nodes import ABSENT


def test_a_red_node_opens_a_breach_once_and_being_well_again_closes_it(history: History) -> None:
    for day in (1, 2):
        history.record(make_night(day, make_result(samples_per_s=9.0), states={"node-1": State.BREACH}))
    (breach,) = history.open_breaches()
    assert (breach.node, breach.campaign_id, breach.state) == ("node-1", "night-1", State.BREACH)
    assert breach.figure is not None
    assert (breach.figure.metric, breach.figure.deviation) == (Metric.SAMPLES_PER_SECOND, pytest.approx(-10.0))
    assert breach.opened_at == DAY_1 + timedelta(hours=1)
    history.record(make_night(3, make_result()))
    assert history.open_breaches() == ()
    (row,) = stored(history, breaches)
    assert (row["closed_at"], row["closed_by_campaign_id"]) == (DAY_1 + timedelta(days=2, hours=1), "night-3")


@pytest.mark.parametrize("state", [State.INSUFFICIENT, State.BUSY, State.NOT_JUDGED])
def test_a_node_that_was_not_judged_stays_as_it_was(history: History, state: State) -> None:
    history.record(make_night(1, make_result("node-1"), make_result("node-2"), states={"node-1": State.BREACH}))
    history.record(
        make_night(2, make_result("node-1"), make_result("node-2"), states={"node-1": state, "node-2": state})
    )
    assert [breach.node for breach in history.open_breaches()] == ["node-1"]


def test_a_node_that_is_still_slow_within_its_limit_closes_no_breach(history: History) -> None:
    history.record(make_night(1, make_result(), states={"node-1": State.BREACH}))
    within = make_night(2, make_result())
    (group,) = within.groups
    slow = group.nodes[0].model_copy(update={"is_watched": True})
    history.record(within.model_copy(update={"groups": (group.model_copy(update={"nodes": (slow,)}),)}))
    assert [breach.node for breach in history.open_breaches()] == ["node-1"]


def test_a_missing_node_is_a_breach_without_a_figure(history: History) -> None:
    history.record(make_night(1, make_result("node-1"), states={"node-9": State.MISSING}))
    (breach,) = history.open_breaches()
    assert (breach.node, breach.state, breach.figure) == ("node-9", State.MISSING, None)


def test_a_drill_is_over_with_its_campaign_and_says_nothing_of_the_node(history: History) -> None:
    """Its breach is never left open, it does not hide a real one, and one that is not found closes none."""
    drill = make_result(drill=Drill(slowdown_pct=50))
    for _ in range(2):  # recorded again it is the same
        history.record(make_night(1, drill, states={"node-1": State.BREACH}))
    (row,) = stored(history, breaches)
    assert (row["is_drill"], row["closed_by_campaign_id"]) == (True, "night-1")
    assert history.open_breaches() == ()

    history.record(make_night(2, make_result(), states={"node-1": State.BREACH}))
    history.record(make_night(3, drill))
    assert [breach.is_drill for breach in history.open_breaches()] == [False]
    history.record(make_night(4, make_result()))
    assert history.open_breaches() == ()


def test_a_breach_of_one_work_is_not_closed_by_being_well_at_another(history: History) -> None:
    """[J13] The node is slow at 512 tokens; somebody checks it at 2,048."""
    history.record(make_night(1, make_result(), states={"node-1": State.BREACH}))
    history.record(make_night(2, make_result(seq_length=2048)))
    assert [breach.campaign_id for breach in history.open_breaches()] == ["night-1"]


def test_an_old_campaign_recorded_late_opens_no_breach_that_is_over(history: History) -> None:
    history.record(make_night(2, make_result(), states={"node-1": State.BREACH}))
    history.record(make_night(3, make_result()))
    history.record(make_night(1, make_result(), states={"node-1": State.BREACH}))
    assert history.open_breaches() == ()


def test_recording_an_old_campaign_again_changes_no_breach(history: History) -> None:
    nights = [
        make_night(1, make_result(), states={"node-1": State.BREACH}),
        make_night(2, make_result(), states={"node-1": State.BREACH}),
        make_night(3, make_result()),
        make_night(4, make_result(), states={"node-1": State.FAILED}),
    ]
    for campaign in nights:
        history.record(campaign)
    before = stored(history, breaches)
    for campaign in nights:
        history.record(campaign)
    assert stored(history, breaches) == before
    assert [breach.campaign_id for breach in history.open_breaches()] == ["night-4"]


def test_a_campaign_that_is_recorded_again_later_moves_no_breach(history: History) -> None:
    """Its DAG run was cleared and published once more: the node has been red since the first time."""
    first = make_night(1, make_result(), states={"node-1": State.BREACH})
    history.record(first)
    history.record(first.model_copy(update={"finished_at": first.finished_at + timedelta(hours=5)}))
    (breach,) = history.open_breaches()
    assert breach.opened_at == first.finished_at


def test_two_campaigns_that_are_recorded_at_once_open_one_breach(history: History) -> None:
    """A DAG run, and one by hand that ends in the same minute."""
    history.record(make_night(1, make_result()))
    red = [make_night(day, make_result(), states={"node-1": State.BREACH}) for day in range(2, 6)]
    with ThreadPoolExecutor(len(red)) as recorders:
        list(recorders.map(history.record, red))
    (breach,) = history.open_breaches()
    assert breach.opened_at == red[0].finished_at


def test_a_breach_ends_a_week_after_its_node_was_taken_out_of_the_cluster(history: History) -> None:
    """Nobody can find it well again, and its banner would stay for ever. By hand, or in quarantine, it is not gone."""
    history.record(make_night(1, make_result("node-1"), make_result("node-2"), states={"node-1": State.BREACH}))
    quiet = Finding(
        level=Level.INFO, category=ABSENT, nodes=("node-1",), measured="", expected="", summary="in quarantine",
        resolution="nothing to do",
    )  # fmt: skip
    history.record(make_night(8, make_result("node-2")))
    history.record(make_night(9, make_result("node-2")).model_copy(update={"findings": (quiet,)}))
    history.record(make_night(10, make_result("node-2")).model_copy(update={"params": {"nodes": ["node-2"]}}))
    assert [breach.node for breach in history.open_breaches()] == ["node-1"]

    history.record(make_night(11, make_result("node-2")))
    (row,) = stored(history, breaches)
    assert (row["closed_by_campaign_id"], row["ended"]) == ("night-11", "no longer in the cluster")


def test_a_breach_recorded_late_moves_the_start_of_the_open_one_back(history: History) -> None:
    history.record(make_night(5, make_result(), states={"node-1": State.BREACH}))
    history.record(make_night(4, make_result(), states={"node-1": State.BREACH}))
    assert [breach.campaign_id for breach in history.open_breaches()] == ["night-4"]
