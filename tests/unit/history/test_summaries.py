"""A campaign -> what the pages read of it: works with their medians and sums, verdicts on nodes."""

from __future__ import annotations

from typing import Any

import pytest

from bench_image.contract.result import Chosen
from bench_image.contract.spec import Drill
from tests.builders import make_failed, make_result, spoilt
from tests.builders.campaigns import make_campaign
from tests.builders.nights import night
from tests.builders.verdicts import make_comparison, make_group, make_node
from trainbench.core.verdicts import Against, Metric, Why
from trainbench.history.summaries import WorkSummary, rows, summarise, with_known_gpus
from trainbench.results.campaign import Campaign


def works_of(campaign: Campaign) -> tuple[WorkSummary, ...]:
    return summarise(campaign, with_known_gpus(rows(campaign)))


def chose(micro_batch_size: int) -> dict[str, Any]:
    chosen = Chosen(micro_batch_size=micro_batch_size, gradient_checkpointing=True, why="it fits", execution={})
    return {"micro_batch_size": "auto", "chosen": chosen}


def test_a_work_has_the_medians_of_its_valid_runs_and_the_sums_of_all() -> None:
    """9, 10 and 12 samples/s: median 10; the drill of 1 and the failed run do not enter. The runs of 29 s and 240
    samples take 55 s, and 269 s at 1 sample/s: 434 / 3600 x $0.60 = $0.072333; the failed one has no known cost.
    """
    drilled = make_result("node-4", 1.0, drill=Drill(slowdown_pct=90))
    runs = [make_result(f"node-{i}", rate) for i, rate in ((1, 9.0), (2, 10.0), (3, 12.0))]
    (work,) = works_of(night(1, [*runs, drilled, make_failed("node-5")]))
    expected = {
        "samples_per_second": 10.0, "tokens_per_second": 5120.0, "peak_memory_gb": 7.1, "mfu_pct": 38.0, "num_runs": 5,
        "num_valid": 3, "num_failed": 1, "num_unpriced": 1, "scaling_efficiency_pct": None, "gpu_name": "NVIDIA H200",
        "model": "mistral-7b", "recipe": "qlora", "strategy": "single", "world_size": 1, "day": "2026-11-01",
    }  # fmt: skip
    assert {name: work.values[name] for name in expected} == expected
    assert work.values["run_usd"] == pytest.approx(434 / 3600 * 0.6)


def test_a_run_that_failed_with_a_rate_does_not_enter_the_medians() -> None:
    (work,) = works_of(night(1, [make_result("node-1", 9.0), spoilt(make_result("node-2", 90.0))]))
    assert {name: work.values[name] for name in ("samples_per_second", "num_valid", "num_failed", "num_runs")} == {
        "samples_per_second": 9.0, "num_valid": 1, "num_failed": 1, "num_runs": 2,
    }  # fmt: skip


def test_each_kind_of_gpu_is_a_work_of_its_own() -> None:
    runs = [make_result("node-1", 9.0), make_result("node-2", 4.0, gpu_name="NVIDIA A10")]
    assert [(work.values["gpu_name"], work.values["samples_per_second"]) for work in works_of(night(1, runs))] == [
        ("NVIDIA H200", 9.0),
        ("NVIDIA A10", 4.0),
    ]


def test_what_the_program_chose_is_the_work_and_a_failed_run_goes_with_the_usual_choice() -> None:
    runs = [make_result(f"node-{i}", 9.0, **chose(8)) for i in (1, 2)] + [make_result("node-3", 5.0, **chose(2))]
    failed = make_failed("node-4", micro_batch_size="auto")
    usual, other = works_of(night(1, [*runs, failed]))
    assert (usual.values["micro_batch_size"], usual.values["num_runs"], usual.values["num_failed"]) == (8, 3, 1)
    assert (other.values["micro_batch_size"], other.values["num_runs"], other.values["samples_per_second"]) == (2, 1, 5)
    assert usual.values["group_id"] == other.values["group_id"]
    assert usual.values["work_key"] != other.values["work_key"]
    assert (sorted(usual.verdicts), sorted(other.verdicts)) == (["node-1", "node-2", "node-4"], ["node-3"])


def test_a_failed_run_has_the_gpu_of_its_node_else_the_only_kind_of_its_group() -> None:
    both = [make_result("node-1"), make_failed("node-1", round=2), make_failed("node-2")]
    assert {row["gpu_name"] for row in with_known_gpus(rows(night(1, both)))} == {"NVIDIA H200"}
    kinds = [make_result("node-1"), make_result("node-2", gpu_name="NVIDIA A10"), make_failed("node-3")]
    assert {row["gpu_name"] for row in with_known_gpus(rows(night(1, kinds)))} == {"NVIDIA H200", "NVIDIA A10", None}


def test_a_missing_node_belongs_to_what_it_was_expected_to_do() -> None:
    (work,) = works_of(night(1, {"node-1": 10.0}, {"node-9": Why.MISSING}))
    verdict = work.verdicts["node-9"]
    assert (verdict["state"], verdict["why"], verdict["is_red"], verdict["run_id"], verdict["samples_per_second"]) == (
        "red", "missing", True, None, None,
    )  # fmt: skip
    assert work.values["num_runs"] == 1


def test_a_missing_node_of_an_unknown_gpu_did_what_the_first_kind_of_its_group_did() -> None:
    runs = [make_result("node-1", **chose(8)), make_result("node-2", gpu_name="NVIDIA A10", **chose(4))]
    known = night(1, runs)
    missing = make_group([make_node("node-3", None, why=Why.MISSING)], runs[0].spec.identity.group_id, gpu_name=None)
    *_, work = works_of(known.model_copy(update={"groups": (missing,)}))
    assert (work.values["gpu_name"], work.values["micro_batch_size"], list(work.verdicts)) == (None, 8, ["node-3"])


def test_when_nothing_ran_the_nodes_are_missed_all_the_same() -> None:
    nodes = [make_node(f"node-{i}", None, why=Why.MISSING, gpu_name=None) for i in (1, 2)]
    group = make_group(nodes, "no-results", gpu_name=None)
    (work,) = works_of(make_campaign([], [group], params={"model": "mistral-7b", "recipe": "qlora", "rounds": 2}))
    assert (work.values["model"], work.values["recipe"], work.values["strategy"]) == ("mistral-7b", "qlora", None)
    assert (work.values["num_runs"], work.values["work_key"], sorted(work.verdicts)) == (0, None, ["node-1", "node-2"])


def test_a_verdict_keeps_each_comparison_and_the_state_of_its_node() -> None:
    """9.8 against peers of 10.0, a past of 10.2 and a level of 9.9; memory only beside its past. Slow at other work."""
    memory = make_comparison(7.2, 7.1, Against.PAST, Metric.MEMORY_GB)
    first = make_node("node-1", 9.8, peers=10.0, past=10.2, level=9.9, why=Why.BEHIND)
    first = first.model_copy(update={"comparisons": (*first.comparisons, memory)})
    groups = [make_group([first], "a"), make_group([make_node("node-1", 9.0, peers=10.0, why=Why.SLOW)], "b")]
    groups += [make_group([make_node("node-2")], name) for name in "ab"]
    campaign = make_campaign([], groups)
    verdicts = [work.verdicts["node-1"] for work in works_of(campaign) if "node-1" in work.verdicts]
    assert [(v["state"], v["why"], v["node_state"], v["node_why"]) for v in verdicts] == [
        ("look", "behind", "red", "slow"),
        ("red", "slow", "red", "slow"),
    ]
    expected = {
        "deviation_pct": -2.0, "past_deviation_pct": 100 * (9.8 / 10.2 - 1), "past_expected": 10.2,
        "level_deviation_pct": 100 * (9.8 / 9.9 - 1), "level_expected": 9.9, "temperature_deviation_c": None,
        "memory_deviation_pct": 100 * (7.2 / 7.1 - 1), "deviation": 100 * (9.8 / 10.2 - 1),
    }  # fmt: skip
    assert {name: verdicts[0][name] for name in expected} == pytest.approx(expected)
    assert (verdicts[0]["metric"], verdicts[0]["against"]) == ("samples_per_second", "past")


def test_the_verdict_s_run_is_the_one_in_the_middle() -> None:
    runs = [make_result("node-1", rate, round=i) for i, rate in enumerate((9.0, 11.0, 10.0), start=1)]
    (work,) = works_of(night(1, runs))
    assert work.verdicts["node-1"]["run_id"] == runs[2].spec.identity.run_id
