"""Median, sum and ends of the known among several numbers: None where none is known."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable, Sequence


def known_median(values: Iterable[float | None]) -> float | None:
    return _over(values, statistics.median)


def known_sum(values: Iterable[float | None]) -> float | None:
    return _over(values, sum)


def known_max(values: Iterable[float | None]) -> float | None:
    return _over(values, max)


def known_min(values: Iterable[float | None]) -> float | None:
    return _over(values, min)


def sum_of_all(values: Iterable[float | None]) -> float | None:
    """None as soon as one is unknown: a sum without it would look complete."""
    known = list(values)
    return None if None in known else known_sum(known)


def _over(values: Iterable[float | None], figure: Callable[[Sequence[float]], float]) -> float | None:
    known = [value for value in values if value is not None]
    return figure(known) if known else None
