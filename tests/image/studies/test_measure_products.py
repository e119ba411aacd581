"""The choice of an algorithm among measured ones; measuring needs a GPU."""

from __future__ import annotations

import measure_products


def test_an_algorithm_is_chosen_if_each_round_is_faster_by_one_percent() -> None:
    """By medians `a` is the best in both; its third round is 0.5 % faster than torch's, then 1.5 %."""
    slow = {"torch": [100.0, 100.0, 100.0], "a": [103.0, 104.0, 100.5], "b": [102.0, 102.0, 102.0]}

    assert measure_products.choice(slow) is None
    assert measure_products.choice(slow | {"a": [103.0, 104.0, 101.5]}) == "a"


def test_each_round_begins_with_another() -> None:
    assert [measure_products.rotated(["torch", "a", "b"], number)[0] for number in range(4)] == [
        "torch", "a", "b", "torch",
    ]  # fmt: skip


def test_the_products_of_a_layer_are_those_of_mistral_7b() -> None:
    """With rank 16: 4 N of a layer are twice its 218 million weights for x W^T and as often for grad W.

    218,103,808 = 4096 * (6144 + 4096 + 3 * 14,336). Beside and below lie 32 * 28,672 and 16 * 14,336 numbers of
    adapters, counted once each.
    """
    multiplied = sum(shape.summed * shape.produced * shape.calls for shape in measure_products.SEVEN)

    assert multiplied == 2 * 218_103_808 + 32 * 28_672 + 16 * 14_336
