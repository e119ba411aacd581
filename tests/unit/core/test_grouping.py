from __future__ import annotations

from trainbench.core.grouping import grouped


def test_keys_and_values_keep_their_order() -> None:
    groups = grouped([("b", 1), ("a", 2), ("b", 3), ("b", 1)])

    assert list(groups.items()) == [("b", [1, 3, 1]), ("a", [2])]
    assert grouped(()) == {}
