from __future__ import annotations

from bench_control import digest
from bench_control.tables import Tone
from bench_control.verdicts import HistoryVerdict, State
from tests import campaigns


def test_the_verdict_in_one_sentence() -> None:
    assert digest.verdict(campaigns.healthy()) == "All 4 nodes are within their limits."
    assert digest.verdict(campaigns.slow_node()) == (
        "1 of 4 nodes is not well: node-3 is out of its limits "
        "(samples/s \u22129.7 % from the leave-one-out median, confirmed by a re-run)."
    )
    assert digest.verdict(campaigns.two_nodes()) == (
        "No breach, but 2 of 2 nodes could not be called ok: node-1 (insufficient) and node-2 (insufficient)."
    )
    assert digest.verdict(campaigns.make_campaign([])) == "No node was judged."


def test_the_tone_follows_the_worst_state() -> None:
    assert digest.tone(campaigns.healthy()) is Tone.GOOD
    assert digest.tone(campaigns.two_nodes()) is Tone.WARN
    assert digest.tone(campaigns.make_campaign([])) is Tone.WARN
    assert digest.tone(campaigns.all_failed()) is Tone.BAD


def test_a_node_that_fell_behind_its_own_history_is_amber_until_a_re_run_confirms_it() -> None:
    healthy = campaigns.healthy()
    slower = HistoryVerdict(
        node="node-2",
        group_id="g",
        state=State.BREACH,
        samples_per_second=1.40,
        baseline_median=1.45,
        deviation_pct=-3.45,
        limit_pct=1.5,
        num_points=14,
        reason="slower than before",
    )
    campaign = healthy.model_copy(update={"history": (slower,)})
    assert digest.tone(campaign) is Tone.WARN
    assert digest.verdict(campaign).startswith("Against its own history node-2 (\u22123.5 %) fell behind")


def test_a_drill_says_so() -> None:
    campaign = campaigns.cpu_drill()
    assert (
        digest.drill(campaign) == "Drill: trainbench slowed node-3 by 75 % on purpose, to see that the checks find it."
    )
    assert digest.drill(campaigns.healthy()) is None
    assert digest.state_words(campaign.red_nodes[0]) == "breach: slow, confirmed (\u221275.4 %), drill"


def test_red_nodes_come_first_and_a_cpu_has_no_temperature() -> None:
    campaign = campaigns.cpu_drill()
    table = digest.verdict_table(campaign, campaign.groups[0])
    assert [row.cells[0] for row in table.rows] == ["node-3", "node-1", "node-2", "node-4"]
    assert {row.cells[4] for row in table.rows} == {"n/a: no GPU"}


def test_runs_after_the_planned_rounds_are_reruns() -> None:
    campaign = campaigns.slow_node()
    assert [r.spec.run_id for r in campaign.results if digest.is_rerun(campaign, r)] == [
        campaign.results[-1].spec.run_id
    ]


def test_reasons_are_told_once() -> None:
    campaign = campaigns.two_nodes()
    assert digest.reasons(campaign.groups[0]) == (
        "node-1 and node-2 (insufficient): 2 nodes: they differ by 11.6 %, but which one is wrong cannot be told.",
    )
