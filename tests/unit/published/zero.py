"""Figures of ZeRO-3 by layers, from docs/results/zero3-by-layers-h200-2026-11-23."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations
from typing import Any

from tests.unit.published.measured import document, row

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


def note() -> Iterator[str]:
    for recipe, job in (("full", "full"), ("lora", "LoRA")):
        for (before, now), ratio in zip(pairs(recipe), ratios(recipe), strict=True):
            rates = (f"{run['tokens_per_second']:,.0f}" for run in (before, now))
            idle = f"{before['idle_ms_per_step']:.1f} and {now['idle_ms_per_step']:.1f}"
            kernels = f"{before['kernels_per_step']:,.0f} and {now['kernels_per_step']:,.0f}"
            yield row(str(now["call"]), job, *rates, f"{ratio:.2f}", idle, kernels)
    (uncompiled,) = of("full", UNCOMPILED)
    yield f"made {uncompiled['tokens_per_second']:,.0f} tokens/s in full training"
    yield from losses()


def losses() -> Iterator[str]:
    both = [pair for recipe in ("full", "lora") for pair in pairs(recipe)]
    early = max(differences(*pair) for pair in both)
    late = max(abs(before["loss_after_18_steps"] - now["loss_after_18_steps"]) for before, now in both)
    yield f"by at most {early:.4f} in the first four steps, by at most {late:.4f} in the 18th"
    again = [run for run in of("lora", BEFORE) if run["call"] == 2]
    most = max(abs(one["loss_after_18_steps"] - two["loss_after_18_steps"]) for one, two in combinations(again, 2))
    most = max(most, *(differences(one, two) for one, two in combinations(again, 2)))
    yield f"Between the two runs of uncompiled LoRA in call 2 they differ by at most {most:.4f}."


def differences(one: Row, two: Row) -> float:
    return max(abs(a - b) for a, b in zip(one["losses"], two["losses"], strict=True))


def ratio_ranges() -> Iterator[str]:
    """Both pages say it in these words."""
    full, lora = ratios("full"), ratios("lora")
    yield f"{min(full):.2f} to {max(full):.2f} times as fast in full training"
    yield f"{min(lora):.2f} to {max(lora):.2f} times with LoRA"


def tried() -> Iterator[str]:
    """docs/internals/performance-tries.md compares the uncompiled run with that of the same call by modules."""
    yield from ratio_ranges()
    (uncompiled,), modules = of("full", UNCOMPILED), of("full", BEFORE)
    (before,) = [run for run in modules if run["call"] == uncompiled["call"]]
    rates = (f"{run['tokens_per_second']:,.0f}" for run in (uncompiled, before))
    yield "uncompiled it made {} tokens/s, by modules {}".format(*rates)
