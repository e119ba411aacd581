"""The phrase that describes a node's breach on banners, in notices and in their subjects."""

from __future__ import annotations

from collections.abc import Mapping

from trainbench.core.verdicts import State
from trainbench.history.breach import Breach

_STATES: Mapping[State | None, str] = {
    State.FAILED: "gave no valid result",
    State.MISSING: "did not run",
    State.BREACH: "is in breach",
}


def breach_phrase(breach: Breach) -> str:
    """The node's deviation from its peers, else its finding's summary."""
    if breach.deviation:
        return f"{breach.deviation} against its peers"
    return _STATES.get(breach.state, breach.finding.summary)
