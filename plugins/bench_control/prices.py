"""What a GPU costs per hour: a dated, sourced table, read from prices.toml, and the choice of a row."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable, Sequence
from datetime import date
from pathlib import Path
from typing import Literal

from pydantic import Field, ValidationError

from bench_control.verdicts import Finding, Level
from bench_image.contract import Frozen, explain

PRICES_FILE = Path(__file__).with_name("prices.toml")
STALE_AFTER_DAYS = 90


class PriceError(ValueError):
    """The price table cannot be read; the message names the file, the row and the field."""


class Price(Frozen):
    """Price of one instance per hour. `gpu` is in the words that NVML uses, e.g. `A100 80GB`."""

    provider: str = Field(min_length=1)
    instance: str = Field(min_length=1)
    gpu: str = Field(min_length=1)
    gpus_per_instance: int = Field(ge=1)
    region: str = Field(min_length=1)
    on_demand_usd_per_hour: float = Field(gt=0)
    spot_usd_per_hour: float | None = Field(None, gt=0)
    currency: Literal["USD"] = "USD"
    as_of: date | None = Field(description="null only for a price that was given for this very run")
    source: str = Field(min_length=1)

    @property
    def usd_per_gpu_hour(self) -> float:
        return self.on_demand_usd_per_hour / self.gpus_per_instance

    @property
    def spot_usd_per_gpu_hour(self) -> float | None:
        return None if self.spot_usd_per_hour is None else self.spot_usd_per_hour / self.gpus_per_instance

    @property
    def label(self) -> str:
        return f"{self.provider} {self.instance}, {self.region}: {self.source}"


def load_prices(path: Path | None = None) -> tuple[Price, ...]:
    """The table in the file's order, which is the order of preference. Raises PriceError."""
    path = path or PRICES_FILE
    try:
        rows = tomllib.loads(path.read_text(encoding="utf-8")).get("price", [])
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise PriceError(f"price table {path}: {error}") from None
    prices = []
    for number, row in enumerate(rows, 1):
        try:
            price = Price.model_validate(row)
        except ValidationError as error:
            raise PriceError(f"price table {path}, row {number}: {explain(error)}") from None
        if price.as_of is None:
            raise PriceError(f"price table {path}, row {number}: as_of is missing: give the date of the price")
        prices.append(price)
    return tuple(prices)


def price_for(
    gpu_name: str | None, prices: Sequence[Price], override_usd_per_gpu_hour: float | None = None
) -> Price | None:
    """The price of a GPU by its NVML name; None when no row fits. A price given for the run wins over the table.

    A row fits when all of its words occur in the name as whole words (`A10` is neither `A10G` nor `A100`); of several
    the one with the most words, then the first. A MIG slice never fits: it is not the whole GPU.
    """
    if override_usd_per_gpu_hour is not None:
        return Price(
            provider="own",
            instance="given",
            gpu=gpu_name or "CPU",
            gpus_per_instance=1,
            region="own cluster",
            on_demand_usd_per_hour=override_usd_per_gpu_hour,
            as_of=None,
            source="given for this run",
        )
    words = _words(gpu_name or "")
    fitting = [price for price in prices if _words(price.gpu) <= words and "mig" not in words]
    return max(fitting, key=lambda price: len(_words(price.gpu)), default=None)


def stale(prices: Iterable[Price], today: date) -> tuple[Finding, ...]:
    """One warning for each price older than STALE_AFTER_DAYS."""
    return tuple(
        Finding(
            level=Level.WARNING,
            category="stale_price",
            subject=f"{price.provider} {price.instance}",
            measured=f"{(today - price.as_of).days} days old",
            expected=f"at most {STALE_AFTER_DAYS} days",
            summary=f"the price of {price.gpu} at {price.provider} is of {price.as_of}",
            resolution="bring the price table up to date, or give usd_per_gpu_hour",
        )
        for price in sorted(prices, key=lambda price: price.label)
        if price.as_of is not None and (today - price.as_of).days > STALE_AFTER_DAYS
    )


def _words(name: str) -> frozenset[str]:
    return frozenset(re.split(r"[\s-]+", name.lower())) - {""}
