"""The pipeline: results become one campaign with verdicts, findings and prices, and its reports."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from bench_image.contract.options import Strategy
from bench_image.contract.result import Chosen, RunResult
from bench_image.contract.spec import RunSpec
from tests.builders import STARTED_AT, make_independent, make_result
from tests.builders.pipelines import StubHistory, assessed, judged
from tests.conftest import GOLDEN_DIR
from trainbench.alerting.alerts import alerts
from trainbench.cli.app import ExitCode, exit_code
from trainbench.core.tables import Tone
from trainbench.core.verdicts import Level, RateChange, State
from trainbench.judging.conditions_of_campaign import conditions
from trainbench.judging.history_reads import NoHistory
from trainbench.judging.node_condition import Condition
from trainbench.judging.over_time.lasting_slowdowns import Slowdown
from trainbench.judging.over_time.node_history import records_of
from trainbench.params.campaign_kind import CampaignKind
from trainbench.params.campaign_params import parse_params
from trainbench.pipeline import assess, judged_before, report
from trainbench.planning.nodes import Fleet, GpuNode, named_nodes
from trainbench.planning.plan import Plan, make_plan
from trainbench.planning.planners import PLANNERS
from trainbench.reporting import verdict_text
from trainbench.results.artefacts import open_store
from trainbench.results.campaign import Campaign
from trainbench.results.collect import collect

NODES = ("node-1", "node-2", "node-3", "node-4")


def plan(**params: Any) -> Plan:
    return make_plan(parse_params({"nodes": NODES, **params}), Fleet(), "campaign-1")


def results(planned: Plan, *rates: float) -> list[RunResult]:
    """One result for each planned run of round 1, in the plan's order."""
    return [
        make_result(spec.identity.node, rate).model_copy(update={"spec": spec})
        for spec, rate in zip(planned.specs, rates, strict=True)
    ]


def test_a_campaign_holds_every_run_priced_and_judged() -> None:
    """9.5 samples/s at $2.00 per GPU-hour: 1000 / 9.5 s * 2 / 3600 = $0.05848 per 1K samples."""
    planned = plan(usd_per_gpu_hour=2.0)
    campaign = assessed(planned, results(planned, 9.5, 9.5, 9.5, 9.5))

    assert [node.state for node in campaign.nodes] == [State.OK] * 4
    assert len(campaign.costs) == len(campaign.results) == 4
    assert campaign.results[0].cost.cost_per_1000_samples_usd == pytest.approx(0.05848, abs=1e-5)
    assert campaign.costs[0].usd_per_1000_samples == campaign.results[0].cost.cost_per_1000_samples_usd


def test_a_price_of_the_table_says_how_far_others_lie_and_a_given_one_does_not() -> None:
    for usd_per_gpu_hour, is_expected in ((None, True), (2.0, False)):
        planned = plan(usd_per_gpu_hour=usd_per_gpu_hour)
        (apart,) = {cost.price_spread for cost in assessed(planned, results(planned, 9.5, 9.5, 9.5, 9.5)).costs}
        assert (apart is not None) is is_expected
        assert apart is None or apart.low_usd_per_gpu_hour < apart.high_usd_per_gpu_hour


def test_errors_come_first_among_the_findings() -> None:
    planned = plan()
    levels = [finding.level for finding in assessed(planned, results(planned, 9.5, 7.0, 9.5, 9.5)).findings]

    assert levels[0] == "error"
    assert levels == sorted(levels, key=["error", "warning", "info"].index)


def test_what_the_gpus_said_and_odd_probes_are_among_the_findings() -> None:
    planned = plan()
    broken, odd, *others = results(planned, 9.5, 9.5, 9.5, 9.5)
    (gpu,) = broken.telemetry.gpus
    telemetry = broken.telemetry.model_copy(update={"gpus": (gpu.model_copy(update={"xids": {"79": 1}}),)})
    slow_link = make_result(h2d_gb_per_s=12.1).probes
    campaign = assessed(
        planned,
        [broken.model_copy(update={"telemetry": telemetry}), odd.model_copy(update={"probes": slow_link}), *others],
    )

    found = {finding.category: (finding.level, finding.nodes) for finding in campaign.findings}
    assert found["xid"] == (Level.ERROR, ("node-1",))
    assert found["probe_odd"] == (Level.WARNING, ("node-2",))


def test_own_history_as_the_reference_judges_each_node_by_its_past() -> None:
    """node-2 at 9.5 is as fast as its peers, but was at 10.5: 9.5 / 10.5 - 1 = -9.5 %."""
    planned = plan(reference="history")
    (group,) = judged(
        planned,
        results(planned, 9.5, 9.5, 9.5, 9.5),
        StubHistory(
            rates=lambda run: [10.3, 10.4, 10.5, 10.6, 10.7] if run.spec.identity.node == "node-2" else [9.5] * 5
        ),
    ).verdict.groups
    states = {node.node: node.state for node in group.nodes}

    assert states == {"node-1": State.OK, "node-2": State.BREACH, "node-3": State.OK, "node-4": State.OK}


def test_own_history_of_four_nights_is_no_reference_yet() -> None:
    planned = plan(reference="history")
    history = StubHistory(rates=lambda _: [10.5] * 4)
    (group,) = judged(planned, results(planned, 9.5, 9.5, 9.5, 9.5), history).verdict.groups

    assert {node.state for node in group.nodes} == {State.NO_BASELINE}


def test_own_history_is_that_of_the_work_which_is_compared() -> None:
    """node-1's program chose micro-batch 2 in its second round, at which it always was a third slower."""
    planned = plan(reference="history", micro_batch_size="auto", rounds=2)
    measured = results(planned, *[9.5] * 8)
    stray = Chosen(micro_batch_size=2, gradient_checkpointing=True, why="no room", execution={})
    measured[4] = measured[4].model_copy(update={"chosen": stray})
    history = StubHistory(rates=lambda run: [6.3 if run.chosen is stray else 9.5] * 5)
    (group,) = judged(planned, measured, history).verdict.groups

    assert [node.state for node in group.nodes] == [State.OK] * 4


def test_peers_are_the_reference_whatever_a_node_reached_before() -> None:
    planned = plan()
    measured = results(planned, 9.5, 9.5, 9.5, 9.5)
    before = judged(planned, measured, StubHistory(rates=lambda _: [12.0] * 9)).verdict

    assert before.groups == judged(planned, measured).verdict.groups
    assert {verdict.state for verdict in before.history} == {State.BREACH}


class NotAsked(NoHistory):
    def baseline_rates(self, results: Sequence[RunResult]) -> Sequence[Sequence[float]]:
        raise AssertionError("the verdict was given before")


def test_the_verdict_is_given_once_and_handed_on_as_json() -> None:
    """node-2 is 26 % slow: it breaches, is run again, and the verdict that a task handed on settles it."""
    planned = plan(rounds=1)
    first = judged(planned, results(planned, 9.5, 7.0, 9.5, 9.5))
    stored = first.verdict.model_dump_json()
    again = judged_before(replace(first.measured, history=NotAsked()), stored)
    (rerun,) = [make_result(spec.identity.node, 7.0).model_copy(update={"spec": spec}) for spec in again.rerun_specs]

    assert again.verdict == first.verdict
    assert [node.confirmation for node in assess(replace(again, reruns=(rerun,))).red_nodes] == ["confirmed"]


def test_a_verdict_on_other_results_is_not_taken_over() -> None:
    """A pod's result came in after the task `judge`: the failed run that stood for it has another verdict."""
    planned = plan(rounds=1)
    early, late = results(planned, 9.5, 7.0, 9.5, 9.5), results(planned, 9.5, 9.5, 9.5, 9.5)
    stored = judged(planned, early).verdict.model_dump_json()
    measured = judged(planned, late).measured

    assert judged_before(measured, stored).suspects == ()
    assert judged_before(measured, "{}").suspects == judged_before(measured, None).suspects == ()


def test_a_run_that_gave_no_result_has_one_verdict_whenever_it_is_collected() -> None:
    """The time of a result that was made up is that of its collection, and no evidence."""
    planned = plan(rounds=1)
    payloads = [None, *(run.model_dump(mode="json") for run in results(planned, 9.5, 9.5, 9.5, 9.5)[1:])]
    early, late = (tuple(collect(planned.specs, payloads, STARTED_AT + timedelta(minutes=m))) for m in (1, 2))
    verdict = judged(planned, early).verdict

    assert early != late
    assert verdict.is_of(late)


def test_publish_writes_every_file_and_again_replaces_them(tmp_path: Path) -> None:
    planned, store = plan(), open_store(str(tmp_path))
    campaign = assessed(planned, results(planned, 9.5, 9.5, 9.5, 9.5))
    first = report(campaign, store)
    second = report(campaign, store)

    assert first == second
    assert {"metrics.csv", "BENCHMARK_REPORT.md", "report.html", "COST_REPORT.md", "plots/node_variance.png"} <= set(
        first
    )
    assert all(Path(address).is_file() for address in first.values())
    assert store.read_campaign("campaign-1") == campaign
    assert len(store.read_results("campaign-1").results) == 4


def test_own_history_is_that_of_the_same_strategy() -> None:
    """ddp on two GPUs is twice as fast as single; each is at its own past, and none is in breach."""
    planned = plan(reference="history", strategies=["single", "ddp"], gpus_per_node=2)
    measured = results(planned, *[9.5] * 4, *[19.0] * 4)
    history = StubHistory(rates=lambda run: [9.5 * run.spec.placement.world_size] * 5)
    groups = judged(planned, measured, history).verdict.groups

    assert [node.state for group in groups for node in group.nodes] == [State.OK] * 8


def test_a_node_is_not_missed_where_the_plan_skips_it() -> None:
    nodes = (*named_nodes(NODES), GpuNode(name="node-5", num_gpus=1))
    planned = make_plan(
        parse_params({"strategies": ["single", "ddp"], "gpus_per_node": 2}), Fleet(nodes=nodes), "campaign-1"
    )
    groups = judged(planned, results(planned, *[9.5] * 5, *[19.0] * 4)).verdict.groups

    assert {state for group in groups for state in [node.state for node in group.nodes]} == {State.OK}
    assert sorted(len(group.nodes) for group in groups) == [4, 5]


def test_runs_over_several_nodes_judge_no_node() -> None:
    planned = plan()
    gang = make_result("node-1", 30.0, strategy="fsdp", nodes=2, gpus_per_node=2)
    campaign = assessed(planned, [*results(planned, 9.5, 9.5, 9.5, 9.5), gang])

    assert len(campaign.groups) == 1
    assert gang.spec.identity.run_id in {result.spec.identity.run_id for result in campaign.results}


def test_the_title_says_what_differs() -> None:
    planned = plan(strategies=["single", "zero2", "zero3"], gpus_per_node=2)

    assert assessed(planned, results(planned, *[9.5] * 12)).title == (
        "mistral-7b qlora, batch 8 x 512 tokens, single, zero2 and zero3, on 4 nodes, 1 and 2 GPUs of each"
    )


def test_a_node_is_missed_only_in_the_work_that_was_planned_for_it() -> None:
    """4-GPU and 1-GPU nodes: the second kind has no `ddp`, and is not missing there."""
    nodes = [GpuNode(name=name, num_gpus=gpus) for name, gpus in zip(NODES, (4, 4, 4, 1), strict=True)]
    planned = make_plan(parse_params({"strategies": ["single", "ddp"]}), Fleet(nodes=tuple(nodes)), "campaign-1")
    groups = judged(planned, results(planned, *[9.5] * 7)).verdict.groups
    ddp, single = sorted(groups, key=lambda group: len(group.nodes))

    assert [node.node for node in ddp.nodes] == list(NODES[:3])
    assert [node.node for node in single.nodes] == list(NODES)
    assert {node.state for node in (*ddp.nodes, *single.nodes)} == {State.OK}


def test_a_fleet_of_nodes_with_1_4_and_8_gpus_is_judged_gpu_by_gpu_and_nobody_is_missed() -> None:
    """The default night: `ddp` on 8 GPUs ran on one node only, which is judged by its GPUs all the same."""
    sizes = {"n1": 4, "n2": 4, "n3": 4, "n4": 8, "n5": 1}
    fleet = Fleet(nodes=tuple(GpuNode(name=name, num_gpus=gpus) for name, gpus in sizes.items()))
    planned = make_plan(PLANNERS[CampaignKind.NODES].params({}, locally=False), fleet, "campaign-1")
    campaign = assessed(planned, [_measured(spec) for spec in planned.specs])
    by_group = {group.group_id: {node.node: len(node.gpus) for node in group.nodes} for group in campaign.groups}

    assert {node.node: node.condition for node in conditions(campaign)} == dict.fromkeys(sizes, Condition.WELL)
    assert sorted(by_group.values(), key=len) == [
        {"n4": 0}, {"n1": 0, "n2": 0, "n3": 0}, {"n1": 4, "n2": 4, "n3": 4, "n4": 8, "n5": 0},
    ]  # fmt: skip
    assert campaign.title.endswith("independent and ddp, on 5 nodes, 1, 4 and 8 GPUs of each")


def _measured(spec: RunSpec) -> RunResult:
    """10 samples/s on each GPU."""
    if spec.placement.strategy is not Strategy.INDEPENDENT:
        return make_result(spec.identity.node, 10.0 * spec.placement.gpus_per_node).model_copy(update={"spec": spec})
    return make_independent(spec.identity.node, [10.0] * spec.placement.gpus_per_node).model_copy(update={"spec": spec})


def test_a_drill_that_is_not_found_is_among_the_findings_and_heads_the_verdict() -> None:
    """9.3 against 9.6 samples/s: -3.1 %, within the limit of 5 %."""
    planned = plan(drill_node="node-3", drill_slowdown_pct=20)
    campaign = assessed(planned, results(planned, 9.6, 9.6, 9.3, 9.6))
    measured = "slowed by 20 %, measured \u22123.1 %, verdict ok"

    assert verdict_text.verdict(campaign).startswith(f"Drill not detected: node-3 ({measured}). ")
    assert verdict_text.tone(campaign) is Tone.BAD
    (alert,) = [alert for alert in alerts(campaign) if alert.level is Level.ERROR]
    assert (alert.nodes, alert.measured, alert.is_drill) == (("node-3",), measured, True)
    assert exit_code(campaign) is ExitCode.RED


def test_a_published_campaign_is_readable() -> None:
    published = sorted(GOLDEN_DIR.parents[1].glob("docs/results/campaigns/h200-aa-*/summary/verdict.json"))

    assert published
    for path in published:
        campaign = Campaign.model_validate_json(path.read_bytes())
        assert len(campaign.results) == 5
        assert campaign.results[0].missing["chosen"] == "not measured by the program of that time"


def test_a_slowdown_that_comes_with_an_update_is_dated_and_no_baseline_hides_it() -> None:
    """The history key starts anew with a driver, so the past is empty; the trail is not. 9.0 / 9.5 - 1 = -5.3 %."""
    planned = plan()
    measured = results(planned, 9.0, 9.0, 9.0, 9.0)
    nights = [(i, 9.5, "575.1") for i in range(9, 2, -1)] + [(2, 9.0, "580.65.06"), (1, 9.0, "580.65.06")]
    earlier = [
        point
        for days, rate, driver in nights
        for point in records_of(
            [
                make_result(spec.identity.node, rate, driver=driver).model_copy(
                    update={"spec": spec.changed(identity={"campaign_id": f"night-{days}"})}
                )
                for spec in planned.specs
            ],
            STARTED_AT - timedelta(days=days),
        )
    ]
    # Not there tonight: nobody knows whether the update slowed it.
    away = [replace(point, node="away", samples_per_second=9.5) for point in earlier if point.node == "node-1"]
    campaign = assessed(planned, measured, (), StubHistory(points=[*earlier, *away]))
    (step,) = (finding for finding in campaign.findings if finding.category == "step_slower")

    assert {verdict.state for verdict in campaign.history} == {State.NO_BASELINE}
    assert step.subject == "node-1, node-2, node-3 and node-4"
    assert step.summary == (
        "are 5.3 % slower since 19 Nov 2026, when the driver went from 575.1 to 580.65.06; so are all nodes that got "
        "this change"
    )


def test_a_node_that_is_still_slower_is_not_called_spared_by_the_change_that_slowed_it() -> None:
    """The trail of node-4 begins at the slow level; the open warning knows that it was at 9.5."""
    planned = plan()
    measured = results(planned, 9.0, 9.0, 9.0, 9.0)
    nights = [(day, 9.5, "575.1") for day in range(9, 2, -1)] + [(2, 9.0, "580.65.06"), (1, 9.0, "580.65.06")]
    points = [
        replace(point, campaign_id=f"night-{day}", samples_per_second=9.0 if point.node == "node-4" else rate)
        for day, rate, driver in nights
        for point in records_of([make_result(spec.identity.node, driver=driver) for spec in planned.specs],
                               STARTED_AT - timedelta(days=day))
    ]  # fmt: skip
    work = measured[0].effective_spec.fingerprint
    points = [replace(point, fingerprint=work) for point in points]
    change = RateChange(node="node-4", fingerprint=work, before=9.5, after=9.0, limit_pct=1.5)
    history = StubHistory(points=points, slowdowns=[Slowdown(change, STARTED_AT - timedelta(days=2))])
    campaign = assessed(planned, measured, (), history)
    summaries = {finding.category: f"{finding.subject} {finding.summary}" for finding in campaign.findings}

    assert summaries["step_slower"].endswith("; so are all nodes that got this change")
    assert summaries["still_slower"] == "node-4 is still 5.3 % slower than before 19 Nov 2026"


@pytest.mark.parametrize(("tonight", "is_reported"), [(9.0, False), (8.8, True)])
def test_what_a_node_lost_since_its_dated_slowdown_is_reported(tonight: float, is_reported: bool) -> None:
    """9.5, then 9.0 for three nights: a step. 8.8 tonight is 2.2 % less than that, beyond the history's 1.5 %."""
    planned = plan(nodes=["node-1"])
    rates = [(9, 9.5), (8, 9.5), (7, 9.5), (6, 9.5), (5, 9.5), (4, 9.0), (3, 9.0), (2, 9.0), (1, 9.0)]
    campaign = after_nights(planned, results(planned, tonight), rates, past=[9.5] * 5)
    categories = {finding.category for finding in campaign.findings}

    assert ("step_slower" in categories, "history_slower" in categories) == (True, is_reported)


def test_a_dated_slowdown_of_one_work_hides_no_new_one_of_another() -> None:
    """Alone node-1 has been slower for four nights; on two GPUs it is for the first time tonight."""
    planned = plan(nodes=["node-1"], strategies=["single", "ddp"], gpus_per_node=2)
    rates = [(day, 9.5 if day > 4 else 9.0) for day in range(9, 0, -1)]
    past = {1: [9.5] * 5, 2: [19.0] * 5}
    campaign = after_nights(
        planned, results(planned, 9.0, 18.0), rates, past=lambda run: past[run.spec.placement.world_size]
    )

    assert [finding.category for finding in campaign.findings if "slower" in finding.category] == [
        "step_slower",
        "history_slower",
    ]


def after_nights(planned: Plan, measured: list[RunResult], rates: list[tuple[int, float]], past: Any) -> Campaign:
    """`rates`: (so many days ago, samples/s) of the plan's first work on its first node."""
    spec = planned.specs[0]
    earlier = [
        point
        for days, rate in rates
        for point in records_of(
            [
                make_result(spec.identity.node, rate).model_copy(
                    update={"spec": spec.changed(identity={"campaign_id": f"night-{days}"})}
                )
            ],
            STARTED_AT - timedelta(days=days),
        )
    ]
    rates = past if callable(past) else lambda _: past
    return assessed(planned, measured, (), StubHistory(rates=rates, points=earlier))


def test_a_renamed_node_keeps_its_past_and_its_old_name_is_not_missed() -> None:
    planned = plan()
    measured = results(planned, 9.5, 9.5, 9.5, 9.5)
    calls: list[str] = []

    def past_of(run: RunResult) -> list[float]:
        calls.append(run.spec.identity.node)
        return [9.5] * 5 if run.spec.identity.node == "old-name" else []

    old = records_of(measured, STARTED_AT - timedelta(days=1))[0]
    points = [replace(old, node="old-name", campaign_id="yesterday")]
    campaign = assessed(planned, measured, (), StubHistory(rates=past_of, points=points))
    history = {verdict.node: verdict.state for verdict in campaign.history}

    assert calls.count("old-name") == 1
    assert (history["node-1"], history["node-2"]) == (State.OK, State.NO_BASELINE)
    assert [finding.subject for finding in campaign.findings if finding.category == "renamed_node"] == ["node-1"]


def test_a_noise_floor_judges_nobody_and_says_so_in_its_title() -> None:
    planned = plan(noise_floor=True)
    measured = results(planned, *[9.5, 9.4, 7.0, 9.6] * 5)
    campaign = assessed(planned, measured, (), StubHistory(rates=lambda _: [12.0] * 9))

    assert campaign.title.startswith("noise floor: mistral-7b qlora")
    assert (campaign.groups, campaign.history, campaign.red_nodes) == ((), (), ())
    assert len(campaign.results) == 20
