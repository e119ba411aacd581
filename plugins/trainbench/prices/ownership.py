"""Cost per hour of an owned GPU, and its break-even utilisation against a rented one.

Rates in, USD out; all money is for one GPU (a server's price / its GPUs):
    owned_usd_per_gpu_hour(capex_usd, life_hours, utilisation, residual_share=0, opex_usd_per_gpu_hour=0) -> USD
    break_even_hours_per_month(rent_usd_per_gpu_hour, capex_usd, life_months, residual_share=0,
                               opex_usd_per_gpu_hour=0) -> hours of use, or None: never
    break_even_months(rent_usd_per_gpu_hour, capex_usd, hours_per_month, residual_share=0,
                      opex_usd_per_gpu_hour=0) -> months, or None: never
    rent_or_buy(...) -> RentOrBuy: both, the choice and the sentence that says why
    price_of_time(usd_per_gpu_hour, hours) -> USD of one GPU for so many hours, None where the price is unknown
"""

from __future__ import annotations

from enum import StrEnum

from bench_image.contract.frozen import Frozen
from trainbench.core.formats import figure, usd
from trainbench.core.number_checks import QuantityError, lost_share, not_negative, positive, used_share

HOURS_PER_DAY, HOURS_PER_WEEK, HOURS_PER_MONTH = 24.0, 168.0, 730.0  # a month: 8760 / 12


class Choice(StrEnum):
    RENT = "rent"
    BUY = "buy"


class RentOrBuy(Frozen):
    """`break_even_*` are None where buying never pays; `why` says it with the figures."""

    choice: Choice
    rented_usd_per_month: float
    owned_usd_per_month: float
    break_even_hours_per_month: float | None
    break_even_months: float | None
    why: str


def price_of_time(usd_per_gpu_hour: float | None, hours: float) -> float | None:
    """Price per GPU-hour x hours; None: the price is unknown."""
    return None if usd_per_gpu_hour is None else usd_per_gpu_hour * hours


def owned_usd_per_gpu_hour(
    capex_usd: float,
    life_hours: float,
    utilisation: float,
    residual_share: float = 0.0,
    opex_usd_per_gpu_hour: float = 0.0,
) -> float:
    """capex x (1 - residual) / (life hours x utilisation) + opex.

    `life_hours`: hours that it is owned, idle ones included; `utilisation`: the share of them in which it works, so
    that idle hours are paid for by the busy ones. `opex_usd_per_gpu_hour`: per hour of work; running costs that go on
    while it idles are to be divided by the utilisation first. Raises QuantityError.
    """
    worked_hours = positive(life_hours, "life_hours") * used_share(utilisation, "utilisation")
    return _lost_value_usd(capex_usd, residual_share) / worked_hours + not_negative(opex_usd_per_gpu_hour, "opex")


def break_even_hours_per_month(
    rent_usd_per_gpu_hour: float,
    capex_usd: float,
    life_months: float,
    residual_share: float = 0.0,
    opex_usd_per_gpu_hour: float = 0.0,
) -> float | None:
    """Hours of use per month above which owning is cheaper: capex x (1 - residual) / (life months x (rent - opex)).

    None: an hour of an owned GPU costs as much as a rented one even without the purchase, or a month has not that many
    hours. Raises QuantityError.
    """
    lost_usd = _lost_value_usd(capex_usd, residual_share)
    months = positive(life_months, "life_months")
    saved = _saved_per_hour(rent_usd_per_gpu_hour, opex_usd_per_gpu_hour)
    if saved <= 0:
        return None
    hours = lost_usd / (months * saved)
    return hours if hours <= HOURS_PER_MONTH else None


def break_even_months(
    rent_usd_per_gpu_hour: float,
    capex_usd: float,
    hours_per_month: float,
    residual_share: float = 0.0,
    opex_usd_per_gpu_hour: float = 0.0,
) -> float | None:
    """Months of that use until the rent saved has paid the purchase: capex x (1 - residual) / (hours x (rent - opex)).

    None: never. It says nothing about the GPU's life: `rent_or_buy` does. Raises QuantityError.
    """
    lost_usd = _lost_value_usd(capex_usd, residual_share)
    saved = _saved_per_hour(rent_usd_per_gpu_hour, opex_usd_per_gpu_hour)
    return lost_usd / (_hours(hours_per_month) * saved) if saved > 0 else None


def rent_or_buy(
    rent_usd_per_gpu_hour: float,
    capex_usd: float,
    hours_per_month: float,
    life_months: float,
    residual_share: float = 0.0,
    opex_usd_per_gpu_hour: float = 0.0,
) -> RentOrBuy:
    """Whether renting or buying costs less over the GPU's life at that use. A tie counts as renting."""
    rented = positive(rent_usd_per_gpu_hour, "rent per GPU-hour") * _hours(hours_per_month)
    written_off = _lost_value_usd(capex_usd, residual_share) / positive(life_months, "life_months")
    owned = written_off + not_negative(opex_usd_per_gpu_hour, "opex") * hours_per_month
    hours = break_even_hours_per_month(
        rent_usd_per_gpu_hour, capex_usd, life_months, residual_share, opex_usd_per_gpu_hour
    )
    choice = Choice.BUY if owned < rented else Choice.RENT
    return RentOrBuy(
        choice=choice,
        rented_usd_per_month=rented,
        owned_usd_per_month=owned,
        break_even_hours_per_month=hours,
        break_even_months=break_even_months(
            rent_usd_per_gpu_hour, capex_usd, hours_per_month, residual_share, opex_usd_per_gpu_hour
        ),
        why=_why(choice, rented, owned, hours_per_month, hours),
    )


def _why(choice: Choice, rented: float, owned: float, used_hours: float, hours: float | None) -> str:
    costs = f"{figure(used_hours, 3)} h of use a month cost {usd(rented)} rented and {usd(owned)} owned: {choice}"
    if hours is None:
        return f"{costs}. Buying does not pay at any use."
    return f"{costs}. Buying pays above {figure(hours, 3)} h a month."


def _lost_value_usd(capex_usd: float, residual_share: float) -> float:
    return positive(capex_usd, "purchase price") * (1 - lost_share(residual_share, "residual_share"))


def _saved_per_hour(rent_usd_per_gpu_hour: float, opex_usd_per_gpu_hour: float) -> float:
    return positive(rent_usd_per_gpu_hour, "rent per GPU-hour") - not_negative(opex_usd_per_gpu_hour, "opex")


def _hours(hours_per_month: float) -> float:
    if not 0 < hours_per_month <= HOURS_PER_MONTH:
        raise QuantityError(f"hours_per_month is {hours_per_month:g}: a month has {HOURS_PER_MONTH:g} h at most")
    return hours_per_month
