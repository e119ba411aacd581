"""Drills: nodes that were slowed on purpose, and whether the check detected them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from bench_image.contract.result import RunResult
from trainbench.core.formats import percent
from trainbench.core.verdicts import DRILL_UNDETECTED, Finding, GroupVerdict, Level, Metric, NodeVerdict, Side, State

_AGAIN = {State.BUSY: "run the drill again when the node is free", State.FAILED: "repair the node, then drill it again"}


def undetected_drill_findings(groups: Sequence[GroupVerdict], results: Iterable[RunResult]) -> tuple[Finding, ...]:
    """Findings on drilled nodes that no group judges too slow, one for each node."""
    drills = {result.spec.identity.node: result.spec.drill.slowdown_pct for result in results if result.spec.drill}
    verdicts = [node for group in groups for node in group.nodes]
    detected = {node.node for node in verdicts if is_detected(node)}
    return tuple(
        _finding(node, slowdown_pct, [verdict for verdict in verdicts if verdict.node == node])
        for node, slowdown_pct in drills.items()
        if node not in detected
    )


def undetected_drills(of_campaign: Iterable[Finding]) -> tuple[Finding, ...]:
    """The undetected drills among a campaign's findings."""
    return tuple(finding for finding in of_campaign if finding.category == DRILL_UNDETECTED)


def is_detected(node: NodeVerdict) -> bool:
    """Whether the node is in breach for its throughput, the only figure that a drill lowers."""
    rate = node.metric(Metric.SAMPLES_PER_SECOND)
    return node.state is State.BREACH and rate is not None and rate.state is State.BREACH and rate.side is Side.SLOW


def _finding(node: str, slowdown_pct: float, verdicts: Sequence[NodeVerdict]) -> Finding:
    measured = f"slowed by {slowdown_pct:g} %, {_measured(verdicts)}"
    states = {verdict.state for verdict in verdicts}
    again = next((advice for state, advice in _AGAIN.items() if states == {state}), None)
    return Finding(
        level=Level.ERROR,
        category=DRILL_UNDETECTED,
        nodes=(node,),
        is_drill=True,
        measured=measured,
        expected="verdict breach, for its samples/s",
        summary=f"was slowed on purpose, and the check did not detect it: {measured}",
        resolution=again
        or "drill it again with more rounds or a larger drill_slowdown_pct: a node this slow is not detected here",
    )


def _measured(verdicts: Sequence[NodeVerdict]) -> str:
    """ "measured -3.1 %, verdict ok": of several works the one in which it was slowest."""
    rates = [(verdict.deviation(Metric.SAMPLES_PER_SECOND), verdict) for verdict in verdicts]
    known = [(deviation, verdict) for deviation, verdict in rates if deviation is not None]
    if known:
        deviation, verdict = min(known, key=lambda pair: pair[0])
        return f"measured {percent(deviation)}, verdict {verdict.state.value}"
    if verdicts:
        return f"not measured, verdict {verdicts[0].state.value}: {verdicts[0].reason}"
    return "not judged"
