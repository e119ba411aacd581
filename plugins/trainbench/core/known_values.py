"""Median and sum of the known among several numbers: None where none is known."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable, Sequence


def known_median(values: Iterable[float | None]) -> float | None:
    return _over(values, statistics.median)


def known_sum(values: Iterable[float | None]) -> float | None:
    return _over(values, sum)


def _over(values: Iterable[float | None], figure: Callable[[Sequence[float]], float]) -> float | None:
    known = [value for value in values if value is not None]
    return figure(known) if known else None
