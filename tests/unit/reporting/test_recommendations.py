"""The recommendation that heads a strategy study."""

from __future__ import annotations

from typing import Any

import pytest

from bench_image.contract.result import RunResult
from tests.builders import campaigns, make_cpu_result, make_result
from trainbench.params.campaign_kind import CampaignKind
from trainbench.reporting import recommendations, verdict_text
from trainbench.reporting.comparison_sections import comparison_sections, strategies
from trainbench.results.campaign import Campaign


def run(samples_per_s: float, strategy: str = "single", gpus: int = 1, node: str = "node-1", **work: Any) -> RunResult:
    return make_result(node, samples_per_s, strategy=strategy, gpus_per_node=gpus, **work)


def study(*runs: RunResult, rounds: int = 2, **fields: Any) -> Campaign:
    """A study in which each run was repeated with equal figures."""
    repeated = [
        run.model_copy(update={"spec": run.spec.changed(identity={"round": round_, "run_id": f"{place}-{round_}"})})
        for round_ in range(1, rounds + 1)
        for place, run in enumerate(runs)
    ]
    return campaigns.make_campaign(repeated, campaign_kind=CampaignKind.STRATEGIES, **fields)


def test_where_time_costs_money_both_choices_are_named() -> None:
    """512 tokens a sample at $0.60 per GPU-hour. 10 samples/s on 1 GPU: 0.6 / (5120 x 3600) x 1e6 = $0.0326 per 1M
    tokens; 32 samples/s on 4 GPUs: 2.4 / (16384 x 3600) x 1e6 = $0.0407, which is 4 / 3.2 = 1.25 times as much.
    """
    campaign = study(run(10.0), run(18.0, "ddp", 2), run(32.0, "ddp", 4))
    assert recommendations.headline(campaign) == (
        "Choose single on 1 GPU for the least cost ($0.0326 per 1M tokens) or ddp on 4 GPUs for the least time "
        "($0.0407 per 1M tokens)."
    )


def test_more_gpus_that_cost_no_more_are_the_one_choice() -> None:
    campaign = study(run(10.0), run(20.0, "ddp", 2), run(15.0, "fsdp", 2))
    assert recommendations.headline(campaign) == "Choose ddp on 2 GPUs: $0.0326 per 1M tokens."


def test_a_clear_difference_of_single_runs_is_a_choice() -> None:
    assert recommendations.headline(study(run(10.0), run(22.0, "ddp", 2), rounds=1)) == (
        "Choose ddp on 2 GPUs: $0.0296 per 1M tokens."
    )


def test_a_gang_as_fast_as_one_gpu_is_not_recommended() -> None:
    campaign = study(run(10.0), run(10.0, "ddp", 2))
    assert recommendations.headline(campaign) == "Choose single on 1 GPU: $0.0326 per 1M tokens."


def test_of_two_sizes_on_different_machines_only_the_larger_is_compared() -> None:
    campaign = study(run(10.0, node="node-2"), run(20.0, "ddp", 2), run(16.0, "fsdp", 2))
    assert recommendations.headline(campaign) == "Choose ddp on 2 GPUs: $0.0326 per 1M tokens."
    assert recommendations.headline(study(run(10.0, node="node-2"), run(20.0, "ddp", 2))) is None


def test_works_are_named_by_what_differs() -> None:
    both = [
        run(rate, strategy, 2, seq_length=length)
        for length in (512, 1024)
        for strategy, rate in (("ddp", 20.0), ("fsdp", 15.0))
    ]
    assert recommendations.headline(study(*both)) == (
        "For batch 8 x 512 tokens choose ddp on 2 GPUs: $0.0326 per 1M tokens. For batch 8 x 1024 tokens choose ddp on "
        "2 GPUs: $0.0163 per 1M tokens."
    )


def test_without_a_price_the_cost_is_in_gpu_hours() -> None:
    """2 GPUs x 1e6 tokens / (10,240 tokens/s x 3600) = 0.0543 GPU-hours."""
    campaign = study(run(20.0, "ddp", 2), run(15.0, "fsdp", 2), usd_per_gpu_hour=None)
    assert recommendations.headline(campaign) == "Choose ddp on 2 GPUs: 0.0543 GPU-hours per 1M tokens."


@pytest.mark.parametrize("runs", [(), (run(10.0),), (run(10.0), run(11.0))], ids=["none", "one", "one strategy"])
def test_without_a_choice_there_is_no_recommendation(runs: tuple[RunResult, ...]) -> None:
    assert recommendations.headline(study(*runs)) is None


def on_cpu(samples_per_s: float, strategy: str = "single", processes: int = 1, node: str = "node-1") -> RunResult:
    return make_cpu_result(node, samples_per_s, strategy=strategy, gpus_per_node=processes)


def trial(*runs: RunResult) -> Campaign:
    """A study on a CPU, for which no price is known."""
    return study(*runs, usd_per_gpu_hour=None)


def test_on_a_cpu_the_fastest_is_chosen_and_nothing_has_a_cost() -> None:
    """64 tokens a sample: 10, 18 and 14 samples/s are 640, 1,152 and 896 tokens/s; 896 is 22.2 % below 1,152."""
    campaign = trial(on_cpu(10.0), on_cpu(18.0, "ddp", 2), on_cpu(14.0, "fsdp", 2))
    assert recommendations.headline(campaign) == "Choose ddp on 2 processes: 1,152 tokens/s of CPU time."


def test_on_a_cpu_processes_that_gain_nothing_are_not_recommended() -> None:
    campaign = trial(on_cpu(10.0), on_cpu(10.0, "ddp", 2))
    assert recommendations.headline(campaign) == "Choose single on 1 process: 640.0 tokens/s of CPU time."


def test_a_report_of_a_study_on_a_cpu_names_no_gpu_and_no_cost() -> None:
    """No table, note, section or verdict counts GPUs, and no column has a cost."""
    campaign = trial(on_cpu(10.0), on_cpu(18.0, "ddp", 2), on_cpu(14.0, "fsdp", 2))
    assert [section.anchor for section in comparison_sections(campaign)] == ["strategies"]
    (table,) = strategies(campaign)
    assert [column for column in table.columns if "GPU" in column.name or "1M tokens" in column.name] == []
    assert [column.name for column in table.columns][:1] == ["processes"]
    assert not any("GPU" in note for note in table.notes)
    assert "Scaling: throughput per process against that at 1 process (single), the smallest size measured." in (
        table.notes
    )
    assert "GPU" not in verdict_text.verdict(campaign)


def test_a_price_that_was_given_counts_for_each_process() -> None:
    """$0.60 / (640 tokens/s x 3600) x 1e6 = $0.260; two processes that gain nothing cost twice as much."""
    campaign = study(on_cpu(10.0), on_cpu(10.0, "ddp", 2))
    assert recommendations.headline(campaign) == "Choose single on 1 process: $0.260 per 1M tokens."
    (table,) = strategies(campaign)
    assert "per 1M tokens" in table.names
