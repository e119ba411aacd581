from __future__ import annotations

from collections.abc import Callable

import pytest

from bench_image.contract.spec import Drill
from tests.builders import campaigns, spoilt
from trainbench.reporting.cost_report import cost_report, nodes_table, summary, work_table
from trainbench.results.campaign import Campaign


@pytest.mark.parametrize("make", [campaigns.healthy, campaigns.cpu_drill, campaigns.all_failed])
def test_the_report(make: Callable[[], Campaign], golden: Callable[[str, str], None]) -> None:
    golden(f"cost-{make.__name__.replace('_', '-')}.md", cost_report(make()))


def test_a_node_check_costs_all_its_runs() -> None:
    """node-3 ran three times, the re-run included, at 1.307, 1.313 and 1.320 samples/s: 3 x 29 s + 240 samples x (0.765
    + 0.762 + 0.758) s = 635 s, at $0.60/h $0.106.
    """
    cells = {row.texts[0]: row.texts[1:] for row in nodes_table(campaigns.slow_node()).rows}
    assert cells["node-3"] == ("3", "0.176", "$0.106")


def test_ten_thousand_samples() -> None:
    """1.46 samples/s at $0.60/h: 6,849 s = 1 h 54 min and 10 x $0.11416 = $1.14, as the reference guide says."""
    campaign = campaigns.make_campaign([campaigns.a10("node-1", 1.46)])
    assert work_table(campaign).rows[0].texts[1:] == ("1", "1", "$0.114", "$0.223", "1 h 54 min", "$1.14")


def test_a_diagnosis_has_the_savings_of_its_configurations() -> None:
    assert "## The figures, NVIDIA A10" in cost_report(campaigns.configurations())


def test_drills_do_not_enter_the_price_of_a_sample() -> None:
    """The second node ran ten times as slowly on purpose."""
    slowed = campaigns.a10("node-2", 0.146, drill=Drill(slowdown_pct=90))
    (row,) = work_table(campaigns.make_campaign([campaigns.a10("node-1", 1.46), slowed])).rows
    assert row.texts[2:4] == ("1", "$0.114")


def test_a_missing_price_is_reported_and_never_zero() -> None:
    healthy = campaigns.healthy()
    text = cost_report(campaigns.make_campaign(healthy.results, healthy.groups, usd_per_gpu_hour=None))
    assert "The cost of this campaign is unknown: no run has a price (8 runs, 0.431 GPU-hours)." in text
    assert "8 runs: no price for NVIDIA A10: add it to the price table or give usd_per_gpu_hour" in text
    assert "Set usd_per_gpu_hour" in text
    assert "$0" not in text


def test_a_gang_s_sample_is_paid_on_all_of_its_gpus() -> None:
    """LoRA zero2 on two GPUs: 15,400 tokens/s are 7.52 samples/s, 2 x $0.60 / (7.52 x 3600) x 1000 = $0.0443."""
    rows = work_table(campaigns.strategies()).rows
    (zero2,) = [row.texts for row in rows if row.texts[0].startswith("tier-a lora, zero2 on 2 GPUs, ")]
    assert (len(rows), zero2[1:4]) == (19, ("2", "1", "$0.0443"))


def test_a_failed_run_does_not_enter_the_price_of_a_sample() -> None:
    """The second one's loss became NaN at ten times the speed: it is paid for, but it is no price of a sample. They
    took 29 + 240 / 1.46 = 193.4 s and 55 s.
    """
    runs = [campaigns.a10("node-1", 1.46), spoilt(campaigns.a10("node-2", 14.6))]
    (row,) = work_table(campaigns.make_campaign(runs)).rows
    assert row.texts[2:4] == ("1", "$0.114")
    assert summary(campaigns.make_campaign(runs)) == "This campaign cost $0.0414: 2 runs, 0.0690 GPU-hours."


def test_a_gang_is_paid_by_all_of_its_nodes() -> None:
    """Two A10 for 29 s and 480 samples at 2.8 samples/s, 200.4 s: 0.111 GPU-hours and $0.0668, half on each node."""
    gang = campaigns.a10("node-1", 2.8, strategy="ddp", nodes=2, gpus_per_node=1, peers=("node-2",))
    table = nodes_table(campaigns.make_campaign([gang]))
    assert [row.texts for row in table.rows] == [
        ("node-1", "1", "0.0557", "$0.0334"), ("node-2", "1", "0.0557", "$0.0334"),
    ]  # fmt: skip
    assert table.notes == ("A gang's cost is shared evenly by its nodes.",)
