"""Drills: nodes that were slowed on purpose, and whether the check detected them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from bench_image.contract.result import RunResult
from trainbench.core.formats import percent
from trainbench.core.states import word
from trainbench.core.verdicts import DRILL_UNDETECTED, Finding, GroupVerdict, Level, Metric, NodeVerdict, State, Why

_AGAIN = {Why.BUSY: "run the drill again when the node is free", Why.FAILED: "repair the node, then drill it again"}


def undetected_drill_findings(groups: Sequence[GroupVerdict], results: Iterable[RunResult]) -> tuple[Finding, ...]:
    """Findings on drilled nodes that no group judges too slow, one for each node."""
    drills = {result.spec.identity.node: result.spec.drill.slowdown_pct for result in results if result.spec.drill}
    verdicts = [node for group in groups for node in group.nodes]
    detected = {node.node for node in verdicts if node.state is State.DRILL and node.why is Why.SLOW}
    return tuple(
        _finding(node, slowdown_pct, [verdict for verdict in verdicts if verdict.node == node])
        for node, slowdown_pct in drills.items()
        if node not in detected
    )


def _finding(node: str, slowdown_pct: float, verdicts: Sequence[NodeVerdict]) -> Finding:
    measured = f"slowed by {slowdown_pct:g} %, {_measured(verdicts)}"
    reasons = {verdict.why for verdict in verdicts}
    again = next((advice for why, advice in _AGAIN.items() if reasons == {why}), None)
    return Finding(
        level=Level.ERROR,
        category=DRILL_UNDETECTED,
        nodes=(node,),
        is_drill=True,
        measured=measured,
        expected="slow",
        summary=f"was slowed on purpose, and the check did not detect it: {measured}",
        resolution=again
        or "drill it again with more rounds or a larger drill_slowdown_pct: a node this slow is not detected here",
    )


def _measured(verdicts: Sequence[NodeVerdict]) -> str:
    """ "measured -3.1 %": of several works, and of several expectations, the one by which it was slowest."""
    rates = [c.deviation for v in verdicts for c in v.comparisons if c.metric is Metric.SAMPLES_PER_SECOND]
    if rates:
        return f"measured {percent(min(rates))}"
    return f"{word(verdicts[0])}: {verdicts[0].reason}" if verdicts else "not judged"
