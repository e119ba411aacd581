"""Figures of ZeRO-3 by layers, from docs/results/zero3-by-layers-h200-2026-11-23."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tests.unit.published.measured import document

ZERO = "zero3-by-layers-h200-2026-11-23"
BEFORE, NOW, UNCOMPILED = "by modules", "by layers", "by layers, uncompiled"
Row = dict[str, Any]


def of(recipe: str, way: str) -> list[Row]:
    return [step for step in document(f"{ZERO}/steps.json") if (step["recipe"], step["way"]) == (recipe, way)]


def pairs(recipe: str) -> list[tuple[Row, Row]]:
    """The runs by modules and by layers, turn by turn."""
    return list(zip(of(recipe, BEFORE), of(recipe, NOW), strict=True))


def ratios(recipe: str) -> list[float]:
    return [now["tokens_per_second"] / before["tokens_per_second"] for before, now in pairs(recipe)]


def ratio_ranges() -> Iterator[str]:
    """Both pages say it in these words."""
    full, lora = ratios("full"), ratios("lora")
    yield f"{min(full):.2f} to {max(full):.2f} times as fast in full training"
    yield f"{min(lora):.2f} to {max(lora):.2f} times with LoRA"
