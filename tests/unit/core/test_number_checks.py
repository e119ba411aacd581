from __future__ import annotations

from collections.abc import Callable

import pytest

from trainbench.core.number_checks import QuantityError, at_least, lost_share, not_negative, positive, used_share

NAN, INF = float("nan"), float("inf")


def _at_least_one(value: float, name: str) -> float:
    return at_least(value, 1.0, name)


@pytest.mark.parametrize(
    ("check", "taken", "refused"),
    [
        (positive, [1e-9, 1e12], [0.0, -1.0, NAN, INF]),
        (not_negative, [0.0, 1e12], [-1e-9, NAN, INF, -INF]),
        (_at_least_one, [1.0, 1.4], [0.999, NAN, INF]),
        (used_share, [0.01, 1.0], [0.0, 1.01, -0.5, NAN, INF]),
        (lost_share, [0.0, 0.99], [1.0, -0.1, NAN, INF]),
    ],
)
def test_what_is_taken_and_what_is_refused(
    check: Callable[[float, str], float], taken: list[float], refused: list[float]
) -> None:
    assert [check(value, "it") for value in taken] == taken
    for value in refused:
        with pytest.raises(QuantityError, match=rf"^rate is {value:g}: it must be"):
            check(value, "rate")
