"""Whether a node that lost throughput is back at its old level, or has lost more since."""

from __future__ import annotations

from trainbench.core.verdicts import RateChange
from trainbench.judging.noise import deviation_pct


def change_pct(change: RateChange) -> float:
    """Change of the rate in percent of the level before; negative for a loss."""
    return deviation_pct(change.after, change.before)


def is_back(rate: float, change: RateChange) -> bool:
    """Whether a node is near its level before: it lost less than half of what counts."""
    return deviation_pct(rate, change.before) >= -change.limit_pct / 2


def is_worse(now: RateChange, then: RateChange) -> bool:
    """Whether a node has lost more since it was warned of, by more than what counts."""
    return deviation_pct(now.after, then.after) < -max(now.limit_pct, then.limit_pct)
