"""How far a node is off, and how that ended: the same phrase on banners, in notices and in their subjects."""

from __future__ import annotations

from trainbench.core.formats import MINUS
from trainbench.core.verdicts import Metric, State
from trainbench.judging.limits import NAMES, UNITS

_STATES = {State.FAILED: "gave no valid result", State.MISSING: "did not run"}


def how_far(state: State, metric: Metric | None, deviation: float | None) -> str:
    """How far from its peers the node is; of a breach without a figure what is the case."""
    if metric is None or deviation is None:
        return _STATES.get(state, "is in breach")
    sign = MINUS if deviation < 0 else "+"
    return f"{NAMES[metric]} {sign}{abs(deviation):.1f}{UNITS[metric]} against its peers"


def how_it_ended(was_removed: bool | None, is_drill: bool) -> str:
    if is_drill:
        return "over with its run"
    return "no longer in the cluster" if was_removed else "well again"
