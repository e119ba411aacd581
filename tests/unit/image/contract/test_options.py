"""Which settings go together: the whole table."""

from __future__ import annotations

from itertools import product

import pytest

from bench_image.contract.options import Precision, Recipe, Strategy, unsupported_reason

FAMILIES = ("mistral", "llama", "mixtral", "gpt2", "encoder-decoder")
ALL = list(product(Strategy, Recipe, Precision, FAMILIES))


def expected(strategy: Strategy, recipe: Recipe, precision: Precision, family: str) -> bool:
    half = precision is Precision.FP16
    if half and strategy in (Strategy.ZERO2, Strategy.ZERO3):
        return False
    if precision is Precision.FP8:
        strategies = {
            Recipe.FULL: ("single", "independent", "ddp", "fsdp"),
            Recipe.LORA: ("single", "independent", "ddp"),
            Recipe.QLORA: (),
        }
        return strategy in strategies[recipe] and family in ("llama", "mistral")
    return recipe is Recipe.FULL or family != "encoder-decoder"


@pytest.mark.parametrize("strategy", [strategy for strategy in Strategy if strategy is not Strategy.OWN])
def test_everything_else_is_supported(strategy: Strategy) -> None:
    cells = [cell for cell in ALL if cell[0] is strategy]

    assert len(cells) == 3 * 5 * 5
    for _, recipe, precision, family in cells:
        reason = unsupported_reason(strategy, recipe, precision, family)
        assert (reason is None) == expected(strategy, recipe, precision, family), reason


def test_a_reason_names_the_value_and_a_way_out() -> None:
    for cell in ALL:
        if reason := unsupported_reason(*cell):
            assert "choose" in reason
            assert "fp16" in reason or "fp8" in reason or "encoder-decoder" in reason


def test_a_family_that_is_not_known_is_not_looked_at() -> None:
    assert unsupported_reason(Strategy.DDP, Recipe.LORA, Precision.BF16, None) is None
