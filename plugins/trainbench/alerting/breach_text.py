"""The phrase that says how a node is in breach: the same on banners, in notices and in their subjects."""

from __future__ import annotations

from collections.abc import Mapping

from trainbench.core.formats import MINUS
from trainbench.core.verdicts import State
from trainbench.history.breach import Breach
from trainbench.judging.limits import NAMES, UNITS

_STATES: Mapping[State | None, str] = {
    State.FAILED: "gave no valid result",
    State.MISSING: "did not run",
    State.BREACH: "is in breach",
}


def phrase(breach: Breach) -> str:
    """How far from its peers the node is, else what is the case."""
    figure = breach.figure
    if figure is None or figure.deviation is None:
        return _STATES.get(breach.state, breach.finding.summary)
    sign = MINUS if figure.deviation < 0 else "+"
    return f"{NAMES[figure.metric]} {sign}{abs(figure.deviation):.1f}{UNITS[figure.metric]} against its peers"
