from __future__ import annotations

from bench_image.contract.result import Status
from tests.builders import campaigns, make_failed, make_result, verdicts
from trainbench.core.tables import Tone
from trainbench.core.verdicts import DRILL_UNDETECTED, IMPOSSIBLE_WORK, NO_FIGURE, State, Why
from trainbench.params.campaign_kind import CampaignKind
from trainbench.reporting import verdict_text, work_names


def test_the_verdict_in_one_sentence() -> None:
    assert verdict_text.verdict(campaigns.healthy()) == "All 4 nodes are well."
    assert verdict_text.verdict(campaigns.slow_node()) == (
        "1 of 4 nodes is slow: node-3 (samples/s −9.7 % against the median of 3 peers, −9.0 % in the re-run, "
        "limit 5.0 %); 3 are well."
    )
    assert verdict_text.verdict(campaigns.two_nodes()) == (
        "Both nodes differ from each other: node-1 and node-2 "
        "(2 nodes: they differ by 11.6 %, and neither a past nor a level says which one is off)."
    )
    assert verdict_text.verdict(campaigns.make_campaign([])) == "No node was judged."


def test_the_tone_follows_the_worst_state() -> None:
    assert verdict_text.tone(campaigns.healthy()) is Tone.GOOD
    assert verdict_text.tone(campaigns.two_nodes()) is Tone.WARN
    assert verdict_text.tone(campaigns.make_campaign([])) is Tone.WARN
    assert verdict_text.tone(campaigns.all_failed()) is Tone.BAD


def test_a_detected_drill_is_red_and_comes_first() -> None:
    campaign = campaigns.cpu_drill()
    assert verdict_text.drill_sentence(campaign) == (
        "Drill: trainbench slowed node-3 by 75 % on purpose, to see whether the checks detect it."
    )
    assert verdict_text.drill_sentence(campaigns.healthy()) is None
    assert verdict_text.verdict(campaign) == (
        "Drill detected: node-3 (samples/s −76.1 % against the median of 3 peers, −75.4 % in the re-run, limit "
        "25.0 %). Apart from the drill, all 3 nodes are well."
    )
    assert verdict_text.tone(campaign) is Tone.BAD
    assert verdict_text.drill_badge(campaign) == "Drill detected"
    assert verdict_text.drill_badge(campaigns.slow_node()) is None


def test_an_undetected_drill_is_an_alarm_and_no_badge_calls_it_detected() -> None:
    finding = verdicts.make_finding("node-1", Why.DRILL, category=DRILL_UNDETECTED, measured="measured −3.1 %")
    nodes = [verdicts.make_node("node-1", why=Why.DRILL), verdicts.make_node("node-2"), verdicts.make_node("node-3")]
    missed = campaigns.judged(*nodes, findings=(finding,))
    calm = campaigns.judged(*nodes)
    assert verdict_text.verdict(missed).startswith("Drill not detected: node-1 (measured −3.1 %).")
    assert verdict_text.tone(missed) is Tone.BAD
    assert verdict_text.tone(calm) is Tone.WARN
    assert verdict_text.drill_badge(missed) is verdict_text.drill_badge(calm) is None


def test_beside_a_detected_drill_other_nodes_are_not_forgotten() -> None:
    drilled = verdicts.make_node("node-1", 5.0, peers=10.0, why=Why.SLOW, is_drill=True)
    look = verdicts.make_node("node-2", why=Why.HOT)
    red = verdicts.make_node("node-2", None, why=Why.FAILED)
    well = verdicts.make_node("node-3")
    assert verdict_text.drill_badge(campaigns.judged(drilled, look, well)) == "Drill detected, other nodes need a look"
    assert verdict_text.drill_badge(campaigns.judged(drilled, red, well)) is None


def test_a_run_without_a_figure_says_so_first() -> None:
    alarm = verdicts.make_finding("", category=NO_FIGURE, nodes=(), item="night-1", summary="no run gave a figure")
    busy = [verdicts.make_node(name, None, why=Why.BUSY, reason="") for name in ("node-1", "node-2")]
    assert verdict_text.verdict(campaigns.judged(*busy, findings=(alarm,))) == (
        "No run gave a figure. Both nodes were busy: node-1 and node-2."
    )


def test_programs_read_each_node_once_with_the_next_step_of_its_finding() -> None:
    campaign = campaigns.slow_node()
    first, *others = verdict_text.node_rows(campaign)
    assert (first.node, first.state, first.why) == ("node-3", State.RED, Why.SLOW)
    assert first.next_step == "Check fans, filters and the air flow of node-3, then run it again"
    assert [round(each.deviation, 2) for each in first.comparisons[:2]] == [-9.66, -9.78]
    assert [row.node for row in others] == ["node-1", "node-2", "node-4"]
    assert {row.next_step for row in others} == {"nothing"}
    # runs after the planned rounds are re-runs
    assert [r.spec.identity.run_id for r in campaign.results if verdict_text.is_rerun(campaign, r)] == [
        campaign.results[-1].spec.identity.run_id
    ]


def test_strategies_on_one_node_are_no_node_check() -> None:
    runs = campaigns.strategy_results(("full",))
    campaign = campaigns.make_campaign(runs, campaigns.each_alone(runs))
    assert verdict_text.verdict(campaign) == (
        "Choose zero2 on 2 GPUs for the least cost ($0.0303 per 1M tokens) or zero2 on 4 GPUs for the least time "
        "($0.0368 per 1M tokens). 9 of 9 runs gave a figure."
    )
    assert verdict_text.shown_groups(campaign) == ()
    assert verdict_text.lone_line(campaign) == (
        "9 groups of equal runs had one node only (node-1): no peer to compare it with."
    )
    assert verdict_text.lone_line(campaigns.healthy()) is None


def test_one_strategy_on_one_node_recommends_nothing() -> None:
    runs = [make_result(samples_per_s=20.0), make_result(samples_per_s=10.0, seq_length=1024)]
    alone = campaigns.make_campaign(runs, campaigns.each_alone(runs))
    assert verdict_text.verdict(alone) == (
        "Nodes were not compared: each work ran on one node only. 2 of 2 runs gave a figure."
    )


def test_the_name_of_a_group_says_what_was_chosen() -> None:
    run = make_result(micro_batch_size="auto", strategy="fsdp", gpus_per_node=4)
    campaign = campaigns.make_campaign([run], [verdicts.make_group([], run.spec.identity.group_id)])
    assert work_names.group_name(campaign, run.spec.identity.group_id) == (
        "mistral-7b qlora, fsdp on 4 GPUs, batch auto (8) x 512 tokens, NVIDIA A10"
    )


def test_a_scaling_study_says_what_ran_and_who_is_first() -> None:
    gang = {"gpus_per_node": 2, "recipe": "full", "optimizer": "adamw_torch"}
    ddp, *others = (
        make_result(samples_per_s=rate, strategy=strategy, round=round_, **gang)
        for strategy, rate in (("ddp", 20.0), ("fsdp", 22.0))
        for round_ in (1, 2)
    )
    study = campaigns.make_campaign([ddp, *others], campaign_kind=CampaignKind.STRATEGIES)
    broken = make_failed(status=Status.ERROR, kind="RuntimeError", strategy="zero2", **gang)

    assert verdict_text.verdict(study) == "Choose fsdp on 2 GPUs: $0.0296 per 1M tokens. 4 of 4 runs gave a figure."
    assert verdict_text.tone(study) is Tone.GOOD
    with_broken = campaigns.make_campaign([ddp, broken], campaign_kind=CampaignKind.STRATEGIES)
    assert (
        verdict_text.verdict(with_broken) == "1 of 2 runs gave a figure. No figure from zero2 on 2 GPUs (RuntimeError)."
    )
    assert verdict_text.tone(with_broken) is Tone.BAD


def test_the_worst_gpu_stands_first_with_its_node_and_uuid() -> None:
    slow = verdicts.make_gpu(1, 9.0, peers=10.0, why=Why.SLOW, temperature_c=60.0)
    gpus = (verdicts.make_gpu(0, 10.0, peers=10.0), slow)
    nodes = [verdicts.make_node("node-1", 9.0, why=Why.SLOW, gpus=gpus), verdicts.make_node("node-2")]
    campaign = campaigns.judged(*nodes)
    (table,) = verdict_text.gpu_tables(campaign)
    assert table.rows[0].texts == ("node-1", "1", "GPU-0001", "9.000", "−10.0 %", "60 °C", "red: slow")
    assert [row.tone for row in table.rows] == [Tone.BAD, Tone.GOOD]
    assert verdict_text.gpu_tables(campaigns.healthy()) == ()
    lines = verdict_text.fleet_lines(campaign.groups[0])
    assert lines[0] == "A node's figures are those of its worst GPU, not of all together."
    assert lines[1].endswith("between the fastest and the slowest GPU, of their median.")


def test_each_reason_and_each_remark_is_told_once_a_remark_also_of_nodes_that_are_well() -> None:
    pair = campaigns.two_nodes()
    assert verdict_text.reason_sentences(pair, pair.groups[0]) == (
        "node-1 and node-2 (look: pair): 2 nodes: they differ by 11.6 %, and neither a past nor a level says which one "
        "is off.",
    )
    nodes = [verdicts.make_node(f"node-{i}", remarks=("no temperature was measured",)) for i in (1, 2)]
    alike = campaigns.judged(*nodes)
    assert verdict_text.reason_sentences(alike, alike.groups[0]) == ("node-1 and node-2: no temperature was measured.",)


def test_a_headline_keeps_the_capitals_of_names() -> None:
    summary = "the work of Llama-3.1-8B could begin on no node, so the campaign is at fault and no node"
    alarm = verdicts.make_finding("", category=IMPOSSIBLE_WORK, nodes=(), item="night-7", summary=summary)
    campaign = campaigns.judged(verdicts.make_node("node-1"), findings=(alarm,))
    assert verdict_text.verdict(campaign).startswith("The work of Llama-3.1-8B could begin on no node")


def test_beside_a_drill_the_name_of_the_only_other_node_stays_as_it_is() -> None:
    campaign = campaigns.cpu_drill()
    nodes = {node.node: node for node in campaign.groups[0].nodes}
    group = campaign.groups[0].model_copy(
        update={"nodes": (nodes["node-3"], nodes["node-1"].model_copy(update={"node": "Box-1"}))}
    )
    assert verdict_text.verdict(campaign.model_copy(update={"groups": (group,)})).endswith(" drill, Box-1 is well.")
