"""The tables of a survey at several numbers of GPUs: rates per GPU, scaling, cost of all GPUs, and budgets."""

from __future__ import annotations

from typing import Any

import pytest

from bench_image.contract.options import Recipe, Strategy
from bench_image.contract.result import RunResult
from tests.builders import campaigns, make_failed, make_result
from trainbench.comparison.hardware_survey import SurveyCell, saved_memory, survey_cells
from trainbench.core.tables import Table
from trainbench.params.campaign_kind import CampaignKind
from trainbench.planning.plan import Skipped
from trainbench.reporting import survey_tables
from trainbench.results.campaign import Campaign

A10, A100 = "NVIDIA A10", "NVIDIA A100-SXM4-80GB"
# Samples/s by number of GPUs: 2 GPUs at 95 %, 4 at 90 % of their number times one.
RATES = {1: 2.0, 2: 3.8, 4: 7.2}


def ran(gpus: int, rate: float, memory_gb: float = 20.0, gpu: str = A10, recipe: str = "full") -> RunResult:
    return make_result(
        gpu.split()[1].lower(),
        rate,
        gpu_name=gpu,
        memory_gb=memory_gb,
        strategy="single" if gpus == 1 else "ddp",
        gpus_per_node=gpus,
        model="llama2-7b",
        recipe=recipe,
    )


def survey(*results: RunResult, **fields: Any) -> Campaign:
    """A10s at $0.60 per GPU-hour."""
    params = {"budgets_usd": [500, 10_000], "purchase_usd": {"A10": 1000}}
    kind = {"campaign_kind": CampaignKind.HARDWARE, "params": params, "suite": "hardware_survey"}
    return campaigns.make_campaign(results, **kind | fields)


def rows(table: Table, *columns: str) -> list[tuple[str, ...]]:
    places = [table.names.index(name) for name in columns]
    return [tuple(row.texts[place] for place in places) for row in table.rows]


def cell(campaign: Campaign, gpus: int) -> SurveyCell:
    return next(c for c in survey_cells(campaign) if c.world_size == gpus)


ALL = survey(*(ran(gpus, rate) for gpus, rate in RATES.items()))


def test_each_number_of_gpus_is_a_row_with_its_rate_per_gpu_and_its_scaling() -> None:
    """3.8 samples/s of 512 tokens on two GPUs: 1,946 tokens/s, 972.8 per GPU; 1.9 of 2.0 samples/s per GPU: 95 %."""
    (table,) = survey_tables.speed(ALL)

    assert rows(table, "GPUs", "strategy", "tokens/s", "samples/s", "per GPU", "scaling") == [
        ("1", "single", "1,024", "2.000", "1,024", "100 % (base)"),
        ("2", "ddp", "1,946", "3.800", "972.8", "95.0 %"),
        ("4", "ddp", "3,686", "7.200", "921.6", "90.0 %"),
    ]
    assert table.notes[0].startswith("Several GPUs of one node work together; medians over runs.")


def test_a_sample_costs_all_gpus() -> None:
    """Two GPUs at $0.60 make 3.8 x 3,600 samples in an hour: $1.20 / 13,680 x 1e6 = $87.72 for a million."""
    (table,) = survey_tables.speed(ALL)

    assert rows(table, "per 1M samples") == [("$83.33",), ("$87.72",), ("$92.59",)]


def test_relative_speed_is_against_as_many_gpus() -> None:
    """The A100 is 4 times as fast on one GPU, and 3 times on two."""
    others = [ran(1, 8.0, gpu=A100), ran(2, 11.4, gpu=A100)]
    (table,) = survey_tables.speed(survey(ran(1, 2.0), ran(2, 3.8), *others))
    ratios = {row[:2]: row[2].split(" ")[0] for row in rows(table, "hardware", "GPUs", "relative speed")}

    assert ratios == {
        (A100, "1"): "1.00x", (A10, "1"): "0.25x",
        (A100, "2"): "1.00x", (A10, "2"): "0.33x",
    }  # fmt: skip
    assert any("those of the fastest with as many GPUs" in note for note in table.notes)


def test_a_budget_rents_the_number_of_gpus_that_is_cheapest_per_sample() -> None:
    """One GPU costs $83.33 a million samples. Where only two and four ran, two are the cheapest: $500 / $87.72 =
    5.70 M samples, at 3.8 samples/s 417 h, 17.4 days.
    """
    only_gangs = survey(ran(2, 3.8), ran(4, 7.2))
    rented = survey_tables.money(only_gangs)[0]

    assert rows(survey_tables.money(ALL)[0], "cheapest GPU") == [(A10,)]
    assert rows(rented, "work", "cheapest GPU", "$500.00 buys") == [
        ("llama2-7b full", f"2 x {A10}, ddp", "5.70 M samples, 114 epochs, 17.4 days")
    ]
    assert survey_tables.headline(only_gangs) == (
        f"llama2-7b full: fastest 3,686 tokens/s on 4 x {A10}, ddp, cheapest $87.72 per 1M samples on 2 x {A10}, ddp.",
    )


def test_a_budget_buys_groups_where_the_work_ran_on_several_gpus_only() -> None:
    """$10,000 buy ten at $1,000: five groups of two make 5 x 3.8, two groups of four 2 x 7.2 samples/s."""
    owned = survey_tables.money(survey(ran(2, 3.8), ran(4, 7.2)))[1]

    assert rows(owned, "budget", "buys", "which together do") == [
        ("$500.00", f"none: the cheapest with a price is 2 x {A10}, ddp at $2,000.00", "n/a"),
        ("$10,000.00", f"10 x {A10} at $1,000.00 in groups of 2 by ddp", "9,728 tokens/s"),
    ]


def test_memory_is_saved_against_full_on_as_many_gpus() -> None:
    lora = ran(2, 3.0, memory_gb=5.0, recipe="lora")
    campaign = survey(ran(1, 2.0, memory_gb=8.0), ran(2, 3.8, memory_gb=10.0), lora)
    saved = saved_memory(next(c for c in survey_cells(campaign) if c.recipe == "lora"), survey_cells(campaign))

    assert saved is not None
    assert (saved.pct, saved.by_formula) == (pytest.approx(50.0), False)
    assert rows(survey_tables.memory(campaign)[0], "hardware")[1:] == [(f"2 x {A10}, ddp",)] * 2


def test_a_failed_and_a_skipped_number_of_gpus_is_a_row_with_its_reason() -> None:
    failed = make_failed("a10", strategy="ddp", gpus_per_node=4, model="llama2-7b", recipe="full")
    skip = Skipped(
        what="eight", label="llama2-7b full, ddp on 8 GPUs", reason="needs 8 GPUs",
        strategy=Strategy.DDP, gpus_per_node=8, nodes=("a10",), model="llama2-7b", recipe=Recipe.FULL,
        gpu_product="NVIDIA-A10",
    )  # fmt: skip
    campaign = survey(ran(1, 2.0), failed, skipped=(skip,))
    (table,) = survey_tables.speed(campaign)

    assert rows(table, "GPUs", "strategy", "remark") == [
        ("1", "single", "1 run on 1 node"),
        ("4", "ddp", "oom: CUDA out of memory: tried to allocate 2.00 GiB"),
        ("8", "ddp", "needs 8 GPUs"),
    ]
    assert cell(campaign, 8).results == ()


def test_a_misspelt_baseline_is_answered_with_the_names_of_the_measured_gpus() -> None:
    """The form takes any text, because only the run shows which GPUs there are."""
    campaign = survey(ran(1, 2.0), ran(1, 6.0, gpu=A100), params={"baseline_gpu": "A1000"})
    (table,) = survey_tables.speed(campaign)

    assert (
        "full: no relative speed, because baseline_gpu 'A1000' names none of the GPUs measured there: "
        "NVIDIA A10 and NVIDIA A100-SXM4-80GB."
    ) in table.notes
