"""A survey of GPUs: relative speed, saved memory, time, cost, and what a budget buys."""

from __future__ import annotations

import math
from datetime import date
from typing import Any

import pytest

from bench_image.contract.options import Strategy
from bench_image.contract.result import Status
from tests.builders import campaigns, make_cpu_result, make_failed, make_result
from trainbench.comparison.entries import gpu_kind_by_node
from trainbench.comparison.hardware_survey import (
    PurchasePrice,
    SurveyCell,
    baseline,
    comparison_params,
    measured,
    purchase_price,
    relative_speed,
    saved_memory,
    survey_cells,
)
from trainbench.core.tables import Table
from trainbench.params.campaign_params import ComparisonParams
from trainbench.planning.nodes import GpuNode
from trainbench.planning.plan import Skipped
from trainbench.prices.price_tables import Price
from trainbench.reporting import survey_tables
from trainbench.results.campaign import Campaign

SURVEY = campaigns.survey()
A100, A10 = campaigns.SURVEY_NODES


def cell(recipe: str, gpu: str, campaign: Campaign = SURVEY) -> SurveyCell:
    return next(c for c in survey_cells(campaign) if (c.recipe, c.gpu) == (recipe, gpu))


def rows(table: Table, *columns: str) -> list[tuple[str, ...]]:
    places = [table.names.index(name) for name in columns]
    return [tuple(row.texts[place] for place in places) for row in table.rows]


def money(campaign: Campaign, title: str) -> Table:
    return next(table for table in survey_tables.money(campaign) if table.title == title)


def test_speed_is_relative_to_the_fastest_or_to_the_gpu_that_is_named() -> None:
    """1,800 / 5,420 = 0.332."""
    lora = [c for c in survey_cells(SURVEY) if c.recipe == "lora"]
    fastest, named = baseline(lora, None), baseline(lora, "A10")
    assert fastest is not None
    assert named is not None
    ratio = relative_speed(cell("lora", A10), fastest)

    assert (fastest.gpu, named.gpu) == (A100, A10)
    assert ratio is not None
    assert ratio.ratio == pytest.approx(0.3321, rel=1e-3)
    assert baseline(lora, "H100") is None


def test_the_noise_of_a_relative_speed_is_that_of_both_sides() -> None:
    """Of a single run t = 9.925 x 0.5 %. Three runs of 1 %, with the prior 0.79 %, t = 4.604, variance pi / 6."""
    three = [make_result("a", rate, round=i) for i, rate in enumerate((10.0, 10.1, 9.9), 1)]
    campaign = campaigns.make_campaign(
        [*three, make_result("b", 5.0, gpu_name="NVIDIA A10")], campaign_kind=SURVEY.campaign_kind, params={}
    )
    fast, slow = sorted(measured(survey_cells(campaign)), key=lambda c: -c.tokens_per_s)
    widths = [actual.log_half_width for pair in ((fast, slow), (slow, fast)) if (actual := relative_speed(*pair))]

    three_runs = 4.604 * math.sqrt(0.625e-4 * math.pi / 6)
    assert widths == pytest.approx([math.hypot(9.925 * 0.005, three_runs)] * 2, rel=1e-2)


def test_what_only_some_nodes_of_a_kind_can_run_is_one_cell_with_its_figures() -> None:
    """ddp on 8 GPUs ran on node-1; node-2 of the same kind has 4. On the A10 nothing ran, which is a cell."""
    ran = make_result("node-1", 80.0, strategy="ddp", gpus_per_node=8)
    work = ran.spec.work
    few = Skipped(
        what="ddp on 8 GPUs",
        reason="needs 8 GPUs of one node",
        strategy=Strategy.DDP,
        gpus_per_node=8,
        nodes=("node-2",),
        model=work.model,
        recipe=work.recipe,
    )
    campaign = campaigns.make_campaign(
        [ran, make_result("node-2"), make_result("small-1", gpu_name="NVIDIA A10")],
        campaign_kind=SURVEY.campaign_kind,
        params={},
        skipped=(few, few.model_copy(update={"nodes": ("small-1",)})),
    )
    of_gang = [c for c in survey_cells(campaign) if c.world_size == 8]

    assert [(c.gpu, c.samples_per_s) for c in of_gang] == [("NVIDIA H200", 80.0), ("NVIDIA A10", 0.0)]


def test_why_nothing_was_measured_quotes_the_first_failure() -> None:
    lost = make_failed("small-1", status=Status.OOM, message="CUDA out of memory", model="llama2-7b")
    crashed = make_failed("small-1", round=2, status=Status.ERROR, message="no route to host", model="llama2-7b")
    (actual,) = survey_cells(campaigns.make_campaign([lost, crashed], campaign_kind=SURVEY.campaign_kind, params={}))

    assert (actual.why_not, actual.num_failed) == ("oom: CUDA out of memory", 2)


def test_epoch_and_costs_follow_from_the_rate() -> None:
    """5,420 / 1,024 = 5.293 samples/s: 50,000 of them in 9,446 s; $2.00 / (5.293 x 3,600) x 1e6 = $104.96."""
    (table,) = survey_tables.speed(SURVEY)

    assert rows(table, "recipe", "hardware", "1 epoch", "per 1M samples")[2] == ("lora", A100, "2 h 37 min", "$104.96")


def test_unequal_micro_batches_are_named() -> None:
    (table,) = survey_tables.speed(SURVEY)
    remarks = [note for note in table.notes if note.startswith("Unequal work with lora")]

    assert remarks == [
        f"Unequal work with lora: the micro-batch is 8 on {A100}; 4 on {A10} (each GPU ran its fastest setting). "
        "A step is not the same work on each."
    ]


def test_what_does_not_fit_and_what_is_away_are_rows_with_the_reason() -> None:
    (table,) = survey_tables.speed(SURVEY)
    remarks = {row[:2]: row[2] for row in rows(table, "recipe", "hardware", "remark")}

    assert remarks["full", A10].startswith("needs about 54.2 GB")
    assert remarks["everything", "NVIDIA-H100-80GB-HBM3"] == "h100-1: cordoned"


def test_memory_is_saved_against_full_on_equal_work_only() -> None:
    """10.1 of 56.0 GB measured at a micro-batch of 4 each: 82.0 %. The A10 has no full run: by formula, 54.7 GB."""
    actual = survey_cells(SURVEY)
    same, other = saved_memory(cell("qlora", A100), actual), saved_memory(cell("lora", A10), actual)

    assert same is not None
    assert (round(same.pct, 1), same.full_gb, same.by_formula) == (82.0, 56.0, False)
    assert other is not None
    assert other.by_formula
    assert other.full_gb == pytest.approx(54.7, abs=0.5)
    assert other.pct == pytest.approx(100 * (1 - 16.8 / other.full_gb))
    unequal = saved_memory(cell("lora", A100), actual)  # at 8, full at 4
    assert unequal is not None
    assert unequal.by_formula
    assert saved_memory(cell("full", A100), actual) is None


def test_a_budget_buys_what_the_cheapest_measured_gpu_makes_of_it() -> None:
    """$0.60 / (1,800 / 1,024 x 3,600) x 1e6 = $94.81 per 1M samples; $500 buy 5.27 M of them, in 833 h."""
    table = money(SURVEY, "What a budget buys, rented")

    assert rows(table, "work", "cheapest GPU", "per 1M samples", "$500.00 buys")[1] == (
        "llama2-7b lora", A10, "$94.81", "5.27 M samples, 105 epochs, 34.7 days",
    )  # fmt: skip


def test_what_can_be_bought_follows_from_the_purchase_prices() -> None:
    """$20,000 are one A100 at $15,000; $500 are none."""
    table = money(SURVEY, "What a budget buys, owned")

    assert rows(table, "budget", "buys") == [
        ("$500.00", f"none: the cheapest with a price is {A100} at $15,000.00"),
        ("$20,000.00", f"1 x {A100} at $15,000.00"),
    ]
    several = campaigns.survey(params=SURVEY.params | {"purchase_usd": {"A100": 15_000, "A10": 3_000}})
    # six A10 make 6 x 1,800 tokens/s, one A100 5,420
    assert rows(money(several, "What a budget buys, owned"), "buys", "which together do")[1] == (
        f"6 x {A10} at $3,000.00", "10,800 tokens/s",
    )  # fmt: skip


def test_a_budget_of_exactly_one_gpu_s_price_buys_it() -> None:
    exact = campaigns.survey(params=SURVEY.params | {"budgets_usd": [15_000]})

    assert rows(money(exact, "What a budget buys, owned"), "buys") == [(f"1 x {A100} at $15,000.00",)]


def test_gpus_that_cannot_be_bought_are_not_left_out_in_silence() -> None:
    """Both ran lora, only the A100 has a purchase price. An H100 that ran another work cannot be compared by lora."""
    assert (
        f"Left out, without a list price or one in purchase_usd: {A10}."
        in money(SURVEY, "What a budget buys, owned").notes
    )
    other = make_result("h100-1", campaign_id="survey-1", gpu_name="NVIDIA H100 80GB HBM3")
    with_h100 = SURVEY.model_copy(update={"results": (*SURVEY.results, campaigns.at_price(other))})
    assert "Left out, because this work was not measured on them: NVIDIA H100 80GB HBM3." in (
        money(with_h100, "What a budget buys, owned").notes
    )


def test_rent_or_buy_is_the_formulas_answer() -> None:
    """$15,000 over 36 months are $416.67 a month: at $2.00 per hour that is 208 h."""
    table = money(SURVEY, "Rent or buy")

    assert rows(table, "GPU", "pays above h a month")[0] == (A100, "208")
    assert (
        table.rows[1].texts[-1].startswith("cannot be answered: it has no list price: give its price in purchase_usd")
    )


def test_the_hours_of_use_are_the_campaign_s_parameter() -> None:
    """At 99.5 h a month $2.00 an hour are $199 of rent."""
    seldom = campaigns.survey(params=SURVEY.params | {"used_hours_per_month": 99.5})
    assert money(seldom, "Rent or buy").notes[0].startswith("Owned: 99.5 h of use a month, worth 0 after 36.0 months, ")
    assert rows(money(seldom, "Rent or buy"), "choice")[0][0].startswith("99.5 h of use a month cost $199.00 rented")


def test_without_prices_the_answers_say_so() -> None:
    results = tuple(campaigns.at_price(run, None) for run in SURVEY.results)
    unpriced = campaigns.survey(params={"budgets_usd": [500]}, results=results)

    assert rows(money(unpriced, "What a budget buys, rented"), "$500.00 buys")[0] == (
        f"cannot be answered: no price for {A100}",
    )
    assert rows(money(unpriced, "What a budget buys, owned"), "buys") == [
        ("cannot be answered: these GPUs have no list price: give their prices in purchase_usd",),
    ]


def test_a_cpu_is_a_kind_without_gpu_memory() -> None:
    results = [make_cpu_result("node-1", 40.0, model="tiny", recipe=recipe) for recipe in ("full", "lora")]
    about = {"campaign_kind": SURVEY.campaign_kind, "labels": {}, "params": {}, "usd_per_gpu_hour": None}
    campaign = campaigns.make_campaign(results, **about)

    assert [c.gpu for c in measured(survey_cells(campaign))] == ["CPU", "CPU"]
    assert survey_tables.memory(campaign) == survey_tables.money(campaign) == ()
    assert len(survey_tables.speed(campaign)) == 1


def test_a_failed_run_belongs_to_its_nodes_kind() -> None:
    """As the cluster labels it, or as another node of the kind tells it."""
    failed = make_failed("small-2", campaign_id="survey-1", model="llama2-7b")
    campaign = campaigns.make_campaign(
        [*SURVEY.results, failed, make_failed("who", campaign_id="survey-1")],
        campaign_kind=SURVEY.campaign_kind,
        known=(GpuNode(name="small-2", gpu_product="NVIDIA-A10"),),
    )

    assert gpu_kind_by_node(campaign)["small-2"] == A10
    assert gpu_kind_by_node(campaign)["who"] == "GPU unknown"


def test_nothing_measured_is_still_a_report() -> None:
    failed = make_failed("small-1", model="llama2-7b")
    campaign = campaigns.make_campaign([failed], campaign_kind=SURVEY.campaign_kind, params={})
    (table,) = survey_tables.speed(campaign)

    assert table.rows[0].texts[-1].startswith("oom: CUDA out of memory")
    assert survey_tables.headline(campaign) == ()
    assert survey_tables.money(campaign) == ()


@pytest.mark.parametrize(("name", "usd"), [("NVIDIA A10", 3.0), ("NVIDIA A100-SXM4-80GB", 2.0), ("NVIDIA H100", None)])
def test_a_purchase_price_is_found_by_the_words_of_the_name(name: str, usd: float | None) -> None:
    wanted = ComparisonParams(purchase_usd={"A100": 1.0, "A100 80GB": 2.0, "A10": 3.0})

    assert purchase_price(name, wanted) == (usd and PurchasePrice(usd))


def test_a_card_with_a_list_price_needs_no_purchase_price() -> None:
    """$5,000 buy three at $1,599. Over 36 months that is $44.42 a month: at $0.34 per hour 131 h of use."""
    card = make_result("box-1", 2.0, gpu_name="NVIDIA GeForce RTX 4090", recipe="lora")
    campaign = campaigns.make_campaign([card], campaign_kind=SURVEY.campaign_kind, params={}, usd_per_gpu_hour=0.34)
    owned, choice = money(campaign, "What a budget buys, owned"), money(campaign, "Rent or buy")

    assert rows(owned, "budget", "buys")[2] == ("$5,000.00", "3 x NVIDIA GeForce RTX 4090 at $1,599.00")
    assert rows(choice, "purchase", "pays above h a month") == [("$1,599.00", "131")]
    for table in (owned, choice):
        (note,) = (note for note in table.notes if note.startswith("Purchase of NVIDIA GeForce RTX 4090: $1,599.00, "))
        assert "list price of 2022-09-20, https://www.slashgear.com/" in note


def test_stored_params_of_other_versions_do_not_break_the_report() -> None:
    params: dict[str, Any] = {"model": "mistral-7b", "something_new": 1}

    assert comparison_params(campaigns.make_campaign([], params=params)) == ComparisonParams()


def test_a_gpu_without_a_price_is_not_left_out_in_silence() -> None:
    """The A100 has no price: the A10 is the cheapest of those that have one, and that is said."""
    usd = {A100: None, A10: 0.60}
    results = tuple(
        campaigns.at_price(run, usd[gpu_kind_by_node(SURVEY)[run.spec.identity.node]]) for run in SURVEY.results
    )
    campaign = SURVEY.model_copy(update={"results": results})
    table = money(campaign, "What a budget buys, rented")
    assert f"No price of {A100} is known: it is compared by speed only." in table.notes
    assert rows(table, "work", "cheapest GPU")[1] == ("llama2-7b lora", A10)
    remarks = survey_tables.headline(campaign)
    assert remarks[1].endswith(f"on {A10}, of those with a price.")


def price(usd: float, provider: str, gpu: str = "A10") -> Price:
    return Price(
        provider=provider, instance="x", gpu=gpu, gpus_per_instance=1, region="here", on_demand_usd_per_hour=usd,
        as_of=date(2026, 1, 4), source="a page",
    )  # fmt: skip


def test_nothing_is_relative_to_or_of_a_cell_without_a_figure() -> None:
    """Full fine-tuning was not measured on the A10."""
    empty, full = next(c for c in survey_cells(SURVEY) if not c.results), cell("lora", A100)
    assert relative_speed(empty, full) is None
    assert relative_speed(full, empty) is None
