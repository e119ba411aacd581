"""Nodes that are missing from the nightly check, and for how long: an unmeasured node is not a healthy node."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta

from trainbench.core.verdicts import Finding, GroupVerdict, Level, NodeVerdict, Why
from trainbench.planning.nodes import AbsentNode, GpuNode
from trainbench.planning.plan import Plan

UNMEASURED_DAYS = 3  # a node that was busy for longer gets a finding
GONE_DAYS = 7  # a node that the cluster no longer lists is reported for so long
ABSENT, GONE, LOST_GPUS, UNMEASURED = "absent_node", "gone_node", "lost_gpus", "unmeasured_node"
ATTENDANCE = frozenset({ABSENT, GONE, LOST_GPUS, UNMEASURED})


def missing_node_findings(
    plan: Plan,
    groups: Sequence[GroupVerdict],
    old_names: Iterable[str],
    last_measured: Mapping[str, datetime],
    at: datetime,
) -> tuple[Finding, ...]:
    """Findings on nodes that nothing ran on, nodes that were busy for days, and nodes that the cluster no longer lists.

    `last_measured`: node -> its last valid run before this campaign. Where the form names the nodes, no other node is
    reported as missing; a node's old names never are.
    """
    known = (*plan.nodes, *(node.name for node in plan.absent), *old_names)
    misses = plan.judges_nodes and not plan.params.nodes
    return (
        *absent_node_findings(plan.absent, plan.known),
        *unmeasured_node_findings([node for group in groups for node in group.nodes], last_measured, at),
        *(gone_node_findings(known, last_measured, at) if misses else ()),
    )


def absent_node_findings(absent: Iterable[AbsentNode], known: Iterable[GpuNode]) -> Iterator[Finding]:
    """Findings on skipped nodes, as a notice where that is wanted (quarantine, cordon), and on unhealthy GPUs."""
    repair = "repair the node, or put it into quarantine with the reason"
    for node in absent:
        yield _finding(
            node.name,
            ABSENT,
            measured=node.reason,
            expected="ready, with allocatable GPUs",
            summary=f"was not measured: {node.reason}",
            resolution=repair if node.expected else "nothing to do",
            is_missed=node.expected,
        )
    for one in known:
        if one.num_gpus_lost:
            yield _finding(
                one.name,
                LOST_GPUS,
                measured=f"{one.num_gpus} GPUs allocatable",
                expected=f"{(one.num_gpus or 0) + one.num_gpus_lost} GPUs, its capacity",
                summary=f"has {one.num_gpus_lost} GPUs that its device plugin calls unhealthy",
                resolution="look for Xid errors in the node's kernel log; reset the GPU or drain the node",
            )


def gone_node_findings(listed: Iterable[str], last_measured: Mapping[str, datetime], at: datetime) -> Iterator[Finding]:
    """Findings on nodes that were measured within GONE_DAYS and that the cluster no longer lists."""
    here, since = set(listed), at - timedelta(days=GONE_DAYS)
    for node, last in sorted(last_measured.items()):
        if node not in here and last >= since:
            yield _finding(
                node,
                GONE,
                measured="not in the cluster's list of nodes",
                expected=f"there, as on {last:%Y-%m-%d}",
                summary=f"was measured on {last:%Y-%m-%d}, and the cluster no longer lists it",
                resolution=f"nothing to do if it was taken out; this is reported for {GONE_DAYS} days",
            )


def unmeasured_node_findings(
    nodes: Sequence[NodeVerdict], last_measured: Mapping[str, datetime], at: datetime
) -> Iterator[Finding]:
    """Findings on busy nodes without a valid run for UNMEASURED_DAYS."""
    for name in dict.fromkeys(node.node for node in nodes if node.why is Why.BUSY):
        last = last_measured.get(name)
        if last is None or at - last >= timedelta(days=UNMEASURED_DAYS):
            since = f"since {last:%Y-%m-%d}" if last else "as far back as the history goes"
            yield _finding(
                name,
                UNMEASURED,
                measured=f"no valid run {since}",
                expected=f"one within {UNMEASURED_DAYS} days",
                summary=f"is busy with other work each time, and has not been measured {since}",
                resolution="run the check by hand when it is free, raise TRAINBENCH_QUEUE_TIMEOUT_S, or reserve a time "
                "for it",
                is_missed=last is not None,
            )


def _finding(node: str, category: str, *, is_missed: bool = True, **words: str) -> Finding:
    level, why = (Level.WARNING, Why.ABSENT) if is_missed else (Level.INFO, None)
    return Finding(level=level, category=category, nodes=(node,), why=why, **words)
