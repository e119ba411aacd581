"""Checks of the evidence: no figure at all, missing nodes, drills, clocks."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from bench_image.contract.result import Phase, RunResult, Status, failed_result
from bench_image.contract.spec import Drill
from tests.builders import STARTED_AT, make_failed, make_result, make_spec
from tests.builders.pipelines import assessed
from tests.builders.verdicts import make_group, make_node
from tests.kube.after_fault import after_night, is_green
from trainbench.alerting import run_summary
from trainbench.alerting.run_summary import alerts
from trainbench.cli.app import ExitCode, exit_code
from trainbench.core.tables import Tone
from trainbench.core.verdicts import Level, NodeVerdict, State, Why
from trainbench.judging.checks import (
    absent_node_findings,
    campaign_times,
    clock_findings,
    gone_node_findings,
    no_figure_findings,
    undetected_drill_findings,
    unmeasured_node_findings,
)
from trainbench.params.campaign_kind import CampaignKind
from trainbench.params.campaign_params import parse_params
from trainbench.planning.nodes import AbsentNode, Fleet, GpuNode
from trainbench.planning.plan import Plan, make_plan
from trainbench.planning.planners import PLANNERS
from trainbench.pods.gangs import combine_ranks
from trainbench.reporting import verdict_text
from trainbench.results.campaign import Campaign
from trainbench.results.collect import collect

NODES = ("node-1", "node-2", "node-3", "node-4")
NO_ROOM = "no room on the node within the waiting time: 0/4 nodes are available: 1 Insufficient nvidia.com/gpu"
PLAN = make_plan(parse_params({"nodes": NODES, "rounds": 1}), Fleet(), "night-7")
BUSY = {"kind": "busy", "status": Status.INCOMPLETE, "message": NO_ROOM}
GONE = {"kind": "no_node", "status": Status.INCOMPLETE, "message": "the cluster has no node 'node-2'"}
NO_IMAGE = {"kind": "no_image", "status": Status.INCOMPLETE, "message": "the image 'bench:9' cannot be pulled"}


def failed_runs(planned: Plan, *ends: dict[str, Any]) -> list[RunResult]:
    """One failed result for each planned run, in the plan's order."""
    return [
        make_failed(spec.identity.node, **end).model_copy(update={"spec": spec})
        for spec, end in zip(planned.specs, ends, strict=True)
    ]


def campaign_of(planned: Plan, results: Sequence[RunResult]) -> Campaign:
    return assessed(planned, results, finished_at=STARTED_AT + timedelta(minutes=70))


def red_texts(campaign: Campaign) -> list[str]:
    return [alert.text for alert in alerts(campaign) if alert.level is Level.ERROR]


def test_a_node_that_left_the_cluster_after_the_plan_is_not_judged() -> None:
    """An autoscaler takes nodes away: that says nothing of them."""
    night = campaign_of(PLAN, failed_runs(PLAN, NO_IMAGE, GONE, NO_IMAGE, NO_IMAGE))
    assert [node.state for node in night.nodes] == [State.RED, State.NOT_CHECKED, State.RED, State.RED]
    assert "the cluster has no node 'node-2'" in night.nodes[1].reason


def test_a_night_in_which_all_nodes_were_busy_is_red_and_says_that_they_were_busy() -> None:
    """It was green: whoever looked at the grid took the fleet for checked, for as long as production kept it busy."""
    night = campaign_of(PLAN, failed_runs(PLAN, BUSY, BUSY, BUSY, BUSY))

    assert red_texts(night) == [
        f"night-7: no run gave a figure. 4 runs found no free node ({NO_ROOM})",
    ]
    assert verdict_text.verdict(night).startswith(
        "No run gave a figure. All 4 nodes were busy: node-1, node-2, node-3 and"
    )
    assert verdict_text.tone(night) is Tone.BAD
    assert exit_code(night) == ExitCode.RED
    note = run_summary.note(night, alerts(night), "nightly", "r1", None)
    assert "No run gave a figure." in note
    (alarm,) = night.alarms
    assert "TRAINBENCH_QUEUE_TIMEOUT_S" in alarm.resolution
    after_night("all-busy", planned=NODES, campaign=night, is_green=is_green(night))


def test_one_figure_is_enough_and_busy_nodes_beside_it_stay_quiet() -> None:
    results = failed_runs(PLAN, BUSY, BUSY, BUSY, BUSY)
    results[2] = make_result("node-3", 9.5).model_copy(update={"spec": PLAN.specs[2]})
    night = campaign_of(PLAN, results)

    assert night.alarms == ()
    assert red_texts(night) == []
    assert not verdict_text.verdict(night).startswith("No run")
    assert exit_code(night) == ExitCode.NOT_JUDGED


def test_no_measurement_at_all_heads_the_verdict_with_each_cause_and_its_number_of_runs() -> None:
    night = campaign_of(PLAN, failed_runs(PLAN, NO_IMAGE, BUSY, NO_IMAGE, NO_IMAGE))
    first, *of_nodes = red_texts(night)

    assert first == (
        "night-7: no run gave a figure. 3 runs failed (no_image: the image 'bench:9' cannot be pulled) and "
        f"1 run found no free node ({NO_ROOM})"
    )
    assert len(of_nodes) == 3


SAID = "transformers 5.23.0 of this image builds no 'llama' from this config.json: AttributeError: rope"
REFUSED = {"kind": "ContractError", "status": Status.ERROR, "message": SAID, "phase": Phase.BUILD}


@pytest.mark.parametrize("ends", [(REFUSED,) * 4, (REFUSED, BUSY, GONE, REFUSED)], ids=["all", "the free ones"])
def test_work_that_no_node_can_begin_is_the_campaign_s_fault_told_once(ends: tuple[dict[str, Any], ...]) -> None:
    """One bad config.json turned every node of the night red, with a notice for each."""
    night = campaign_of(PLAN, failed_runs(PLAN, *ends))
    (alarm,) = night.alarms

    assert night.node_states == night.red_nodes == night.unjudged_failures == ()
    of = {4: "4 runs on 4 nodes", 2: "2 runs on 2 nodes"}[ends.count(REFUSED)]
    text = "night-7: the work could begin on no node, so the campaign is at fault and no node. "
    assert red_texts(night) == [f"{text}Each of {of} says: {SAID}"]
    assert alarm.resolution.startswith("change what the error names (the campaign's model, dimensions, weights")
    assert exit_code(night) == ExitCode.RED
    assert verdict_text.verdict(night) == (
        "The work could begin on no node, so the campaign is at fault and no node. No node was judged."
    )
    assert verdict_text.next_lines(night) == (f"Next: {alarm.resolution}.",)


def test_work_that_some_node_could_begin_is_the_fault_of_the_others() -> None:
    results = failed_runs(PLAN, REFUSED, REFUSED, REFUSED, REFUSED)
    results[2] = make_result("node-3", 9.5).model_copy(update={"spec": PLAN.specs[2]})
    night = campaign_of(PLAN, results)

    assert [node.state for node in night.nodes] == [State.RED, State.RED, State.NOT_CHECKED, State.RED]
    assert night.alarms == ()


@pytest.mark.parametrize(
    "end", [{"phase": Phase.MEASURE}, {"kind": "AcceleratorError"}], ids=["while it measured", "of the GPU"]
)
def test_an_equal_failure_that_is_no_refusal_of_the_work_stays_the_nodes_fault(end: dict[str, Any]) -> None:
    night = campaign_of(PLAN, failed_runs(PLAN, *[REFUSED | end] * 4))

    assert [node.state for node in night.nodes] == [State.RED] * 4


def test_of_two_works_the_impossible_one_is_named_and_the_other_judges_the_nodes() -> None:
    """A drill is looked for where it could be seen."""
    form = {"nodes": NODES, "strategies": ["single", "fsdp"], "gpus_per_node": 2, "rounds": 1, "drill_node": "node-3"}
    plan = make_plan(parse_params(form), Fleet(), "night-7")
    results = failed_runs(plan, *[REFUSED] * 8)
    for place, spec in enumerate(plan.specs):
        if spec.placement.gpus_per_node == 1:
            rate = 5.0 if spec.identity.node == "node-3" else 9.5
            results[place] = make_result(spec.identity.node, rate).model_copy(update={"spec": spec})
    night = campaign_of(plan, results)
    (alarm,) = night.alarms

    assert {node.node: node.state for node in night.node_states} == dict.fromkeys(NODES, State.WELL) | {
        "node-3": State.DRILL
    }
    assert alarm.summary.startswith("the work of ")
    assert "fsdp" in alarm.summary


@pytest.mark.parametrize("kind", [CampaignKind.CONFIGURATIONS, CampaignKind.STRATEGIES, CampaignKind.INTERCONNECT])
def test_where_runs_are_compared_impossible_work_is_told_once_too(kind: CampaignKind) -> None:
    params = PLANNERS[kind].params({"nodes": NODES, "gpus_per_node": 1}, locally=False)
    plan = make_plan(params, Fleet(), "night-7", kind)
    night = campaign_of(plan, failed_runs(plan, *[REFUSED] * len(plan.specs)))

    assert [alarm.category for alarm in night.alarms] == ["impossible_work"]
    assert len(red_texts(night)) == 1


OOM = {"kind": "OutOfMemoryError", "status": Status.OOM, "message": "79 of 80 GB"}


@pytest.mark.parametrize(
    ("ends", "step"),
    [
        ((BUSY, BUSY, BUSY, BUSY), "no node was checked: run it again when nodes are free"),
        ((BUSY, BUSY, BUSY, NO_IMAGE), "no node was checked: fix the causes above"),
        ((OOM, OOM, OOM, OOM), "choose less work"),
        ((OOM, OOM, OOM, BUSY), "no node was checked: fix the causes above"),
        ((NO_IMAGE, NO_IMAGE, NO_IMAGE, NO_IMAGE), "no node was checked: fix the causes above"),
    ],
)
def test_the_next_step_is_that_of_all_runs_or_of_none(ends: tuple[dict[str, Any], ...], step: str) -> None:
    """To wait for free nodes helps nobody whose image is missing."""
    (alarm,) = campaign_of(PLAN, failed_runs(PLAN, *ends)).alarms

    assert alarm.resolution.startswith(step)


def test_a_plan_of_nothing_says_where_to_look() -> None:
    (alarm,) = no_figure_findings("night-7", ())

    assert (alarm.cause, alarm.expected) == ("there was no run", "at least one run")
    assert alarm.resolution == "read why each node was skipped, and change the form"


@pytest.mark.parametrize("campaign_kind", [CampaignKind.STRATEGIES, CampaignKind.CONFIGURATIONS, CampaignKind.HARDWARE])
def test_a_study_that_measured_nothing_is_red_though_no_node_is_at_fault(campaign_kind: CampaignKind) -> None:
    """Busy nodes and work that does not fit the memory turn no comparison red by themselves."""
    planner = PLANNERS[campaign_kind]
    fleet = Fleet(nodes=tuple(GpuNode(name=node, num_gpus=1, gpu_product="H200") for node in NODES))
    params = {"world_sizes": [1]} if campaign_kind is CampaignKind.STRATEGIES else {}
    planned = planner.make(planner.params(params, locally=False), fleet, "study-1")
    for end in (BUSY, OOM):
        study = campaign_of(planned, failed_runs(planned, *[end] * len(planned.specs)))
        assert exit_code(study) == ExitCode.RED
        assert any("no run gave a figure" in text for text in red_texts(study))
        assert verdict_text.verdict(study).startswith(f"0 of {len(planned.specs)} run")


NOW = datetime(2026, 11, 21, 3, 0, tzinfo=UTC)


def test_a_node_that_should_be_there_is_a_warning_and_one_taken_out_is_information() -> None:
    absent = (
        AbsentNode(name="gpu-1", reason="not ready: kubelet stopped", expected=True),
        AbsentNode(name="gpu-2", reason="in quarantine: new-driver", expected=False),
    )
    lost, parked = absent_node_findings(absent, ())

    assert (lost.level, lost.subject, lost.why, parked.why) == (Level.WARNING, "gpu-1", Why.ABSENT, None)
    assert lost.summary == "was not measured: not ready: kubelet stopped"
    assert (parked.level, parked.resolution) == (Level.INFO, "nothing to do")


def test_a_node_that_offers_fewer_gpus_than_it_has_is_reported() -> None:
    whole, part = GpuNode(name="gpu-1", num_gpus=8), GpuNode(name="gpu-2", num_gpus=7, num_gpus_lost=1)
    (actual,) = absent_node_findings((), (whole, part))

    assert (actual.subject, actual.measured, actual.expected, actual.why) == (
        "gpu-2", "7 GPUs allocatable", "8 GPUs, its capacity", Why.ABSENT,
    )  # fmt: skip


def test_a_node_that_the_cluster_no_longer_lists_is_missed_for_a_week() -> None:
    week = timedelta(days=7)
    last = {
        "here": NOW, "yesterday": NOW - timedelta(days=1), "week-ago": NOW - week,
        "longer-ago": NOW - week - timedelta(seconds=1),
    }  # fmt: skip
    at_the_edge, actual = gone_node_findings(["here"], last, NOW)

    assert (at_the_edge.subject, actual.subject) == ("week-ago", "yesterday")
    assert (actual.measured, actual.why) == ("not in the cluster's list of nodes", Why.ABSENT)
    assert "2026-11-20" in actual.summary


def test_a_busy_node_is_reported_after_three_days_without_a_figure() -> None:
    last = {"a": NOW - timedelta(days=2), "b": NOW - timedelta(days=3), "well": NOW - timedelta(days=30)}
    nodes = [make_node(name, None, why=Why.BUSY) for name in ("a", "b", "never", "b")] + [make_node("well")]
    actual = list(unmeasured_node_findings(nodes, last, NOW))

    assert [(f.subject, f.level) for f in actual] == [("b", Level.WARNING), ("never", Level.INFO)]
    assert [f.why for f in actual] == [Why.ABSENT, None]
    assert actual[0].measured == "no valid run since 2026-11-18"
    assert actual[1].measured == "no valid run as far back as the history goes"


def test_a_node_that_lost_all_its_gpus_has_the_capacity_that_it_had() -> None:
    (actual,) = absent_node_findings((), (GpuNode(name="gpu-1", num_gpus=0, num_gpus_lost=8),))
    assert (actual.measured, actual.expected) == ("0 GPUs allocatable", "8 GPUs, its capacity")
    (only,) = absent_node_findings((), (GpuNode(name="gpu-1", num_gpus=0, num_gpus_lost=1),))
    assert (only.expected, only.summary[:14]) == ("1 GPU, its capacity", "has 1 GPU that")


DRILL = Drill(slowdown_pct=20)


def drilled(*nodes: NodeVerdict) -> list[str]:
    """The headlines where each node verdict is that of one work."""
    groups = [make_group([make_node("node-1"), node], f"g{i}") for i, node in enumerate(nodes)]
    results = [make_result("node-1"), make_result("node-3", drill=DRILL)]
    return [finding.headline for finding in undetected_drill_findings(groups, results)]


def node_3(rate: float | None = 9.69, why: Why = Why.DRILL, **fields: Any) -> NodeVerdict:
    return make_node("node-3", rate, peers=10.0, why=why, is_drill=True, **fields)


def test_a_drill_that_is_found_is_no_finding() -> None:
    assert drilled(node_3(8.0, Why.SLOW)) == []


@pytest.mark.parametrize("node", [node_3(), node_3(why=Why.NOISY, state=State.NOT_CHECKED)])
def test_a_drill_that_is_not_found_is_red_and_says_why(node: NodeVerdict) -> None:
    """9.69 against 10 samples/s: -3.1 %."""
    assert drilled(node) == [
        "DRILL: node-3 was slowed on purpose, and the check did not detect it: slowed by 20 %, measured \u22123.1 %"
    ]


def test_a_node_that_is_slow_and_not_drilled_is_another_finding() -> None:
    """The state says whether a verdict is that of a drill, and what is red is told before the rate."""
    (headline,) = drilled(node_3(8.0, Why.BROKEN_GPU, state=State.RED, reason="Xid 79"))
    assert headline.endswith("did not detect it: slowed by 20 %, red: broken GPU: Xid 79")


@pytest.mark.parametrize(
    ("why", "advice", "state"),
    [
        (Why.BUSY, "run the drill again when the node is free", "not checked: busy"),
        (Why.FAILED, "repair the node, then drill it again", "red: failed"),
    ],
)
def test_a_drill_on_a_node_that_was_busy_or_failed_is_no_success(why: Why, advice: str, state: str) -> None:
    groups = [make_group([make_node("node-3", None, why=why, reason="no room on the node")], "g")]
    (finding,) = undetected_drill_findings(groups, [make_failed("node-3", drill=DRILL)])

    assert (finding.level, finding.subject, finding.resolution) == (Level.ERROR, "node-3", advice)
    assert finding.measured == f"slowed by 20 %, {state}: no room on the node"


def test_of_two_works_that_miss_a_drill_for_two_reasons_the_worse_one_says_what_to_do() -> None:
    verdicts = [make_node("node-3", None, why=why) for why in (Why.BUSY, Why.FAILED)]
    groups = [make_group([verdict], f"g{i}") for i, verdict in enumerate(verdicts)]
    (finding,) = undetected_drill_findings(groups, [make_failed("node-3", drill=DRILL)])
    assert finding.resolution == "repair the node, then drill it again"


def test_of_two_works_one_that_finds_the_drill_is_enough() -> None:
    """`independent` sees the slow GPU, `ddp` is not compared with anybody."""
    assert drilled(node_3(8.0, Why.SLOW), node_3(None, Why.NOTHING_TO_COMPARE, state=State.NOT_CHECKED)) == []


def test_of_two_works_that_miss_a_drill_the_slower_is_named() -> None:
    (headline,) = drilled(node_3(9.9), node_3(9.7))
    assert headline.endswith("measured \u22123.0 %")


BEGAN, ENDED = STARTED_AT - timedelta(minutes=1), STARTED_AT + timedelta(minutes=10)


def moved(node: str, by: timedelta) -> RunResult:
    result = make_result(node)
    return result.model_copy(update={"started_at": result.started_at + by, "finished_at": result.finished_at + by})


def test_clocks_ahead_and_behind_are_reported() -> None:
    """ahead: finished 05:00:55, the campaign ended at 02:10; behind: began 2 h before 02:00."""
    results = [make_result("well"), moved("ahead", timedelta(hours=3)), moved("behind", timedelta(hours=-2))]
    ahead, behind = clock_findings(results, BEGAN, ENDED)
    assert (ahead.subject, behind.subject) == ("ahead", "behind")
    assert "05:00" in ahead.measured  # against the campaign's end, by which it is ahead
    assert "00:00" in behind.measured  # against its start
    assert "clock that is at least 2 h 50 min ahead" in ahead.summary
    assert "clock that is at least 1 h 59 min behind" in behind.summary


def test_results_that_are_all_old_are_those_of_a_cleared_run() -> None:
    assert clock_findings([moved(f"n{i}", timedelta(hours=-5)) for i in (1, 2)], BEGAN, ENDED) == ()
    assert clock_findings([make_result()], BEGAN, ENDED) == ()


def test_the_times_of_a_run_whose_last_tasks_were_cleared_are_those_of_its_pods() -> None:
    """Monday's run, published again on Thursday: Airflow says that it started on Thursday. Its last pod ended at
    02:00:55 on Monday. A clock that is a year ahead ends the run now, and no result at all when it was planned.
    """
    planned, thursday = BEGAN + timedelta(seconds=20), STARTED_AT + timedelta(days=3)
    now = thursday + timedelta(minutes=2)
    lost = make_failed("n3").model_copy(update={"started_at": now, "finished_at": now})
    pods = [make_result("n1"), moved("n2", timedelta(minutes=-1)), lost]

    assert campaign_times(pods, planned, BEGAN, ENDED) == (BEGAN, ENDED)
    assert campaign_times(pods, planned, thursday, now) == (planned, STARTED_AT + timedelta(seconds=55))
    assert campaign_times([moved("n1", timedelta(days=365))], planned, thursday, now) == (planned, now)
    assert campaign_times([lost], planned, thursday, now) == (planned, planned)
    assert clock_findings(pods, *campaign_times(pods, planned, thursday, now)) == ()


def test_a_run_that_ends_before_it_begins_is_a_failed_one_with_the_reason() -> None:
    result = make_result()
    document = result.model_dump(mode="json") | {"finished_at": "2026-11-20T02:00:00Z"}
    (failed,) = collect([result.spec], [json.dumps(document)], ENDED)
    assert failed.status is Status.ERROR
    assert failed.error is not None
    assert "lies before started_at" in failed.error.message


def test_a_result_that_never_came_hides_no_clock() -> None:
    """It stands first; whoever said that it did not come did so by another clock."""
    (ahead,) = clock_findings(
        [make_failed("lost"), moved("ahead", timedelta(hours=3)), make_result("well")], BEGAN, ENDED
    )
    assert ahead.subject == "ahead"


def test_a_gang_is_told_by_one_clock_and_its_node_is_named() -> None:
    """Its second node is 2 h ahead: the run lasted 2 h, and the first node's clock was blamed."""
    spec = make_spec(node="node-1", peers=("node-2",), nodes=2, gpus_per_node=1, strategy="ddp", recipe="full")
    here, there = make_result("node-1"), moved("node-2", timedelta(hours=2))
    whole = combine_ranks(spec, [here, there])
    wrong = {"kind": "RuntimeError", "message": "it broke", "phase": Phase.MEASURE, "status": Status.ERROR}
    broken = combine_ranks(spec, [here, failed_result(spec, at=there.finished_at, **wrong)])
    (ahead,) = clock_findings([broken.model_copy(update={"context": there.context}), here], BEGAN, ENDED)

    assert whole.finished_at - whole.started_at == here.finished_at - here.started_at
    assert clock_findings([whole], BEGAN, ENDED) == ()
    assert ahead.nodes == ("node-2",)


def test_a_clock_may_be_a_minute_off() -> None:
    """The builder's run ends 55 s after 02:00; the campaign ends one minute before that, then a second more."""
    ended = make_result().finished_at - timedelta(minutes=1)
    assert clock_findings([make_result("a"), make_result("b")], BEGAN, ended) == ()
    assert len(clock_findings([make_result("a"), make_result("b")], BEGAN, ended - timedelta(seconds=1))) == 2
