"""The finding that explains the state of a node."""

from __future__ import annotations

from trainbench.core.states import TRAITS, NodeState, told
from trainbench.core.verdicts import Finding, Level, NodeVerdict, State, Why
from trainbench.results.campaign import Campaign

LEVELS = {State.RED: Level.ERROR, State.DRILL: Level.ERROR, State.LOOK: Level.WARNING}


def finding_of(campaign: Campaign, node: NodeState, group_id: str | None = None) -> Finding:
    """The finding with the node's reason, that at this work first; else one from the state alone."""
    mine = [each for each in campaign.findings if each.why is node.why and node.node in each.nodes]
    mine.sort(key=lambda each: (each.group_id != group_id, len(each.nodes)))
    if mine:
        return mine[0]
    return plain_finding(node, group_id)


def plain_finding(of: NodeState | NodeVerdict, group_id: str | None = None) -> Finding:
    """The finding where nothing is known beside the state."""
    trait = TRAITS[told(of)]
    return Finding(
        level=LEVELS.get(of.state, Level.INFO),
        category=of.why.value,
        nodes=(of.node,),
        group_id=group_id,
        why=of.why,
        measured=of.why.value,
        expected=Why.WELL.value,
        summary=f"{trait.one}: {of.reason}" if of.reason else trait.one,
        resolution=trait.next_step,
        is_drill=of.state is State.DRILL,
    )
