"""Tests whether a slower node is back at its old level, or has become slower still."""

from __future__ import annotations

from trainbench.core.verdicts import RateChange
from trainbench.judging.noise import deviation_pct


def change_pct(change: RateChange) -> float:
    """Change of the rate in percent of the level before; negative for a loss."""
    return deviation_pct(change.after, change.before)


def is_back(rate: float, change: RateChange) -> bool:
    """Whether a node is near its level before: its loss is less than half of the limit."""
    return deviation_pct(rate, change.before) >= -change.limit_pct / 2


def is_worse(now: RateChange, then: RateChange) -> bool:
    """Whether a node lost more than the limit since its warning."""
    return deviation_pct(now.after, then.after) < -max(now.limit_pct, then.limit_pct)
