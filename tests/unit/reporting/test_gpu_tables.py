"""Every GPU of every node, where each measured by itself."""

from __future__ import annotations

from tests.builders import campaigns, make_independent, make_result
from trainbench.core.tables import Tone
from trainbench.core.verdicts import Tolerances
from trainbench.judging.peers.node_verdicts import judge_groups
from trainbench.reporting.comparison_sections import comparison_sections
from trainbench.reporting.gpu_tables import gpu_tables
from trainbench.reporting.report import benchmark_report
from trainbench.reporting.verdict_text import fleet_lines


def test_the_worst_gpu_stands_first_with_its_node_and_uuid() -> None:
    results = [make_independent(f"node-{i}", (10.0, 9.0 if i == 2 else 10.0)) for i in (1, 2, 3)]
    campaign = campaigns.make_campaign(results, judge_groups(results, [], Tolerances()))
    (table,) = gpu_tables(campaign)

    assert table.rows[0].texts == (
        "node-2",
        "1",
        "GPU-node-2-1",
        "9.000",
        "−10.0 %",
        "7.100",
        "60 °C",
        "breach: slow, re-run pending",
    )
    assert [row.tone for row in table.rows] == [Tone.BAD] + [Tone.GOOD] * 5
    assert "GPU-node-2-1" in benchmark_report(campaign, [], comparison_sections(campaign))


def test_a_watched_gpu_stands_above_the_good_ones_and_a_node_s_figure_says_whose_it_is() -> None:
    """3.5 % below the others is more than half of the limit of 5 %."""
    results = [make_independent(f"node-{i}", (10.0, 9.65 if i == 2 else 10.0)) for i in (1, 2, 3)]
    campaign = campaigns.make_campaign(results, judge_groups(results, [], Tolerances()))
    (table,) = gpu_tables(campaign)

    assert [(row.texts[0], row.texts[-1]) for row in table.rows[:2]] == [("node-2", "ok, watched"), ("node-1", "ok")]
    lines = fleet_lines(campaign.groups[0])
    assert lines[0] == "A node's figures are those of its worst GPU, not of all together."
    assert lines[1].endswith("between the fastest and the slowest GPU, of their median.")


def test_nodes_of_one_figure_have_no_such_table() -> None:
    results = [make_result(f"node-{i}") for i in (1, 2, 3)]
    assert gpu_tables(campaigns.make_campaign(results, judge_groups(results, [], Tolerances()))) == ()
