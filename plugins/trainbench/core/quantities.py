"""Numbers that a formula can take: finite, and within what their name allows. Others are refused in a sentence."""

from __future__ import annotations

import math


class QuantityError(ValueError):
    """A number that no formula can work with; the message names it, its value and what is allowed."""


def positive(value: float, name: str) -> float:
    """Raises QuantityError unless 0 < value < infinity."""
    if not (math.isfinite(value) and value > 0):
        raise QuantityError(f"{name} is {value:g}: it must be a number above 0")
    return value


def not_negative(value: float, name: str) -> float:
    """Raises QuantityError unless 0 <= value < infinity."""
    if not (math.isfinite(value) and value >= 0):
        raise QuantityError(f"{name} is {value:g}: it must be a number, 0 or more")
    return value


def at_least(value: float, least: float, name: str) -> float:
    """Raises QuantityError unless least <= value < infinity."""
    if not (math.isfinite(value) and value >= least):
        raise QuantityError(f"{name} is {value:g}: it must be a number, {least:g} or more")
    return value


def used_share(value: float, name: str) -> float:
    """A share that something is divided by. Raises QuantityError unless 0 < value <= 1."""
    if not 0 < value <= 1:
        raise QuantityError(f"{name} is {value:g}: it must be a share above 0 and up to 1, for example 0.6")
    return value


def lost_share(value: float, name: str) -> float:
    """A share that leaves something over. Raises QuantityError unless 0 <= value < 1."""
    if not 0 <= value < 1:
        raise QuantityError(f"{name} is {value:g}: it must be a share from 0 to below 1, for example 0.2")
    return value
