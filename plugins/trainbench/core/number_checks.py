"""Validation of the inputs of formulas: finite numbers within their bounds."""

from __future__ import annotations

import math

from trainbench.core.user_error import UserError


class QuantityError(UserError, ValueError):
    """A number outside of its bounds; the message gives its name, its value and the allowed range."""


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
    """A share used as a divisor. Raises QuantityError unless 0 < value <= 1."""
    if not 0 < value <= 1:
        raise QuantityError(f"{name} is {value:g}: it must be a share above 0 and up to 1, for example 0.6")
    return value


def lost_share(value: float, name: str) -> float:
    """A share that is lost, never all of it. Raises QuantityError unless 0 <= value < 1."""
    if not 0 <= value < 1:
        raise QuantityError(f"{name} is {value:g}: it must be a share from 0 to below 1, for example 0.2")
    return value
