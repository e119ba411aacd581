"""List prices of cards: dated, sourced, found by the NVML name, and the same in docs/internals/cost.md."""

from __future__ import annotations

from datetime import date
from pathlib import Path

import pytest

from trainbench.prices.price_tables import list_price, list_prices

DOC = Path(__file__).parents[3] / "docs" / "internals" / "cost.md"


@pytest.mark.parametrize(
    ("name", "usd"),
    [
        ("NVIDIA GeForce RTX 4090", 1599.0),
        ("NVIDIA-GeForce-RTX-3090", 1499.0),
        ("NVIDIA RTX A6000", 4649.0),
        ("NVIDIA GeForce RTX 4080 SUPER", None),
        ("NVIDIA GeForce RTX 3090 Ti", None),
        ("NVIDIA GeForce RTX 4090 Laptop GPU", None),
        ("NVIDIA RTX 6000 Ada Generation", None),
        ("NVIDIA H100 80GB HBM3", None),
        ("CPU", None),
    ],
)
def test_a_list_price_is_that_of_exactly_this_card(name: str, usd: float | None) -> None:
    price = list_price(name)

    assert (price.usd if price else None) == usd


def test_each_list_price_has_a_date_of_the_past_and_a_page() -> None:
    assert len({price.gpu for price in list_prices()}) == len(list_prices())
    for price in list_prices():
        assert date(2020, 1, 1) <= price.as_of <= date(2026, 11, 23)
        assert price.source.startswith("https://")


def test_the_docs_list_each_price_with_date_and_source() -> None:
    rows = [f"| {price.gpu} | ${price.usd:,.0f} | {price.as_of} | <{price.source}> |" for price in list_prices()]

    assert "\n".join(["| GPU | list price | of | source |", "|---|---:|---|---|", *rows]) in DOC.read_text()
