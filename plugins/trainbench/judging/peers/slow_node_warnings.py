"""Warnings on watched nodes: within the limit, but slower than chance explains. They are not red."""

from __future__ import annotations

from collections.abc import Sequence

from trainbench.core.formats import percent
from trainbench.core.verdicts import Finding, GroupVerdict, Level, Metric, MetricVerdict, NodeVerdict, State
from trainbench.judging.deviations import WATCHED_SHARE, is_slow

WATCHED = "watched"  # category


def is_watched(rate: MetricVerdict) -> bool:
    """Whether a node is slower by more than half of the limit and by more than chance. False without repeats."""
    if rate.deviation is None or rate.noise is None:
        return False
    return is_slow(rate.deviation, rate.limit) and abs(rate.deviation) > rate.noise


def slow_node_findings(groups: Sequence[GroupVerdict]) -> tuple[Finding, ...]:
    """Findings on watched nodes: slower than their reference by more than half of the limit and by more than chance, or
    beyond the limit once but not in the re-run. A node that is slow by exactly the limit exceeds it every second night
    and is watched on the others.
    """
    return tuple(
        _slow(node, rate) if node.is_watched and (rate := node.metric(Metric.SAMPLES_PER_SECOND)) else _once(node)
        for group in groups
        for node in group.nodes
        if node.is_watched or node.state is State.NOTICE
    )


def _slow(node: NodeVerdict, rate: MetricVerdict) -> Finding:
    return Finding(
        level=Level.WARNING,
        category=WATCHED,
        nodes=(node.node,),
        evidence=node.metrics,
        measured=f"samples/s {percent(rate.deviation)}",
        expected=f"no more than {WATCHED_SHARE * rate.limit:g} % slow, half of the limit",
        summary=f"is slow, but not red: {rate.reason}",
        resolution="nothing tonight; if it stays, look at clocks, temperature and driver as for a breach",
    )


def _once(node: NodeVerdict) -> Finding:
    return Finding(
        level=Level.WARNING,
        category=WATCHED,
        nodes=(node.node,),
        evidence=node.metrics,
        measured="out of its limits once",
        expected="within its limits each time",
        summary=f"was out of its limits once, and not in its re-run: {node.reason}",
        resolution="nothing tonight; if it recurs, find what disturbs the node",
    )
