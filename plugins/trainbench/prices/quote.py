"""One `Quote` for each price of a GPU-hour: the work's time and money at it. Every formula of money is here, too.

quotes(gpu_name, prices, pricing, today, num_gpus, samples_per_s, num_samples) -> Quotes, the cheapest work first
The formulas take numbers and return US dollars, shares, hours or months; each raises QuantityError for a number outside
of its bounds. docs/internals/cost.md lists them with a test by hand for each.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from datetime import date
from enum import StrEnum

from bench_image.contract.frozen import Frozen
from trainbench.core.formats import figure, usd
from trainbench.core.number_checks import QuantityError, at_least, lost_share, not_negative, positive, used_share
from trainbench.prices.price_tables import Price, exact_prices, given_price, list_price

HOURS_PER_DAY, HOURS_PER_WEEK, HOURS_PER_MONTH, HOURS_PER_YEAR = 24.0, 168.0, 730.0, 8760.0  # a month: 8760 / 12
JOULES_PER_KWH = 3.6e6


class Basis(StrEnum):
    """What a price is of. Day, week and month are billed whole; `all`: every kind that the price table has."""

    ALL = "all"
    ON_DEMAND = "on-demand"
    SPOT = "spot"
    RESERVED = "reserved"
    DAY = "day"
    WEEK = "week"
    MONTH = "month"
    OWNED = "owned"
    GIVEN = "given"


PRICE_OF = {
    Basis.ON_DEMAND: "on_demand_usd_per_hour", Basis.SPOT: "spot_usd_per_hour",
    Basis.RESERVED: "reserved_usd_per_hour", Basis.DAY: "usd_per_day", Basis.WEEK: "usd_per_week",
    Basis.MONTH: "usd_per_month",
}  # fmt: skip
UNIT_HOURS = {Basis.DAY: HOURS_PER_DAY, Basis.WEEK: HOURS_PER_WEEK, Basis.MONTH: HOURS_PER_MONTH}


class Interruptions(Frozen):
    """Interruptions of a spot instance: their rate and the time that each costs. See useful_share."""

    per_day: float
    checkpoint_every_minutes: float
    restart_minutes: float

    def useful(self, num_instances: int) -> float:
        """Useful share of the paid hours. Raises QuantityError."""
        hours = (self.checkpoint_every_minutes / 60, self.restart_minutes / 60)
        return useful_share(self.per_day / 24, *hours, num_instances)


class Ownership(Frozen):
    """An owned GPU. See owned_usd_per_gpu_hour. `purchase_usd` None: its list price, of the bare card."""

    purchase_usd: float | None = None
    life_years: float
    utilisation: float
    residual_share: float = 0.0
    opex_usd_per_gpu_hour: float = 0.0


class Pricing(Frozen):
    """The basis of the price, with its details."""

    basis: Basis = Basis.ON_DEMAND
    usd_per_gpu_hour: float | None = None  # of basis `given`
    interruptions: Interruptions | None = None
    ownership: Ownership | None = None


class Quote(Frozen):
    """Work on GPUs at one price of a GPU-hour. `usd_per_gpu_hour` counts interruptions; `billed_gpus`: whole instances
    are billed. None: the rate of the work is unknown, so its time and money are.
    """

    provider: str
    instance: str
    region: str
    basis: Basis
    usd_per_gpu_hour: float
    instances: int
    billed_gpus: int
    hours: float | None
    usd: float | None
    usd_per_1000_samples: float | None
    as_of: date | None
    stale: bool
    source: str

    @property
    def offer(self) -> str:
        return f"{self.provider} {self.instance}, {self.region}"


def quotes(
    gpu_name: str | None, prices: Sequence[Price], pricing: Pricing, today: date,
    num_gpus: int = 1, samples_per_s: float | None = None, num_samples: int = 1,
) -> tuple[Quote, ...]:  # fmt: skip
    """A quote of `num_samples` samples of all epochs, at each price that names this GPU best, or at the given or owned
    one; the cheapest work first, without a rate the cheapest hour. Raises QuantityError, also where a detail of the
    basis is missing.
    """
    work = (today, num_gpus, samples_per_s, num_samples)
    kinds = [pricing.basis]
    if pricing.basis is Basis.ALL:
        kinds = [*PRICE_OF, *([Basis.OWNED] if pricing.ownership else [])]
    made = [
        quote
        for basis in kinds
        for quote in _quotes(gpu_name, prices, pricing.model_copy(update={"basis": basis}), *work)
    ]
    return tuple(sorted(made, key=lambda q: q.usd_per_gpu_hour * q.billed_gpus if q.usd is None else q.usd))


def _quotes(
    gpu_name: str | None, prices: Sequence[Price], pricing: Pricing, today: date,
    num_gpus: int, samples_per_s: float | None, num_samples: int,
) -> list[Quote]:  # fmt: skip
    rows: tuple[Price, ...]
    match pricing.basis:
        case Basis.GIVEN:
            if pricing.usd_per_gpu_hour is None:
                raise QuantityError("basis given: give the price of a GPU-hour")
            rows = (given_price(positive(pricing.usd_per_gpu_hour, "USD per GPU-hour"), gpu_name),)
        case Basis.OWNED:
            own = given_price(_owned_usd(pricing.ownership, gpu_name), gpu_name)
            rows = (own.model_copy(update={"source": "by the purchase price", "instance": "owned"}),)
        case _:
            rows = tuple(each for each in exact_prices(gpu_name, prices) if getattr(each, PRICE_OF[pricing.basis]))
    made = []
    for price in rows:
        instances = math.ceil(num_gpus / price.gpus_per_instance)
        billed = instances * price.gpus_per_instance
        unit_hours = UNIT_HOURS.get(pricing.basis, 1.0)
        unit_usd = getattr(price, PRICE_OF.get(pricing.basis, PRICE_OF[Basis.ON_DEMAND]))
        usd_per_gpu_hour, useful = unit_usd / unit_hours / price.gpus_per_instance, 1.0
        if pricing.basis is Basis.SPOT:
            cut = pricing.interruptions
            useful = cut.useful(instances) if cut else 1.0
            usd_per_gpu_hour = usd_per_useful_gpu_hour(usd_per_gpu_hour, useful)
        hours = work_hours(num_samples, samples_per_s) if samples_per_s else None
        paid_hours = hours
        if hours is not None and pricing.basis in UNIT_HOURS:
            paid_hours = math.ceil(hours / unit_hours) * unit_hours
        usd = None if paid_hours is None else paid_hours * (usd_per_gpu_hour * billed)  # the price counts interruptions
        per_1000 = where_known(usd_per_1000_samples, usd_per_gpu_hour, billed, samples_per_s)
        if usd is not None and pricing.basis in UNIT_HOURS:
            per_1000 = usd / num_samples * 1000
        made.append(
            Quote(
                provider=price.provider,
                instance=price.instance,
                region=price.region,
                basis=pricing.basis,
                usd_per_gpu_hour=usd_per_gpu_hour,
                instances=instances,
                billed_gpus=billed,
                hours=None if hours is None else hours / useful,
                usd=usd,
                usd_per_1000_samples=per_1000,
                as_of=price.as_of,
                stale=price.is_stale(today),
                source=price.source,
            )
        )
    return made


def _owned_usd(ownership: Ownership | None, gpu_name: str | None) -> float:
    if ownership is None:
        raise QuantityError("basis owned: give the purchase price of a GPU, its life and its utilisation")
    listed = list_price(gpu_name or "")
    purchase_usd = listed.usd if ownership.purchase_usd is None and listed else ownership.purchase_usd
    if purchase_usd is None:
        raise QuantityError(f"{gpu_name or 'a GPU without a name'} has no list price: give purchase_usd")
    life_hours = ownership.life_years * HOURS_PER_YEAR
    costs = (ownership.residual_share, ownership.opex_usd_per_gpu_hour)
    return owned_usd_per_gpu_hour(purchase_usd, life_hours, ownership.utilisation, *costs)


# Work.


def usd_per_1000_samples(usd_per_gpu_hour: float, num_gpus: int, samples_per_s: float) -> float:
    """usd_per_gpu_hour * GPUs / (samples/s of all of them * 3600) * 1000."""
    return _usd_per_hour(usd_per_gpu_hour, num_gpus) / (positive(samples_per_s, "samples/s") * 3600) * 1000


def usd_per_1m_tokens(usd_per_gpu_hour: float, num_gpus: int, tokens_per_s: float) -> float:
    """usd_per_gpu_hour * GPUs / (tokens/s of all of them * 3600) * 1e6."""
    return _usd_per_hour(usd_per_gpu_hour, num_gpus) / (positive(tokens_per_s, "tokens/s") * 3600) * 1e6


def where_known(
    formula: Callable[[float, int, float], float], usd_per_gpu_hour: float | None, num_gpus: int, rate: float | None
) -> float | None:
    """One of the two formulas above; None where the price or the rate is not known."""
    return formula(usd_per_gpu_hour, num_gpus, rate) if usd_per_gpu_hour is not None and rate and rate > 0 else None


def work_hours(num_samples: float, samples_per_s: float) -> float:
    """Samples of all epochs / (samples/s * 3600). Start-up not counted."""
    return positive(num_samples, "number of samples") / (positive(samples_per_s, "samples/s") * 3600)


def price_of_time(usd_per_gpu_hour: float | None, hours: float) -> float | None:
    """USD of one GPU for so many hours: price per GPU-hour x hours; None: the price is unknown."""
    return None if usd_per_gpu_hour is None else usd_per_gpu_hour * hours


def savings_pct(baseline_usd: float, usd: float) -> float:
    """(baseline - cost) / baseline, in percent; both for the same work, e.g. per 1K samples. Negative: dearer."""
    return (positive(baseline_usd, "baseline in USD") - not_negative(usd, "cost in USD")) / baseline_usd * 100


def _usd_per_hour(usd_per_gpu_hour: float, num_gpus: int) -> float:
    return positive(usd_per_gpu_hour, "USD per GPU-hour") * positive(num_gpus, "number of GPUs")


# Spot: hours lost to an interruption are paid for, too. For an hour in which all N instances run: each is interrupted r
# times, and one stops all of them, so the gang is interrupted N r times. An interruption comes at any time between two
# checkpoints, so half an interval's work is done again on average (Young, Communications of the ACM 17(9), 1974), and
# `restart_hours` pass from the new instance's start to the first step that is new: all N are paid for both.
#
#     useful share = 1 - N r (checkpoint / 2 + restart)
#
# The wait for a new instance is not counted, nor interruptions during a restart.


def useful_share(
    interruptions_per_hour: float, checkpoint_every_hours: float, restart_hours: float, num_instances: int = 1
) -> float:
    """The share of the paid hours that brings the training on. `interruptions_per_hour`: of one instance. Raises
    QuantityError, also where nothing is left.
    """
    instances = positive(num_instances, "num_instances")
    gang_rate = not_negative(interruptions_per_hour, "interruptions_per_hour") * instances
    lost = not_negative(checkpoint_every_hours, "checkpoint_every_hours") / 2
    lost += not_negative(restart_hours, "restart_hours")
    if gang_rate * lost >= 1:
        raise QuantityError(
            f"{gang_rate:g} interruptions per hour that take {lost:g} h each leave nothing of the hour: save "
            "checkpoints more often, or do not use spot"
        )
    return 1 - gang_rate * lost


def usd_per_useful_gpu_hour(spot_usd_per_gpu_hour: float, useful: float) -> float:
    """Spot price / useful share: what an hour of work costs. Compare this, not the spot price, with on-demand."""
    return positive(spot_usd_per_gpu_hour, "spot USD per GPU-hour") / used_share(useful, "useful share")


# Owned GPUs. All money is for one GPU: a server's price / its GPUs.


def owned_usd_per_gpu_hour(
    capex_usd: float, life_hours: float, utilisation: float,
    residual_share: float = 0.0, opex_usd_per_gpu_hour: float = 0.0,
) -> float:  # fmt: skip
    """capex x (1 - residual) / (life hours x utilisation) + opex.

    `life_hours`: hours that it is owned, idle ones included; `utilisation`: the share of them in which it works, so
    that idle hours are paid for by the busy ones. `opex_usd_per_gpu_hour`: per hour of work; running costs that go on
    while it idles are to be divided by the utilisation first. Raises QuantityError.
    """
    worked_hours = positive(life_hours, "life_hours") * used_share(utilisation, "utilisation")
    lost_usd = positive(capex_usd, "purchase price") * (1 - lost_share(residual_share, "residual_share"))
    return lost_usd / worked_hours + not_negative(opex_usd_per_gpu_hour, "opex")


def rent_or_buy(
    rent_usd_per_gpu_hour: float, capex_usd: float, hours_per_month: float, life_months: float,
    opex_usd_per_gpu_hour: float = 0.0,
) -> tuple[float | None, str]:  # fmt: skip
    """From how many hours of use a month on buying costs less than renting over the GPU's life, after which it is worth
    0, and a sentence with the choice. A tie counts as renting.

    Break-even: capex / life months / (rent - opex) hours of use a month, None where a month has not that many.
    """
    if not 0 < hours_per_month <= HOURS_PER_MONTH:
        raise QuantityError(f"hours_per_month is {hours_per_month:g}: a month has {HOURS_PER_MONTH:g} h at most")
    rented = positive(rent_usd_per_gpu_hour, "rent per GPU-hour") * hours_per_month
    written_off = positive(capex_usd, "purchase price") / positive(life_months, "life_months")
    owned = written_off + not_negative(opex_usd_per_gpu_hour, "opex") * hours_per_month
    saved = rent_usd_per_gpu_hour - opex_usd_per_gpu_hour
    hours = written_off / saved if saved > 0 and written_off / saved <= HOURS_PER_MONTH else None
    pays = "Buying does not pay at any use." if hours is None else f"Buying pays above {figure(hours, 3)} h a month."
    choice = "buy" if owned < rented else "rent"
    use = f"{figure(hours_per_month, 3)} h of use a month"
    return hours, f"{use} cost {usd(rented)} rented and {usd(owned)} owned: {choice}. {pays}"


# Electricity: of the GPUs only, because the host's power is not measured.


def energy_usd(joules: float, usd_per_kwh: float, pue: float = 1.0) -> float:
    """kWh x PUE x tariff. `pue`: the building's energy over the machines', 1 or more. Raises QuantityError."""
    kwh = not_negative(joules, "energy in joules") / JOULES_PER_KWH
    return kwh * at_least(pue, 1.0, "PUE") * positive(usd_per_kwh, "USD per kWh")
