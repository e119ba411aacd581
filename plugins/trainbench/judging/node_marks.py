"""Decides from verdicts and present marks which nodes are marked, so that other work keeps away, and which are freed.

Only a breach that its re-run confirmed marks a node. A node is freed when it is ok again at every work that it was
marked at. Whatever is undecided, unmeasured, busy or slowed on purpose changes nothing.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

from pydantic import AwareDatetime

from bench_image.contract.frozen import Frozen
from trainbench.core.formats import count
from trainbench.core.natural_order import natural
from trainbench.core.verdicts import RED, Confirmation, Metric, NodeVerdict, Side, State
from trainbench.judging.conditions_of_campaign import reason_of
from trainbench.results.campaign import Campaign

BAD_SIDES = frozenset({Side.SLOW, Side.HIGH})  # a node that is only faster or cooler than its peers is left alone
CAP = "TRAINBENCH_KEEP_AWAY_MAX_PCT"
LOOK = "it is not marked: take it out by hand if it must not take work"


class Mark(Frozen):
    """A mark of ours, as the node carries it."""

    instance: str  # the installation that made it
    campaign_id: str
    at: AwareDatetime
    groups: tuple[str, ...]  # group ids of the works that the node was in breach at
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
    """Why a node in confirmed breach is not marked, and what to do."""

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


def confirmed_breaches(campaign: Campaign) -> Mapping[str, Sequence[tuple[str, NodeVerdict]]]:
    """Node -> (group id, verdict) of each breach that its re-run confirmed, the slowest node first."""
    nodes: dict[str, list[tuple[str, NodeVerdict]]] = {}
    for group in campaign.groups:
        for verdict in group.nodes:
            if _is_confirmed(verdict):
                nodes.setdefault(verdict.node, []).append((group.group_id, verdict))
    return dict(sorted(nodes.items(), key=lambda item: (min(_rate_pct(v) for _, v in item[1]), natural(item[0]))))


def nodes_to_free(campaign: Campaign, listed: Mapping[str, ListedNode]) -> tuple[ListedNode, ...]:
    """Nodes with our mark that are ok at every work that they were marked at, and red at none."""
    return tuple(
        each for name, each in listed.items() if each.mark is not None and not why_marked(campaign, name, each.mark)
    )


def why_marked(campaign: Campaign, node: str, mark: Mark) -> str | None:
    """Why the node is not freed; None: it is well again."""
    verdicts = {group.group_id: v for group in campaign.groups for v in group.nodes if v.node == node}
    if not verdicts:
        return "it was not measured"
    if any(verdict.state in RED for verdict in verdicts.values()):
        return "it is not well"
    if missing := set(mark.groups) - verdicts.keys():
        return f"{count(len(missing), 'work')} that it was marked at was not measured"
    of_mark = [verdicts[group_id] for group_id in mark.groups]
    is_well = all(v.state is State.OK and not v.is_watched and not v.is_drill for v in of_mark)
    return None if is_well else "not every verdict on it was ok"


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
    for name, breaches in confirmed_breaches(campaign).items():
        each, mark = listed.get(name), _mark(campaign, breaches, instance)
        # The verdict must be about the machine that is listed now.
        if each is None:
            refused.append(MarkRefusal(name, "the cluster does not list exactly one node of that name", LOOK))
        elif each.created_at > campaign.started_at:
            refused.append(
                MarkRefusal(
                    name,
                    "another machine has that name since the run began",
                    "it is not marked: measure the new machine first",
                )
            )
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
            refused.append(MarkRefusal(name, _no_room(most), f"{LOOK}; raise {CAP} if more may be marked"))
    return Decision(tuple(to_mark), tuple(refused), tuple(removed))


def _no_room(most: int) -> str:
    if most == 0:
        return f"the share of the fleet that may be marked is less than one node ({CAP})"
    return f"{count(most, 'node')} may be marked at the same time, and as many are ({CAP})"


def _is_confirmed(verdict: NodeVerdict) -> bool:
    is_breach = verdict.state is State.BREACH and verdict.confirmation is Confirmation.CONFIRMED
    is_bad = any(metric.state is State.BREACH and metric.side in BAD_SIDES for metric in verdict.metrics)
    return is_breach and is_bad and not verdict.is_drill


def _rate_pct(verdict: NodeVerdict) -> float:
    """Deviation of samples/s from the peers; 0 where it is not known."""
    return verdict.deviation(Metric.SAMPLES_PER_SECOND) or 0.0


def _mark(campaign: Campaign, breaches: Sequence[tuple[str, NodeVerdict]], instance: str) -> Mark:
    return Mark(
        instance=instance,
        campaign_id=campaign.campaign_id,
        at=campaign.finished_at,
        groups=tuple(dict.fromkeys(group_id for group_id, _ in breaches)),
        reason=reason_of(breaches[0][1]),
    )
