"""Median, sum and ends of the known among several numbers: None where none is known."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable, Sequence
from functools import partial


def _over(figure: Callable[[Sequence[float]], float], values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return figure(known) if known else None


known_median, known_sum = partial(_over, statistics.median), partial(_over, sum)
known_max, known_min = partial(_over, max), partial(_over, min)


def sum_of_all(values: Iterable[float | None]) -> float | None:
    """None as soon as one is unknown: a sum without it would look complete."""
    known = list(values)
    return None if None in known else known_sum(known)
