"""Price tables, the shipped one and those of the user, by GPU, provider and day; and the list prices of cards."""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Sequence
from datetime import date
from functools import lru_cache
from pathlib import Path
from typing import Literal, NamedTuple

from pydantic import Field, ValidationError, field_validator

from bench_image.contract.frozen import Frozen
from bench_image.contract.gpu_specs import name_parts, names_gpu
from bench_image.contract.parse import explain
from trainbench.core.number_checks import QuantityError
from trainbench.core.outside_text import outside_text
from trainbench.core.user_error import UserError
from trainbench.core.verdicts import Finding, Level

PRICES_FILE = Path(__file__).with_name("prices.toml")
STALE_AFTER_DAYS = 90
MAX_TABLE_BYTES = 10_000_000
MAX_USD_PER_HOUR = 1e6  # of an instance


class PriceError(UserError, ValueError):
    """A price table cannot be read; the message names the file, the row and the field."""


class Price(Frozen):
    """Price of one instance per hour. `gpu` is in the words that NVML uses, e.g. `A100 80GB`."""

    provider: str = Field(min_length=1)
    instance: str = Field(min_length=1)
    gpu: str = Field(min_length=1)
    gpus_per_instance: int = Field(ge=1, le=1024)
    region: str = Field(min_length=1)
    on_demand_usd_per_hour: float = Field(gt=0, le=MAX_USD_PER_HOUR)
    spot_usd_per_hour: float | None = Field(None, gt=0, le=MAX_USD_PER_HOUR)
    reserved_usd_per_hour: float | None = Field(None, gt=0, le=MAX_USD_PER_HOUR)
    usd_per_day: float | None = Field(None, gt=0, le=MAX_USD_PER_HOUR * 24, description="of whole days")
    usd_per_week: float | None = Field(None, gt=0, le=MAX_USD_PER_HOUR * 168, description="of whole weeks")
    usd_per_month: float | None = Field(None, gt=0, le=MAX_USD_PER_HOUR * 730, description="of whole months")
    currency: Literal["USD"] = "USD"
    as_of: date | None = Field(description="null only for a price that was given for this very run")
    source: str = Field(min_length=1)
    own: bool = Field(False, description="of the cluster's own table, which wins over ours")

    @field_validator("currency", mode="before")
    @classmethod
    def _only_usd(cls, currency: object) -> object:
        if currency != "USD":
            raise ValueError(
                "prices are in USD: convert it, and put the rate and its date into `source`, for example "
                "'list price, 1 EUR = 1.08 USD on 2026-11-02'"
            )
        return currency

    @property
    def usd_per_gpu_hour(self) -> float:
        return self.on_demand_usd_per_hour / self.gpus_per_instance

    @property
    def spot_usd_per_gpu_hour(self) -> float | None:
        return None if self.spot_usd_per_hour is None else self.spot_usd_per_hour / self.gpus_per_instance

    @property
    def offer(self) -> str:
        return f"{self.provider} {self.instance}, {self.region}"

    @property
    def label(self) -> str:
        return f"{self.offer}: {self.source}"

    def is_stale(self, today: date) -> bool:
        """Old, or of a day to come; without a date never."""
        return self.as_of is not None and not 0 <= (today - self.as_of).days <= STALE_AFTER_DAYS


USD_FIELDS = tuple(name for name in Price.model_fields if "usd_per" in name)


def load_prices(own_tables: Sequence[Path] = ()) -> tuple[Price, ...]:
    """The cluster's own tables and then ours, in the order of preference. Raises PriceError."""
    own = (price.model_copy(update={"own": True}) for table in own_tables for price in read_prices(table))
    return (*own, *_shipped_prices())


def usable_prices(own_tables: Sequence[Path] = ()) -> tuple[tuple[Price, ...], tuple[Finding, ...]]:
    """As load_prices(); own tables that cannot be read are left out, with a warning for each."""
    usable, warnings = list[Path](), []
    for table in own_tables:
        try:
            read_prices(table)
            usable.append(table)
        except PriceError as error:
            warnings.append(
                Finding(
                    level=Level.WARNING,
                    category="price_table",
                    item=str(table),
                    measured="cannot be read",
                    expected="a price table",
                    summary=f"the cluster's own prices are not used: {error}",
                    resolution="mend the file, or take it out of TRAINBENCH_PRICES",
                )
            )
    return load_prices(usable), tuple(warnings)


def price_for(
    gpu_name: str | None, prices: Sequence[Price], override_usd_per_gpu_hour: float | None = None
) -> Price | None:
    """The price of a GPU by its NVML name; None when no row fits. A price given for the run wins over the table."""
    if override_usd_per_gpu_hour is not None:
        return given_price(override_usd_per_gpu_hour, gpu_name)
    return next(iter(fitting_prices(gpu_name, prices)), None)


def given_price(usd_per_gpu_hour: float, gpu_name: str | None) -> Price:
    """A price given for this run; it has no date. Raises QuantityError."""
    if not usd_per_gpu_hour <= MAX_USD_PER_HOUR:
        raise QuantityError(f"USD per GPU-hour is {usd_per_gpu_hour:g}: give at most {MAX_USD_PER_HOUR:g}")
    return Price(
        provider="own",
        instance="given",
        gpu=gpu_name or "CPU",
        gpus_per_instance=1,
        region="own cluster",
        on_demand_usd_per_hour=usd_per_gpu_hour,
        as_of=None,
        source="given for this run",
    )


def fitting_prices(gpu_name: str | None, prices: Sequence[Price]) -> tuple[Price, ...]:
    """All rows that fit a GPU by its NVML name: the cluster's own first, then those with the most words in common.

    A row fits when all of its words occur in the name as whole words (`A10` is neither `A10G` nor `A100`) and the rest
    of the name makes no other GPU of it. A MIG slice or a vGPU is not the whole GPU.
    """
    fit = [price for price in prices if names_gpu(price.gpu, gpu_name or "")]
    return tuple(sorted(fit, key=lambda price: (not price.own, -len(name_parts(price.gpu)))))


def exact_prices(gpu_name: str | None, prices: Sequence[Price]) -> tuple[Price, ...]:
    """The fitting rows that are the cluster's own, and those that name the GPU most exactly: a PCIe card has another
    price than the SXM one.
    """
    fit = fitting_prices(gpu_name, prices)
    most = max((len(name_parts(price.gpu)) for price in fit), default=0)
    return tuple(price for price in fit if price.own or len(name_parts(price.gpu)) == most)


def stale_price_findings(prices: Iterable[Price], today: date) -> tuple[Finding, ...]:
    """One warning for each price older than STALE_AFTER_DAYS, or of a day that is yet to come."""
    return tuple(
        Finding(
            level=Level.WARNING,
            category="stale_price",
            item=f"{price.provider} {price.instance}",
            measured=f"{age} days old" if (age := (today - price.as_of).days) >= 0 else f"{-age} days ahead",
            expected=f"at most {STALE_AFTER_DAYS} days",
            summary=f"the price of {price.gpu} at {price.provider} is of {price.as_of}",
            resolution="bring the price table up to date, or give usd_per_gpu_hour",
        )
        for price in sorted(prices, key=lambda price: price.label)
        if price.as_of is not None and price.is_stale(today)
    )


@lru_cache(maxsize=1)
def _shipped_prices() -> tuple[Price, ...]:
    """Our table, which does not change while the program runs."""
    return read_prices(PRICES_FILE)


def read_prices(path: Path) -> tuple[Price, ...]:
    """The rows of a table. Raises PriceError, also for two prices of one day."""
    try:
        rows = tomllib.loads(outside_text(path, MAX_TABLE_BYTES)).get("price", [])
    except OSError as error:
        raise PriceError(f"price table {path} cannot be read: {error.strerror or error}") from None
    except (ValueError, RecursionError) as error:  # ValueError: no TOML, no UTF-8, a number too long
        raise PriceError(f"price table {path}: {error}") from None
    if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        raise PriceError(f"price table {path}: 'price' is no list of rows: start each row with [[price]]")
    # Of each instance and region the newest row, in the place of the first.
    newest: dict[tuple[object, ...], tuple[int, Price]] = {}
    for number, row in enumerate(rows, 1):
        try:
            price = Price.model_validate(row)
        except ValidationError as error:
            raise PriceError(f"price table {path}, row {number}: {explain(error)}") from None
        if price.as_of is None:
            raise PriceError(f"price table {path}, row {number}: as_of is missing: give the date of the price")
        key = (price.provider, price.instance, price.region, price.gpu, price.gpus_per_instance)
        first, known = newest.setdefault(key, (number, price))
        if known.as_of == price.as_of and any(getattr(known, name) != getattr(price, name) for name in USD_FIELDS):
            raise PriceError(
                f"price table {path}, rows {first} and {number}: two prices of {price.as_of} for {price.provider} "
                f"{price.instance} in {price.region}: keep the one that is right"
            )
        if known.as_of and price.as_of > known.as_of:
            newest[key] = (first, price)
    return tuple(price for _, price in newest.values())


class ListPrice(NamedTuple):
    """NVIDIA's price of one card at its launch; `gpu` in the words that NVML uses."""

    gpu: str
    usd: float
    as_of: date
    source: str


@lru_cache(maxsize=1)
def list_prices() -> tuple[ListPrice, ...]:
    rows = tomllib.loads(PRICES_FILE.read_text(encoding="utf-8"))["list_price"]
    return tuple(ListPrice(**row) for row in rows)


def list_price(gpu_name: str) -> ListPrice | None:
    """The list price of a GPU by its NVML name; None where none is known: a 4080 SUPER or a laptop's GPU is another."""
    return next((price for price in list_prices() if names_gpu(price.gpu, gpu_name)), None)
