"""List prices of graphics cards: what NVIDIA announced for the bare card at its launch. Data-center GPUs have none."""

from __future__ import annotations

from datetime import date
from typing import NamedTuple

from trainbench.prices.price_tables import names_gpu


class ListPrice(NamedTuple):
    """US dollars for one card, without server and tax. `source`: a page that states the price, or names it as the
    launch price; `as_of`: the day of the announcement, or of that page.
    """

    gpu: str  # in the words that NVML uses
    usd: float
    as_of: date
    source: str


LIST_PRICES = (
    ListPrice(
        "RTX 3090",
        1_499.0,
        date(2020, 9, 2),
        "https://indianexpress.com/article/technology/tech-news-technology/"
        "meet-nvidia-geforce-rtx-3090-worlds-first-8k-gaming-gpu-6579782/",
    ),
    ListPrice(
        "RTX 4080",
        1_199.0,
        date(2022, 9, 20),
        "https://www.slashgear.com/1016888/"
        "nvidia-announces-rtx-40-series-gpus-and-dlss-3-with-rtx-4090-leading-the-charge/",
    ),
    ListPrice(
        "RTX 4090",
        1_599.0,
        date(2022, 9, 20),
        "https://www.slashgear.com/1016888/"
        "nvidia-announces-rtx-40-series-gpus-and-dlss-3-with-rtx-4090-leading-the-charge/",
    ),
    ListPrice(
        "RTX 5090",
        1_999.0,
        date(2025, 1, 6),
        "https://dotesports.com/hardware/news/nvidia-geforce-rtx-blackwell-5090-revealed-release-date-cost-and-specs",
    ),
    ListPrice(
        "RTX A6000",
        4_649.0,
        date(2020, 10, 5),
        "https://sysrqmts.com/es/gpus/compare/nvidia-rtx-a6000-vs-nvidia-tesla-p40",
    ),
)


def list_price(gpu_name: str) -> ListPrice | None:
    """The list price of a GPU by its NVML name; None where none is known: a 4080 SUPER or a laptop's GPU is another."""
    return next((price for price in LIST_PRICES if names_gpu(price.gpu, gpu_name)), None)
