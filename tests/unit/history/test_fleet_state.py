"""Each node as it stands now, read from recorded nights."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from sqlalchemy import event, false, true

from tests.builders import make_failed, make_result
from tests.builders.nights import ENDED_AT, night
from tests.builders.recorded_nights import stored
from tests.builders.three_nights import three_nights
from tests.builders.verdicts import make_finding
from trainbench.cluster.node_marks import Mark, marked
from trainbench.core.states import FRESH
from trainbench.core.verdicts import Finding, Level, State, Why
from trainbench.history.fleet_state import SPEND_DAYS, FleetState, nodes_now
from trainbench.history.history import History
from trainbench.history.tables import marks, works
from trainbench.params.campaign_kind import CampaignKind

pytestmark = pytest.mark.both_databases

DAY = timedelta(days=1)
NIGHT_3 = ENDED_AT + 2 * DAY
RUN_USD = 55 / 3600 * 0.6  # what one run of 55 s costs at the builders' price


def state_of(history: History, now_h: float = 1.0) -> FleetState:
    """So many hours after the third night."""
    return history.fleet_state(NIGHT_3 + timedelta(hours=now_h), FRESH)


def whys(state: FleetState) -> dict[str, Why]:
    return {node.node: node.state.why for node in state.nodes}


def test_a_study_that_judges_no_node_is_no_verdict(history: History) -> None:
    three_nights(history)
    study = night(5, [make_result("node-1")], campaign_kind=CampaignKind.STRATEGIES, suite="strategy_scaling")
    history.record(study.model_copy(update={"groups": ()}))
    assert state_of(history, now_h=49).judged_at == NIGHT_3


def test_a_red_node_stays_red_until_its_notice_ends(history: History) -> None:
    """Well for one night after it was slow: the notice's own reason and date. Then it fails, which is worse news."""
    whole = {"node-1": 9.0, "node-2": 10.0}
    history.record(night(1, whole, {"node-1": Why.SLOW}))
    history.record(night(3, whole | {"node-1": 10.0}))
    slow = state_of(history).nodes[0].state
    assert (slow.state, slow.why, slow.since) == (State.RED, Why.SLOW, ENDED_AT)
    assert slow.reason == "samples/s −10.0 % against the median of 3 peers"

    history.record(night(4, {"node-2": 10.0}, {"node-1": Why.MISSING}))
    missing = history.fleet_state(NIGHT_3 + 2 * DAY, FRESH).nodes[0].state
    assert (missing.why, missing.since) == (Why.MISSING, ENDED_AT)


def test_a_node_that_asks_for_a_look_does_so_since_its_notice_opened(history: History) -> None:
    for day in (1, 2, 3):
        history.record(night(day, {"node-1": 9.7, "node-2": 10.0}, {"node-1": Why.BEHIND}))
    state = state_of(history).nodes[0].state
    assert (state.state, state.since) == (State.LOOK, NIGHT_3 - DAY), "it opened in the second night"
    assert state.reason == "samples/s −3.0 % against the median of 3 peers"


def test_an_absent_node_asks_for_a_look_and_is_not_stale(history: History) -> None:
    history.record(night(1, {"node-1": 10.0, "node-2": 10.0}))
    absent = make_finding("node-2", Why.ABSENT, measured="not Ready")
    for day in (2, 3):
        history.record(night(day, {"node-1": 10.0}, findings=(absent,)))
    state = state_of(history, now_h=30).nodes[1].state
    assert (state.node, state.state, state.why) == ("node-2", State.LOOK, Why.ABSENT)


def test_a_fleet_that_nobody_checks_stays_and_grows_stale(history: History) -> None:
    """100 days later: red stays red, what was well is stale, and each verdict keeps its time."""
    state = state_of(three_nights(history), now_h=100 * 24)

    assert set(whys(state).values()) == {Why.STALE, Why.MISSING, Why.SLOW}
    assert state.nodes[0].state.reason == "last on 3 Nov 2026"
    assert {node.judged_at for node in state.nodes} == {NIGHT_3}
    assert state.spends == ()


def test_a_node_without_a_verdict_for_more_than_a_week_leaves_unless_a_notice_is_open(history: History) -> None:
    history.record(night(1, {"node-1": 10.0, "node-2": 10.0, "node-3": 9.0}, {"node-3": Why.SLOW}))
    here = []
    for day in (8, 9):  # of chosen nodes: it does not say that node-3 is out of the cluster, and so closes no notice
        history.record(night(day, {"node-1": 10.0}, params={"nodes": ["node-1"]}))
        here.append({node.node: node.judged_at for node in history.fleet_state(ENDED_AT + day * DAY, FRESH).nodes})

    assert here == [
        {"node-1": ENDED_AT + 7 * DAY, "node-2": ENDED_AT, "node-3": ENDED_AT},
        {"node-1": ENDED_AT + 8 * DAY, "node-3": ENDED_AT},
    ]


def test_named_nodes_stand_as_their_latest_verdict_of_the_time_says(history: History) -> None:
    history.record(night(1, {"node-1": 9.0, "node-2": 10.0}, {"node-1": Why.SLOW}))
    with history.engine.connect() as connection:
        states = nodes_now(connection, {"node-1"}, ENDED_AT, FRESH, works.c.at >= ENDED_AT, of_notices=false())
    assert [(each.node, each.state.why) for each in states] == [("node-1", Why.SLOW)]


def test_of_named_nodes_no_other_verdicts_are_read(history: History) -> None:
    """node-3 was judged in the first night alone, so all three nights are looked through."""
    for day, names in ((1, ("node-1", "node-2", "node-3")), (2, ("node-1", "node-2")), (3, ("node-1", "node-2"))):
        history.record(night(day, dict.fromkeys(names, 10.0)))
    read: list[str] = []

    def keep(_: Any, __: Any, statement: str, parameters: Any, *___: Any) -> None:
        read.extend([str(parameters)] if "node_verdicts.node_why" in statement else [])

    event.listen(history.engine, "before_cursor_execute", keep)
    with history.engine.connect() as connection:
        (node,) = nodes_now(connection, {"node-3"}, NIGHT_3, timedelta(days=9), true(), of_notices=false())
    assert node.state.why is Why.WELL
    assert ["node-3" in parameters for parameters in read] == [True] * 3


def test_a_node_that_its_dag_found_absent_is_absent_there_although_another_dag_judged_it_later(
    history: History,
) -> None:
    absent = make_finding("node-2", Why.ABSENT, measured="not Ready")
    history.record(night(1, {"node-1": 10.0}, findings=(absent,)))
    history.record(night(2, {"node-2": 10.0}, suite="b"))
    of_dag = works.c.suite != "b"
    with history.engine.connect() as connection:
        states = nodes_now(connection, {"node-1", "node-2"}, ENDED_AT + DAY, FRESH, of_dag, of_dag, false())
    assert [(each.node, each.state.why) for each in states] == [("node-1", Why.WELL), ("node-2", Why.ABSENT)]


def test_a_node_is_marked_from_the_night_that_marks_it_until_it_is_freed(history: History) -> None:
    mark = Mark(instance="trainbench", campaign_id="night-2", at=NIGHT_3, groups=("work",), reason="slow")
    act = marked("node-1", "the taint trainbench.io/breach:NoSchedule", mark, None)
    rates = {"node-1": 9.0, "node-2": 10.0}

    def is_marked(day: int, *findings: Finding, suite: str = "a") -> bool:
        of_night = {"suite": suite, "campaign_id": f"{suite}-{day}", "marks_are_known": True}
        history.record(night(day, rates, findings=findings, **of_night))
        return history.fleet_state(ENDED_AT + day * DAY, FRESH).nodes[0].is_marked

    warned = make_finding("node-1", Why.HOT)
    kept = act.model_copy(update={"level": Level.INFO})
    assert not is_marked(0, warned, kept), "another warning, and a mark that was not set"
    assert [is_marked(1, act), is_marked(2, suite="b"), is_marked(2, act), is_marked(3)] == [True, True, True, False]
    assert len(stored(history, marks)) == 1
    assert is_marked(4, act)
    history.end_marks(["node-1"], "ada", NIGHT_3)
    assert not any(node.is_marked for node in history.fleet_state(ENDED_AT + 4 * DAY, FRESH).nodes)


def test_a_drill_gives_a_state_and_no_figures(history: History) -> None:
    history.record(night(3, {"node-1": 10.0, "node-2": 5.0}, {"node-2": Why.SLOW}, drilled=["node-2"]))
    drilled = state_of(history).nodes[1]

    assert (drilled.state.state, drilled.works, drilled.num_open_notices) == (State.DRILL, (), 0)


def test_of_each_probe_the_lowest_share_of_the_latest_campaign_is_kept(history: History) -> None:
    """Two works on an H200: copies of 54.4 and 32 GB/s of 64 are 85 and 50 %; memory 4,080 of 4,800 is 85 %."""
    probes = {"memory_gb_per_s": 4080.0, "peer_gb_per_s": None, "matmul_fp8_tflops": None}
    works = [
        make_result("node-1", h2d_gb_per_s=gb_per_s, probes=probes, seq_length=length, group_id=f"work-{length}")
        for gb_per_s, length in ((54.4, 512), (32.0, 1024))
    ]
    history.record(night(1, {"node-1": 10.0}))
    history.record(night(2, works))
    (node,) = state_of(history, 25.0).nodes

    assert node.probe_shares_pct["h2d"] == pytest.approx(50)
    assert node.probe_shares_pct["memory"] == pytest.approx(85)
    history.record(night(3, [make_failed("node-1")]))
    assert state_of(history, 49.0).nodes[0].probe_shares_pct == {}


def test_spend_counts_every_run_and_a_gang_shares_it(history: History) -> None:
    """node-1: one run of its own and half of the gang's; node-2: the other half, and a failed run without a price."""
    gang = make_result("node-1", 20.0, strategy="ddp", nodes=2, peers=("node-2",))
    history.record(night(3, [make_result("node-1", 10.0), gang, make_failed("node-2")]))
    with history.engine.connect() as connection:
        total = connection.exec_driver_sql("SELECT sum(run_usd) FROM runs").scalar()
    first, second = state_of(history).spends

    assert first.usd is not None
    assert second.usd is not None
    assert first.usd - second.usd == pytest.approx(RUN_USD)
    assert first.usd + second.usd == pytest.approx(total)
    assert (first.num_unpriced, second.num_unpriced) == (0, 1)


def test_a_run_that_is_older_than_the_window_is_not_spend(history: History) -> None:
    history.record(night(1, {"node-1": 10.0}))
    assert history.fleet_state(ENDED_AT + (SPEND_DAYS - 1) * DAY, FRESH).spends
    assert not history.fleet_state(ENDED_AT + (SPEND_DAYS + 1) * DAY, FRESH).spends


def test_an_empty_history_has_no_fleet(history: History) -> None:
    assert state_of(history) == FleetState(None, (), ())
