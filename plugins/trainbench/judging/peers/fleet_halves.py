"""A fleet that is split in two: the nodes' own histories decide which half changed.

The median of the others follows the majority. Where three of five nodes lose 10 % in one night, they are each other's
reference, and the two good nodes read fast. Only the nodes' own histories show which half is the good one.
"""

from __future__ import annotations

from collections.abc import Sequence

from trainbench.core.formats import count, listing
from trainbench.core.verdicts import GroupVerdict, HistoryVerdict, Metric, NodeVerdict, Side, State, with_remark


def is_split(group: GroupVerdict) -> bool:
    """Whether a node reads fast, as good nodes do where the reference lies with the slow ones."""
    return any(_side(node) is Side.FAST for node in group.nodes)


def unchanged_nodes(group: GroupVerdict, history: Sequence[HistoryVerdict]) -> frozenset[str]:
    """The nodes that are as fast as in their own past, where the nodes of the reference became slower.

    That holds if each node that reads fast is as fast as before, and at least half of the others are slower than they
    were. Otherwise the result is empty, and the verdict against peers stands.
    """
    states = {past.node: past.state for past in history if past.group_id == group.group_id}
    fast = {node.node for node in group.nodes if _side(node) is Side.FAST}
    others = {node.node for node in group.nodes if node.metrics} - fast
    fell = {node for node in others if states.get(node) is State.BREACH}
    if not fell or 2 * len(fell) < len(others) or any(states.get(node) is not State.OK for node in fast):
        return frozenset()
    return frozenset(node.node for node in group.nodes if node.metrics and states.get(node.node) is State.OK)


def with_remarks(nodes: Sequence[NodeVerdict], stayed: frozenset[str]) -> tuple[NodeVerdict, ...]:
    """The verdicts, each with a remark on the half that changed. `stayed`: result of `unchanged_nodes`;
    where it is empty, the remark says that either half of a split fleet may be the slow one.
    """
    if stayed:
        return tuple(_moved(node, nodes, stayed) for node in nodes)
    fast = [node for node in nodes if _side(node) is Side.FAST]
    slow = [node for node in nodes if _side(node) is Side.SLOW]
    if len(fast) < 2 and not (fast and slow):
        return tuple(nodes)
    doubt = (
        f"the fleet is split: {len(fast)} of {count(len(nodes), 'node')} read fast, so the reference may be the bad "
        "side: the nodes' own history would decide"
    )
    return tuple(with_remark(node, doubt) if node in fast or node in slow else node for node in nodes)


def _moved(node: NodeVerdict, nodes: Sequence[NodeVerdict], stayed: frozenset[str]) -> NodeVerdict:
    slow = [other.node for other in nodes if _side(other) is Side.SLOW]
    names = [other.node for other in nodes if other.node in stayed]
    if node.node in slow:
        became_slower = f"{len(slow)} of {count(len(nodes), 'node')} became slower"
        why = f"compared with {listing(names)}, as fast as before, because {became_slower}"
    elif node.node in stayed:
        why = f"as fast as in its own past, while {listing(slow)} became slower"
    else:
        return node
    return with_remark(node, why)


def _side(node: NodeVerdict) -> Side | None:
    rate = node.metric(Metric.SAMPLES_PER_SECOND)
    return rate.side if rate and rate.state is State.BREACH else None
