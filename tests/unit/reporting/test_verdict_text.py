from __future__ import annotations

from collections.abc import Callable

import pytest

from bench_image.contract.result import Status
from tests.builders import campaigns, make_failed, make_result, verdicts
from trainbench.core.tables import Tone
from trainbench.core.verdicts import State, Tolerances
from trainbench.judging.peers.node_verdicts import judge_groups
from trainbench.params.campaign_kind import CampaignKind
from trainbench.reporting import history_tables, recommendations, verdict_text, work_names
from trainbench.reporting.html import report_html
from trainbench.reporting.report import benchmark_report
from trainbench.results.campaign import Campaign

FELL_BEHIND = "All 4 nodes fell behind their own past: node-1, node-2, node-3 and node-4"


def test_the_verdict_in_one_sentence() -> None:
    assert verdict_text.verdict(campaigns.healthy()) == "All 4 nodes are well."
    assert verdict_text.verdict(campaigns.slow_node()) == (
        "1 of 4 nodes is in breach: node-3 "
        "(samples/s \u22129.7 %, limit ±5 %, confirmed by a re-run with \u22129.0 %); 3 are well."
    )
    assert verdict_text.verdict(campaigns.two_nodes()) == (
        "None of 2 nodes could be judged: node-1 and node-2 "
        "(2 nodes: they differ by 11.6 %, but it is unknown which one is wrong)."
    )
    assert verdict_text.verdict(campaigns.make_campaign([])) == "No node was judged."


def test_the_tone_follows_the_worst_state() -> None:
    assert verdict_text.tone(campaigns.healthy()) is Tone.GOOD
    assert verdict_text.tone(campaigns.two_nodes()) is Tone.WARN
    assert verdict_text.tone(campaigns.make_campaign([])) is Tone.WARN
    assert verdict_text.tone(campaigns.all_failed()) is Tone.BAD


def test_a_node_that_fell_behind_its_own_history_is_amber_until_a_re_run_confirms_it() -> None:
    healthy = campaigns.healthy()
    slower = verdicts.behind_its_past("node-2", rate=1.40, median=1.45, deviation_pct=-3.45)
    campaign = healthy.model_copy(update={"history": (slower,)})
    assert verdict_text.tone(campaign) is Tone.WARN
    assert verdict_text.verdict(campaign) == (
        "1 of 4 nodes fell behind its own past: node-2 (\u22123.5 %); 3 are well."
    )


def test_a_drill_says_so() -> None:
    campaign = campaigns.cpu_drill()
    assert (
        verdict_text.drill_sentence(campaign)
        == "Drill: trainbench slowed node-3 by 75 % on purpose, to see whether the checks detect it."
    )
    assert verdict_text.drill_sentence(campaigns.healthy()) is None
    assert verdict_text.state_text(campaign.red_nodes[0]) == "breach: slow, confirmed (\u221275.4 %), drill"


def test_red_nodes_come_first_and_a_cpu_has_no_temperature() -> None:
    campaign = campaigns.cpu_drill()
    table = verdict_text.verdict_table(campaign, campaign.groups[0])
    assert [row.texts[0] for row in table.rows] == ["node-3", "node-1", "node-2", "node-4"]
    assert {row.texts[4] for row in table.rows} == {"n/a: no GPU"}


def test_runs_after_the_planned_rounds_are_reruns() -> None:
    campaign = campaigns.slow_node()
    assert [r.spec.identity.run_id for r in campaign.results if verdict_text.is_rerun(campaign, r)] == [
        campaign.results[-1].spec.identity.run_id
    ]


def test_each_reason_is_stated_once() -> None:
    campaign = campaigns.two_nodes()
    assert verdict_text.reason_sentences(campaign.groups[0]) == (
        "node-1 and node-2 (insufficient): 2 nodes: they differ by 11.6 %, but it is unknown which one is wrong.",
    )


def test_strategies_on_one_node_are_no_node_check() -> None:
    runs = campaigns.strategy_results(("full",))
    campaign = campaigns.make_campaign(runs, judge_groups(runs, ["node-1"], Tolerances()))
    assert verdict_text.verdict(campaign) == (
        "Choose zero2 on 2 GPUs for the least cost ($0.0303 per 1M tokens) or zero2 on 4 GPUs for the least time "
        "($0.0368 per 1M tokens). 9 of 9 runs gave a figure."
    )
    assert verdict_text.recommended(campaign) == recommendations.lines(campaign)
    assert verdict_text.shown_groups(campaign) == ()
    assert verdict_text.lone_line(campaign) == (
        "9 groups of equal runs had one node only (node-1): no peer to compare it with."
    )
    assert verdict_text.lone_line(campaigns.healthy()) is None


def test_one_strategy_on_one_node_recommends_nothing() -> None:
    runs = [make_result(samples_per_s=20.0), make_result(samples_per_s=10.0, seq_length=1024)]
    alone = campaigns.make_campaign(runs, judge_groups(runs, ["node-1"], Tolerances()))
    assert verdict_text.verdict(alone) == (
        "Nodes were not compared: each work ran on one node only. 2 of 2 runs gave a figure."
    )
    assert verdict_text.recommended(alone) == verdict_text.recommended(campaigns.healthy()) == ()


def test_the_name_of_a_group_says_what_was_chosen() -> None:
    run = make_result(micro_batch_size="auto", strategy="fsdp", gpus_per_node=4)
    campaign = campaigns.make_campaign([run], [verdicts.make_group([], run.spec.identity.group_id)])
    assert work_names.group_name(campaign, run.spec.identity.group_id) == (
        "mistral-7b qlora, fsdp on 4 GPUs, batch auto (8) x 512 tokens, NVIDIA A10"
    )


def test_a_fleet_without_a_baseline_is_one_row() -> None:
    healthy = campaigns.healthy()
    waiting = healthy.history[0].model_copy(update={"state": State.NO_BASELINE})
    few = history_tables.history_table(healthy.model_copy(update={"history": (waiting,) * 3}))
    many = history_tables.history_table(healthy.model_copy(update={"history": (*healthy.history, *(waiting,) * 40)}))
    assert len(few.rows) == 3
    assert [row.texts[0] for row in many.rows] == ["node-1", "node-2", "node-3", "node-4", "40 more"]
    assert many.rows[-1].texts[6] == "no baseline"


def test_a_scaling_study_says_what_ran_and_who_is_first() -> None:
    gang = {"gpus_per_node": 2, "recipe": "full", "optimizer": "adamw_torch"}
    ddp = make_result(samples_per_s=20.0, strategy="ddp", **gang)
    fsdp = make_result(samples_per_s=22.0, strategy="fsdp", **gang)
    study = campaigns.make_campaign([ddp, fsdp], campaign_kind=CampaignKind.STRATEGIES)
    broken = make_failed(status=Status.ERROR, kind="RuntimeError", strategy="zero2", **gang)

    assert verdict_text.verdict(study) == "Choose fsdp on 2 GPUs: $0.0296 per 1M tokens. 2 of 2 runs gave a figure."
    assert verdict_text.tone(study) is Tone.GOOD
    with_broken = campaigns.make_campaign([ddp, broken], campaign_kind=CampaignKind.STRATEGIES)
    assert (
        verdict_text.verdict(with_broken) == "1 of 2 runs gave a figure. No figure from zero2 on 2 GPUs (RuntimeError)."
    )
    assert verdict_text.tone(with_broken) is Tone.BAD


def test_a_dated_slowdown_stands_with_the_verdict_and_is_amber() -> None:
    campaign = campaigns.slower_since()
    assert verdict_text.verdict(campaign) == FELL_BEHIND + "; 1 slowdown has a date."
    assert verdict_text.slowdown_sentences(campaign) == (
        "node-1, node-2, node-3 and node-4 are 5.8 to 6.4 % slower since 12 Nov 2026, when the driver went from 575.1 "
        "to 580.95; so are all nodes that got this change.",
    )
    assert (
        verdict_text.in_full(campaign)
        == f"{verdict_text.verdict(campaign)} {verdict_text.slowdown_sentences(campaign)[0]}"
    )
    assert verdict_text.tone(campaign) is Tone.WARN


def test_many_slowdowns_leave_the_headline_one_sentence() -> None:
    campaign = campaigns.slower_since()
    many = campaign.model_copy(update={"findings": campaign.findings * 12})
    assert verdict_text.verdict(many) == FELL_BEHIND + "; 12 slowdowns have a date."
    assert len(verdict_text.slowdown_sentences(many)) == 11
    assert verdict_text.slowdown_sentences(many)[-1] == "And 2 more: see the findings."


@pytest.mark.parametrize("render", [benchmark_report, lambda campaign: report_html(campaign, {})])
def test_the_reports_show_a_slowdown_below_the_headline(render: Callable[[Campaign], str]) -> None:
    text = render(campaigns.slower_since())
    assert 0 < text.index("1 slowdown has a date.") < text.index("slower since 12 Nov 2026, when the driver")
