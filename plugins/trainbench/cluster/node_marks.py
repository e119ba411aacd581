"""Decides from verdicts and present marks which nodes are marked, so that other work keeps away, and which are freed.

Only a node that its re-runs confirmed as slow is marked, and one that is hot or takes more memory where the settings
call that red. A node is freed when it is well again at every work that it was marked at. Whatever is undecided,
unmeasured, busy or slowed on purpose changes nothing.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

from pydantic import AwareDatetime

from bench_image.contract.frozen import Frozen
from trainbench.core.formats import count
from trainbench.core.grouping import grouped
from trainbench.core.natural_order import natural
from trainbench.core.verdicts import Confirmation, Metric, NodeVerdict, State, Why
from trainbench.results.campaign import Campaign

CAP = "TRAINBENCH_KEEP_AWAY_MAX_PCT"
LOOK = "it is not marked: take it out by hand if it must not take work"


class Mark(Frozen):
    """A mark of ours, as the node carries it."""

    instance: str  # the installation that made it
    campaign_id: str
    at: AwareDatetime
    groups: tuple[str, ...]  # group ids of the works that the node was red at
    reason: str


class ListedNode(Frozen):
    """A node as the cluster lists it. `shape`: what keeps work away from it, as "the taint trainbench.io/breach:
    NoSchedule", whoever set it; None: nothing. `is_as_set`: in the way that the settings say. `mark`: what this
    installation wrote, even if taint or label was removed since.
    """

    node: str  # as verdicts name it
    created_at: AwareDatetime
    shape: str | None = None
    is_as_set: bool = False
    mark: Mark | None = None

    @property
    def is_ours(self) -> bool:
        return self.shape is not None and self.mark is not None


class MarkRefusal(NamedTuple):
    """Why a node that is confirmed to be red is not marked, and what to do."""

    node: str
    reason: str
    next_step: str


class Decision(NamedTuple):
    """`to_mark`: nodes with the mark to write. `removed`: this campaign had marked them, and somebody freed them."""

    to_mark: tuple[tuple[ListedNode, Mark], ...]
    refused: tuple[MarkRefusal, ...]
    removed: tuple[str, ...]


def most_marked(num_nodes: int, max_pct: int) -> int:
    """The share of the fleet as a number of nodes, rounded down: 10 % of 39 nodes are 3."""
    return num_nodes * max_pct // 100


def confirmed_reds(campaign: Campaign) -> Mapping[str, Sequence[tuple[str, NodeVerdict]]]:
    """Node -> (group id, verdict) of each work at which it is confirmed to be red, the slowest node first."""
    reds = [
        (verdict.node, (group.group_id, verdict))
        for group in campaign.groups
        for verdict in group.nodes
        if verdict.is_red
        and (
            verdict.why in (Why.HOT, Why.HEAVY)
            or (verdict.why is Why.SLOW and verdict.confirmation is Confirmation.CONFIRMED)
        )
    ]
    return dict(
        sorted(grouped(reds).items(), key=lambda item: (min(_slow_pct(v) for _, v in item[1]), natural(item[0])))
    )


def nodes_to_free(campaign: Campaign, listed: Mapping[str, ListedNode]) -> tuple[ListedNode, ...]:
    """Nodes with our mark that are well at every work that they were marked at, and red at none."""
    return tuple(
        each for name, each in listed.items() if each.mark is not None and not why_marked(campaign, name, each.mark)
    )


def why_marked(campaign: Campaign, node: str, mark: Mark) -> str | None:
    """Why the node is not freed; None: it is well again."""
    verdicts = {group.group_id: v for group in campaign.groups for v in group.nodes if v.node == node}
    if not verdicts:
        return "it was not measured"
    if any(verdict.is_red for verdict in verdicts.values()):
        return "it is not well"
    if missing := set(mark.groups) - verdicts.keys():
        return f"{count(len(missing), 'work')} that it was marked at was not measured"
    is_well = all(verdicts[group_id].state is State.WELL for group_id in mark.groups)
    return None if is_well else "not every verdict on it is well"


def decide_marks(
    campaign: Campaign,
    listed: Mapping[str, ListedNode],
    instance: str,
    most: int,
    earlier: Collection[str] = (),
) -> Decision:
    """The nodes to mark, the slowest first, and those that are not marked, with the reason.

    `listed`: the verdicts' name -> node, after nodes were freed. `most`: nodes that may be marked at the same time.
    `earlier`: nodes that an earlier try of this campaign's task marked.
    """
    room = most - sum(each.shape is not None for each in listed.values())
    to_mark, refused, removed = [], [], []
    for name, reds in confirmed_reds(campaign).items():
        each = listed.get(name)
        mark = Mark(
            instance=instance,
            campaign_id=campaign.campaign_id,
            at=campaign.finished_at,
            groups=tuple(dict.fromkeys(group_id for group_id, _ in reds)),
            reason=reds[0][1].reason,
        )
        # The verdict must be about the machine that is listed now.
        if each is None:
            refused.append(MarkRefusal(name, "the cluster does not list exactly one node of that name", LOOK))
        elif each.created_at > campaign.started_at:
            reason = "another machine has that name since the run began"
            refused.append(MarkRefusal(name, reason, "it is not marked: measure the new machine first"))
        # A mark of ours gets the works that it lacks; a shape that others set stays.
        elif each.shape is not None:
            if each.mark is not None and not (each.is_as_set and set(mark.groups) <= set(each.mark.groups)):
                groups = tuple(dict.fromkeys((*each.mark.groups, *mark.groups)))
                to_mark.append((each, mark.model_copy(update={"groups": groups, "at": each.mark.at})))
        elif name in earlier or (each.mark is not None and each.mark.campaign_id == campaign.campaign_id):
            removed.append(name)
        elif room > 0:
            room -= 1
            to_mark.append((each, mark))
        else:
            reason = f"{count(most, 'node')} may be marked at the same time, and as many are ({CAP})"
            if most == 0:
                reason = f"the share of the fleet that may be marked is less than one node ({CAP})"
            refused.append(MarkRefusal(name, reason, f"{LOOK}; raise {CAP} if more may be marked"))
    return Decision(tuple(to_mark), tuple(refused), tuple(removed))


def _slow_pct(verdict: NodeVerdict) -> float:
    return min((c.deviation for c in verdict.off if c.metric is Metric.SAMPLES_PER_SECOND), default=0.0)
