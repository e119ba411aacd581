from __future__ import annotations

import pytest

from trainbench.core.number_checks import QuantityError
from trainbench.prices.quote import (
    owned_usd_per_gpu_hour,
    price_of_time,
    rent_or_buy,
)

# $8,000 a GPU of which a quarter is left at the end: $6,000 to write off. $0.10 per hour of work to run.
CAPEX_USD, RESIDUAL, OPEX = 8000.0, 0.25, 0.10


def test_an_hour_of_ones_own_by_hand() -> None:
    """Owned for 30,000 h, at work in half of them: 6000 / 15,000 = $0.40, + $0.10 = $0.50."""
    assert owned_usd_per_gpu_hour(CAPEX_USD, 30_000, 0.5, RESIDUAL, OPEX) == pytest.approx(0.50)


def test_much_use_is_bought() -> None:
    """200 h a month: rented $420; owned 6000 / 40 + 20 = $170."""
    assert rent_or_buy(2.10, 6000, 200, 40, OPEX)[1] == (
        "200 h of use a month cost $420.00 rented and $170.00 owned: buy. Buying pays above 75.0 h a month."
    )


def test_break_even_by_hand() -> None:
    """Rented at $2.10: $2.00 saved per hour; 6000 / 40 months = $150 a month; 150 / 2 = 75 h."""
    assert rent_or_buy(2.10, 6000, 200, 40, OPEX)[0] == pytest.approx(75)


@pytest.mark.parametrize("rent", [0.10, 0.05])
def test_renting_for_less_than_the_running_costs_never_ends(rent: float) -> None:
    assert rent_or_buy(rent, 6000, 200, 40, OPEX)[0] is None


def test_a_month_has_only_so_many_hours() -> None:
    """$0.30 rented: 150 / 0.20 = 750 h, more than the 730 of a month."""
    assert rent_or_buy(0.30, 6000, 200, 40, OPEX)[0] is None


def test_the_tie_is_rented() -> None:
    assert "$150.00 rented and $150.00 owned: rent." in rent_or_buy(2.0, 6000.0, 75, 40)[1]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"capex_usd": 0.0}, "purchase price is 0"),
        ({"capex_usd": float("nan")}, "purchase price is nan"),
        ({"life_months": -1.0}, "life_months is -1"),
        ({"hours_per_month": 731.0}, "hours_per_month is 731: a month has 730 h at most"),
        ({"hours_per_month": 0.0}, "hours_per_month is 0"),
        ({"hours_per_month": float("nan")}, "hours_per_month is nan"),
        ({"rent_usd_per_gpu_hour": float("inf")}, "rent per GPU-hour is inf"),
        ({"opex_usd_per_gpu_hour": -0.1}, "opex is -0.1"),
    ],
)
def test_what_is_refused(changes: dict[str, float], message: str) -> None:
    usual = {"rent_usd_per_gpu_hour": 2.0, "capex_usd": 8000.0, "hours_per_month": 200.0, "life_months": 36.0}
    with pytest.raises(QuantityError, match=message):
        rent_or_buy(**(usual | changes))


def test_a_gpu_is_never_worth_all_of_its_price() -> None:
    """$8,000 over 8,000 h of work are $1.00 an hour."""
    assert owned_usd_per_gpu_hour(CAPEX_USD, 8_000, 1.0) == pytest.approx(1.00)
    with pytest.raises(QuantityError, match="residual_share is 1: it must be a share from 0 to below 1"):
        owned_usd_per_gpu_hour(CAPEX_USD, 8_000, 1.0, residual_share=1.0)


def test_a_gpu_by_the_day_week_and_month_by_hand() -> None:
    """Lambda's A100 in the hardware reference: $1.29 an hour is $30.96 a day and $216.72 a week; x 730 $941.70."""
    per_day, per_week, per_month = (price_of_time(1.29, hours) for hours in (24, 168, 730))
    assert (per_day, per_week, per_month) == (pytest.approx(30.96), pytest.approx(216.72), pytest.approx(941.70))
    assert price_of_time(None, 24) is None
