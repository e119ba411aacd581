"""Drills: nodes that were slowed on purpose, and whether the check detected them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from bench_image.contract.result import RunResult
from trainbench.core.formats import percent
from trainbench.core.grouping import grouped
from trainbench.core.states import word
from trainbench.core.verdicts import DRILL_UNDETECTED, Finding, GroupVerdict, Level, Metric, State, Why

_AGAIN = {Why.BUSY: "run the drill again when the node is free", Why.FAILED: "repair the node, then drill it again"}


def undetected_drill_findings(groups: Sequence[GroupVerdict], results: Iterable[RunResult]) -> Iterator[Finding]:
    """Findings on drilled nodes that no group judges too slow, one for each node."""
    drills = {result.spec.identity.node: result.spec.drill.slowdown_pct for result in results if result.spec.drill}
    verdicts = grouped((node.node, node) for group in groups for node in group.nodes)
    for node, slowdown_pct in drills.items():
        of_node = verdicts.get(node, [])
        if any(verdict.state is State.DRILL and verdict.why is Why.SLOW for verdict in of_node):
            continue
        # Of several works, and of several expectations, the one by which it was slowest.
        rates = [c.deviation for v in of_node for c in v.comparisons if c.metric is Metric.SAMPLES_PER_SECOND]
        found = f"{word(of_node[0])}: {of_node[0].reason}" if of_node else "not judged"
        measured = f"slowed by {slowdown_pct:g} %, {f'measured {percent(min(rates))}' if rates else found}"
        reasons = {verdict.why for verdict in of_node}
        again = "drill it again with more rounds or a larger drill_slowdown_pct: a node this slow is not detected here"
        yield Finding(
            level=Level.ERROR,
            category=DRILL_UNDETECTED,
            nodes=(node,),
            is_drill=True,
            measured=measured,
            expected="slow",
            summary=f"was slowed on purpose, and the check did not detect it: {measured}",
            resolution=_AGAIN.get(reasons.pop(), again) if len(reasons) == 1 else again,
        )
