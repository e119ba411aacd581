from __future__ import annotations

from datetime import date
from typing import Any

import pytest

from trainbench.core.number_checks import QuantityError
from trainbench.cost.job_estimates import TrainingJob, estimate, estimate_table, headline, prices_table
from trainbench.prices.price_tables import Price
from trainbench.prices.quote import Basis, Interruptions, Ownership, Pricing

TODAY = date(2026, 11, 21)
JOB = TrainingJob(work="a job", gpu="NVIDIA A10", num_gpus=4, num_samples=10_000, samples_per_s=5.5, rate_from="given")


def price(usd: float = 0.60, gpus: int = 1, spot: float | None = None, **fields: Any) -> Price:
    values: dict[str, Any] = {
        "provider": "P", "instance": f"{gpus}x", "gpu": "A10", "gpus_per_instance": gpus, "region": "R",
        "on_demand_usd_per_hour": usd, "spot_usd_per_hour": spot, "as_of": date(2026, 11, 1), "source": "S",
    }  # fmt: skip
    return Price(**(values | fields))


def test_the_four_nodes_of_the_reference_document() -> None:
    """10,000 / 5.5 = 1818.2 s = 0.50505 h; 4 GPUs x $0.60 x 0.50505 = $1.2121; per 1K $0.12121."""
    result = estimate(JOB, [price()], Pricing(), TODAY)
    (offer,) = result.offers
    assert result.hours == pytest.approx(0.50505, abs=1e-5)
    assert (offer.instances, offer.billed_gpus, offer.hours) == (4, 4, result.hours)
    assert (offer.usd, offer.usd_per_1000_samples) == (
        pytest.approx(1.2121, abs=1e-4),
        pytest.approx(0.12121, abs=1e-5),
    )
    assert result.missing == ()


def test_whole_instances_are_paid_for() -> None:
    """$4.80 / 8 = $0.60 a GPU-hour, but all eight are paid for: 0.50505 h x $4.80 = $2.4242, twice as much."""
    result = estimate(JOB, [price(4.80, gpus=8)], Pricing(), TODAY)
    (offer,) = result.offers
    assert (offer.instances, offer.billed_gpus, offer.usd) == (1, 8, pytest.approx(2.4242, abs=1e-4))
    assert "Whole instances are billed: some have more than the job's 4 GPUs." in result.assumptions
    both = estimate(JOB, [price(4.80, gpus=8), price()], Pricing(), TODAY).assumptions
    assert both[-3].startswith("Several instances: the rate holds only if")


def test_a_begun_instance_is_paid_for() -> None:
    """10 GPUs on instances of 8: two of them, 16 GPUs. 10,000 / 5.5 / 3600 h x 16 x $0.60 = $4.8485."""
    job = JOB.model_copy(update={"num_gpus": 10})
    (offer,) = estimate(job, [price(4.80, gpus=8)], Pricing(), TODAY).offers
    assert (offer.instances, offer.billed_gpus, offer.usd) == (2, 16, pytest.approx(4.8485, abs=1e-4))


def test_epochs_are_shown_and_paid() -> None:
    result = estimate(JOB.model_copy(update={"epochs": 3}), [price()], Pricing(), TODAY)
    assert (result.num_samples, result.offers[0].usd) == (30_000, pytest.approx(3.6364, abs=1e-4))
    assert "3 epochs of 10,000 samples." in result.assumptions


def test_offers_are_sorted_by_what_the_job_costs() -> None:
    rows = [price(4.80, gpus=8), price(0.70), price(1.20, gpus=2, provider="Q")]
    result = estimate(JOB, rows, Pricing(), TODAY)
    assert [offer.billed_gpus for offer in result.offers] == [4, 4, 8]
    assert [offer.provider for offer in result.offers] == ["Q", "P", "P"]


def test_a_pcie_card_is_not_offered_at_the_price_of_another() -> None:
    rows = [price(gpu="H100"), price(gpu="H100 PCIe", provider="Q"), price(gpu="H100", own=True, provider="mine")]
    result = estimate(JOB.model_copy(update={"gpu": "NVIDIA H100 PCIe"}), rows, Pricing(), TODAY)
    assert {offer.provider for offer in result.offers} == {"Q", "mine"}


class TestSpot:
    def test_interruptions_cost_time_and_money(self) -> None:
        """4 x 0.5 a day = 1 / 12 an hour, each 0.25 + 0.1 h: 2.9167 % lost. $0.18 / 0.970833 = $0.185408;
        0.50505 h x 4 x $0.185408 = $0.37456; 0.50505 / 0.970833 = 0.52022 h.
        """
        cut = Interruptions(per_day=0.5, checkpoint_every_minutes=30, restart_minutes=6)
        pricing = Pricing(basis=Basis.SPOT, interruptions=cut)
        result = estimate(JOB, [price(spot=0.18)], pricing, TODAY)
        (offer,) = result.offers
        assert result.assumptions[1].startswith("Spot: 0.500 interruptions a day and instance, a checkpoint every 30.0")
        assert offer.usd_per_gpu_hour == pytest.approx(0.185408, abs=1e-6)
        assert (offer.usd, offer.hours) == (pytest.approx(0.37456, abs=1e-5), pytest.approx(0.52022, abs=1e-5))

    def test_without_any_it_says_so(self) -> None:
        result = estimate(JOB, [price()], Pricing(basis=Basis.SPOT), TODAY)
        assert result.offers == ()
        assert result.missing[0].startswith("No spot price of NVIDIA A10: add it to a table of TRAINBENCH_PRICES")


class TestOwned:
    def test_without_a_purchase_price_it_is_the_list_price_of_the_card(self) -> None:
        """$1,599 over 8,760 h, at work a quarter of them: 1599 / 2190 = $0.7301 an hour."""
        own = Ownership(life_years=1, utilisation=0.25)
        job = JOB.model_copy(update={"gpu": "NVIDIA GeForce RTX 4090"})
        result = estimate(job, [], Pricing(basis=Basis.OWNED, ownership=own), TODAY)
        assert result.offers[0].usd_per_gpu_hour == pytest.approx(0.7301, abs=1e-4)
        source = "Owned: $1,599.00 a GPU (the bare card's list price of 2022-09-20, https://www.slashgear.com/"
        assert any(line.startswith(source) for line in result.assumptions)
        with pytest.raises(QuantityError, match="NVIDIA A10 has no list price: give purchase_usd"):
            estimate(JOB, [], Pricing(basis=Basis.OWNED, ownership=own), TODAY)

    def test_without_a_purchase_price_it_is_refused(self) -> None:
        with pytest.raises(QuantityError, match="basis owned: give the purchase price of a GPU"):
            estimate(JOB, [], Pricing(basis=Basis.OWNED), TODAY)


def test_a_given_price_needs_no_table_and_no_gpu() -> None:
    job = JOB.model_copy(update={"gpu": None})
    (offer,) = estimate(job, [], Pricing(basis=Basis.GIVEN, usd_per_gpu_hour=1.0), TODAY).offers
    assert (offer.instance, offer.as_of, offer.stale, offer.usd) == (
        "given",
        None,
        False,
        pytest.approx(2.0202, abs=1e-4),
    )


def test_without_a_rate_nothing_is_invented() -> None:
    result = estimate(JOB.model_copy(update={"samples_per_s": None}), [price()], Pricing(), TODAY)
    assert (result.hours, result.samples_per_s, result.offers[0].usd, result.offers[0].hours) == (
        None,
        None,
        None,
        None,
    )
    assert result.offers[0].usd_per_gpu_hour == 0.60
    assert result.missing == (
        "No rate, so neither time nor cost: give measured results, samples/s, or the MFU that you expect and a GPU.",
    )


def test_without_a_price_there_is_a_time() -> None:
    result = estimate(JOB.model_copy(update={"gpu": "NVIDIA T4"}), [price()], Pricing(), TODAY)
    assert (result.offers, result.hours) == ((), pytest.approx(0.50505, abs=1e-5))
    assert result.missing[0].startswith("No price of NVIDIA T4")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"num_samples": 0}, "number of samples is 0"),
        ({"num_samples": -5}, "number of samples is -5"),
        ({"epochs": 0.0}, "epochs is 0"),
        ({"num_gpus": 0}, "number of GPUs is 0"),
    ],
)
def test_what_is_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(QuantityError, match=message):
        estimate(JOB.model_copy(update=changes), [price()], Pricing(), TODAY)


def test_the_headlines_time_counts_interruptions_as_the_table_does() -> None:
    """36,000 samples at 10 a second are an hour of work; of a day's hours an eighth is lost to one interruption of 3 h
    on one instance: 1 / 0.875 h = 1 h 08 min 34 s, at $0.18 / 0.875 = $0.206.
    """
    cut = Interruptions(per_day=1, checkpoint_every_minutes=0, restart_minutes=180)
    job = JOB.model_copy(update={"num_gpus": 1, "num_samples": 36_000, "samples_per_s": 10.0})
    result = estimate(job, [price(spot=0.18)], Pricing(basis=Basis.SPOT, interruptions=cut), TODAY)
    assert headline(result) == "36,000 samples take 1 h 08 min at 10.00 samples/s and cost $0.206."


def test_every_kind_of_price_is_a_row_of_one_table() -> None:
    """0.50505 h on 4 GPUs of one instance. On demand $2.40 x 0.50505 = $1.2121, spot $0.72 x 0.50505 = $0.3636,
    reserved $1.20 x 0.50505 = $0.6061; a begun day $24, week $120 and month $400 are paid as a whole. Owned:
    $876 / (8,760 h x 0.5) = $0.20 a GPU-hour, x 4 x 0.50505 = $0.4040.
    """
    fields = {"reserved_usd_per_hour": 1.20, "usd_per_day": 24.0, "usd_per_week": 120.0, "usd_per_month": 400.0}
    own = Ownership(purchase_usd=876, life_years=1, utilisation=0.5)
    pricing = Pricing(basis=Basis.ALL, ownership=own)
    result = estimate(JOB, [price(2.40, gpus=4, spot=0.72, **fields)], pricing, TODAY)

    assert "Spot: no interruption is counted." in result.assumptions
    assert any(line.startswith("Owned: $876.00 a GPU, 1.00 years, at work 50.0 %") for line in result.assumptions)
    assert [(offer.basis.value, round(offer.usd or 0, 4)) for offer in result.offers] == [
        ("spot", 0.3636), ("owned", 0.404), ("reserved", 0.6061), ("on-demand", 1.2121), ("day", 24.0), ("week", 120.0),
        ("month", 400.0),
    ]  # fmt: skip
    day = next(offer for offer in result.offers if offer.basis is Basis.DAY)
    assert (day.usd_per_gpu_hour, day.usd_per_1000_samples) == (0.25, pytest.approx(2.4))
    assert "By the day, week and month: a begun one is paid for as a whole." in result.assumptions
    table = estimate_table([result, result.model_copy(update={"gpu": "NVIDIA L4"})])
    assert [row.texts[0] for row in table.rows[::7]] == [
        "a job, on 4 GPUs (NVIDIA A10)",
        "a job, on 4 GPUs (NVIDIA L4)",
    ]


def test_begun_days_are_paid_for() -> None:
    """540,000 samples at 5.5/s are 27.27 h: two days of $24."""
    job = JOB.model_copy(update={"num_samples": 540_000})
    (offer,) = estimate(job, [price(2.40, gpus=4, usd_per_day=24.0)], Pricing(basis=Basis.DAY), TODAY).offers
    assert (offer.usd, offer.hours) == (48.0, pytest.approx(27.27, abs=0.01))


def test_a_price_by_the_week_of_one_gpu_is_the_provider_s_own_where_there_is_one() -> None:
    """$0.60 x 24 = $14.40 and x 168 = $100.80; of $120 a week for 4 GPUs each $30."""
    listed = prices_table([price(), price(2.40, gpus=4, usd_per_week=120.0)], TODAY)
    at = listed.names.index("per day")
    assert [row.texts[at : at + 2] for row in listed.rows] == [("$14.40", "$100.80"), ("$14.40", "$30.00")]


def test_without_an_offer_no_list_price_is_spoken_of() -> None:
    result = estimate(JOB, [], Pricing(), TODAY)
    assert not any(sentence.startswith("List prices") for sentence in result.assumptions)
    assert any(
        sentence.startswith("List prices") for sentence in estimate(JOB, [price()], Pricing(), TODAY).assumptions
    )


def test_the_headline_spans_the_shortest_and_the_longest_time() -> None:
    """Each interruption takes 0.05 + 0.05 h, one an hour and instance: 0.9 of the time is useful on one instance of 4
    GPUs, 0.6 on four of one. 0.50505 h / 0.9 = 33 min 40 s, / 0.6 = 50 min 30 s.
    """
    cut = Interruptions(per_day=24, checkpoint_every_minutes=6, restart_minutes=3)
    rows = [price(spot=0.18), price(2.40, gpus=4, spot=0.72)]
    result = estimate(JOB, rows, Pricing(basis=Basis.SPOT, interruptions=cut), TODAY)
    times = sorted(offer.hours or 0.0 for offer in result.offers)
    assert times == [pytest.approx(0.50505 / 0.9, abs=1e-4), pytest.approx(0.50505 / 0.6, abs=1e-4)]
    assert "take 33 min 40 s to 50 min 30 s at" in headline(result)


def test_a_price_is_listed_with_its_day_and_one_without_a_day_as_given() -> None:
    listed = prices_table([price(), price(as_of=None)], TODAY)
    place = next(i for i, cell in enumerate(listed.rows[0].texts) if cell == "2026-11-01")
    assert [row.texts[place] for row in listed.rows] == ["2026-11-01", "given"]
