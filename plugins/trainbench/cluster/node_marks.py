"""Marks nodes that are red, so that other work keeps away, and frees those that are well again, with a finding on each.

Only a node that its re-runs confirmed as slow is marked, and one that is hot or takes more memory where the settings
call that red. A node is freed when it is well again at every work that it was marked at. Whatever is undecided,
unmeasured, busy or slowed on purpose changes nothing. A refusal or a missing answer of the cluster is a finding, and
the campaign stays judged.

The taints of a node are one atomic list that a patch replaces as a whole. Each patch therefore names the
`resourceVersion` of its list, and one that meets another writer's change is made anew from the node's present state.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import datetime
from enum import StrEnum
from functools import partial
from typing import Any, NamedTuple

from pydantic import AwareDatetime, ValidationError

from bench_image.contract.frozen import Frozen
from trainbench.cluster.kubernetes_api import Cluster, ClusterError, Permission, Refused, Unreachable
from trainbench.core.formats import count, moment
from trainbench.core.grouping import grouped
from trainbench.core.natural_order import natural
from trainbench.core.tables import Table, make_table, text
from trainbench.core.user_error import UserError
from trainbench.core.verdicts import (
    FREED,
    MARKED,
    NOT_MARKED,
    Finding,
    Level,
    Metric,
    NodeVerdict,
    State,
    Why,
    by_level,
)
from trainbench.planning.nodes import HOSTNAME, KEPT_AWAY, fleet_of
from trainbench.pods.manifests import label_value
from trainbench.results.campaign import Campaign
from trainbench.settings.environment import KeepAway, Launcher, Settings

CAP = "TRAINBENCH_KEEP_AWAY_MAX_PCT"
EFFECT = "NoSchedule"  # of the taint: no new pod comes, none that runs is evicted
HAND = "hand"  # a person freed the node
LOOK = "it is not marked: take it out by hand if it must not take work"


class Mark(Frozen):
    """A mark of ours, as the node's annotation says it. A freed node keeps it, for the same task when it runs again.
    `freed_by`: the campaign that freed the node, or HAND.
    """

    instance: str  # the installation that made it
    campaign_id: str
    at: AwareDatetime
    groups: tuple[str, ...]  # group ids of the works that the node was red at
    reason: str
    freed_by: str | None = None


class ListedNode(Frozen):
    """A node as the cluster lists it. `shape`: what keeps work away from it, as "the taint trainbench.io/breach:
    NoSchedule", whoever set it; None: nothing. `is_as_set`: in the way that the settings say. `mark`: what this
    installation wrote, even if taint or label was removed since; `freed`: instead, where it was freed since.
    """

    node: str  # as verdicts name it
    created_at: AwareDatetime
    shape: str | None = None
    is_as_set: bool = False
    mark: Mark | None = None
    freed: Mark | None = None

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
        and (verdict.why in (Why.HOT, Why.HEAVY) or (verdict.why is Why.SLOW and verdict.is_confirmed))
    ]
    return dict(
        sorted(grouped(reds).items(), key=lambda item: (min(_slow_pct(v) for _, v in item[1]), natural(item[0])))
    )


def nodes_to_free(campaign: Campaign, listed: Mapping[str, ListedNode]) -> tuple[ListedNode, ...]:
    """Nodes with our mark that are well at every work that they were marked at, and red at none."""
    ours = ((name, each, each.mark) for name, each in listed.items() if each.shape)
    return tuple(each for name, each, mark in ours if mark and not why_marked(campaign, name, mark))


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


def decide_marks(campaign: Campaign, listed: Mapping[str, ListedNode], instance: str, most: int) -> Decision:
    """The nodes to mark, the slowest first, and those that are not marked, with the reason. `listed`: the verdicts'
    name -> node, after nodes were freed. `most`: nodes that may be marked at the same time.
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
        elif (last := each.mark or each.freed) and last.campaign_id == campaign.campaign_id:
            removed.append(name)  # an earlier try of this task marked it
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
    decides = verdict.decides
    return decides.deviation if decides and decides.metric is Metric.SAMPLES_PER_SECOND else 0.0


MAX_TRIES = 5  # of one patch, when other writers change the node
CONFLICT = 409
NEEDED_TO_MARK = (
    Permission(
        verb="patch",
        resource="nodes",
        is_cluster_wide=True,
        is_required=False,
        purpose="mark a red node, and free it",
    ),
    Permission(
        verb="get",
        resource="nodes",
        is_cluster_wide=True,
        is_required=False,
        purpose="mark it while others change it too",
    ),
)
Node = Mapping[str, Any]  # as the API's JSON


class Replaced(RuntimeError):
    """Another machine has taken the node's name."""


class Outcome(StrEnum):
    MARKED = "marked"  # only listed
    FREED = "freed"
    WOULD_FREE = "would_free"
    NOT_MARKED = "not_marked"
    LEFT = "left"  # set by another installation or by hand: only a call that names the node frees it
    FAILED = "failed"


class NodeOutcome(Frozen):
    """A marked node with the outcome. `fault`: why it could not be freed."""

    node: str
    shape: str | None
    mark: Mark | None
    outcome: Outcome
    fault: str | None = None


def name_of(node: Node) -> str:
    """The node's name in plans and verdicts."""
    return str((node["metadata"].get("labels") or {}).get(HOSTNAME, node["metadata"]["name"]))


def gpu_nodes(nodes: Sequence[Node], settings: Settings) -> dict[str, Node]:
    """Name -> node of the GPU nodes, usable or not, without names of several nodes."""
    of_fleet = fleet_of(nodes, settings.quarantine, settings.gpu_resources)
    names = {each.name for each in of_fleet.nodes} | {each.name for each in of_fleet.absent}
    times = Counter(map(name_of, nodes))
    return {name: node for node in nodes if (name := name_of(node)) in names and times[name] == 1}


def listed_node(node: Node, settings: Settings) -> ListedNode:
    metadata, mark = node["metadata"], None
    with suppress(ValidationError):  # another program's annotation is no mark
        if written := (metadata.get("annotations") or {}).get(KEPT_AWAY):
            mark = Mark.model_validate_json(written)
    effects = [taint["effect"] for taint in _taints(node) if taint["key"] == KEPT_AWAY]
    has_label = KEPT_AWAY in (metadata.get("labels") or {})
    shape = f"the taint {KEPT_AWAY}:{effects[0]}" if effects else f"the label {KEPT_AWAY}" if has_label else None
    return ListedNode(
        node=name_of(node),
        created_at=datetime.fromisoformat(metadata["creationTimestamp"]),
        shape=shape,
        is_as_set=shape == shape_of(settings),
        **({"freed" if mark.freed_by else "mark": mark} if mark and mark.instance == settings.instance else {}),
    )


def shape_of(settings: Settings) -> str:
    """The name of the settings' kind of mark."""
    if settings.keep_away is KeepAway.LABEL:
        return f"the label {KEPT_AWAY}"
    return f"the taint {KEPT_AWAY}:{EFFECT}"


def write_mark(cluster: Cluster, node: Node, mark: Mark | None, settings: Settings) -> None:
    """Set the settings' mark; one that is freed leaves the annotation, None nothing under our key. Others' taints,
    labels and annotations stay. Raises ClusterError, and Replaced.
    """
    name, uid = node["metadata"]["name"], node["metadata"]["uid"]
    for number in range(1, MAX_TRIES + 1):
        if node["metadata"]["uid"] != uid:
            raise Replaced(f"another machine is called {name} now")
        try:
            cluster.patch_node(name, patch(node, mark, settings))
            return
        except Refused as refused:
            if refused.status != CONFLICT or number == MAX_TRIES:
                raise
        node = cluster.node(name)


def patch(node: Node, mark: Mark | None, settings: Settings) -> dict[str, Any]:
    """The body of the PATCH, a strategic merge: None removes a key."""
    is_set = mark is not None and mark.freed_by is None
    is_tainted, is_labelled = (is_set and settings.keep_away is each for each in (KeepAway.TAINT, KeepAway.LABEL))
    value = label_value(mark.campaign_id) if mark else ""
    ours = [{"key": KEPT_AWAY, "value": value, "effect": EFFECT}] if is_tainted else []
    others = [taint for taint in _taints(node) if taint["key"] != KEPT_AWAY]
    return {
        "metadata": {
            "resourceVersion": node["metadata"]["resourceVersion"],
            "labels": {KEPT_AWAY: value if is_labelled else None},
            "annotations": {KEPT_AWAY: mark.model_dump_json() if mark else None},
        },
        "spec": {"taints": [*others, *ours] or None},
    }


def marked_nodes(cluster: Cluster, settings: Settings) -> tuple[NodeOutcome, ...]:
    """All marked nodes of the cluster. Raises ClusterError."""
    listed = (listed_node(node, settings) for node in _all_nodes(cluster))
    return tuple(_outcome(each, Outcome.MARKED) for each in listed if each.shape)


def _outcome(listed: ListedNode, outcome: Outcome, fault: str | None = None) -> NodeOutcome:
    return NodeOutcome(node=listed.node, shape=listed.shape, mark=listed.mark, outcome=outcome, fault=fault)


def free_nodes(
    cluster: Cluster, settings: Settings, names: Collection[str] | None, dry_run: bool = False
) -> Iterator[NodeOutcome]:
    """Remove the marks from the nodes with these names, whoever set them; None: from all nodes that this installation
    marked. Raises UserError for a name that the cluster does not list, ClusterError where it lists none.
    """
    nodes = _all_nodes(cluster)
    if unknown := sorted(set(names or ()) - {name_of(node) for node in nodes}, key=natural):
        raise UserError(f"the cluster has no node '{unknown[0]}'; `trainbench nodes list` names the marked ones")
    for node in nodes:
        listed, fault = listed_node(node, settings), None
        if listed.node not in names if names is not None else not listed.shape:
            continue
        if listed.shape is None:
            outcome = Outcome.NOT_MARKED
        elif names is None and not listed.is_ours:
            outcome = Outcome.LEFT
        elif dry_run:
            outcome = Outcome.WOULD_FREE
        else:
            outcome = Outcome.FREED
            try:
                write_mark(cluster, node, listed.mark and listed.mark.model_copy(update={"freed_by": HAND}), settings)
            except (ClusterError, Replaced) as error:
                outcome, fault = Outcome.FAILED, str(error)
        yield _outcome(listed, outcome, fault)


def _all_nodes(cluster: Cluster) -> list[Node]:
    """Whatever the installation's selector is: it may have changed after a node was marked."""
    return sorted(replace(cluster, node_selector=None).nodes(), key=lambda node: natural(name_of(node)))


def outcomes_table(outcomes: Collection[NodeOutcome]) -> Table:
    return make_table(
        sorted(outcomes, key=lambda each: natural(each.node)),
        (
            text("node", lambda each: each.node),
            text("mark", lambda each: each.shape or "none"),
            text("since", lambda each: f"{each.mark.at:%Y-%m-%d %H:%M} UTC" if each.mark else ""),
            text("why", lambda each: each.mark.reason if each.mark else "not by this installation"),
            text("outcome", lambda each: each.outcome.replace("_", " ") + (f": {each.fault}" if each.fault else "")),
        ),
    )


def _taints(node: Node) -> Sequence[Mapping[str, str]]:
    return node.get("spec", {}).get("taints") or ()


FORBIDDEN, GONE = 403, 404
UNDO = "trainbench nodes free"
NO_MARK = "no mark"
GRANT = "grant the right to mark nodes: kubectl apply -k docker/kubernetes/node-marker (docs/keep-bad-nodes-away.md)"
TRY_DOCTOR = "run `trainbench doctor`; the next run of the DAG tries again"


def is_due(campaign: Campaign, settings: Settings, now: datetime, has_later: bool) -> bool:
    """Whether the campaign may act: a fresh and latest night of the cluster's nodes, on which none was slowed on
    purpose. `has_later`: a later campaign of its DAG is recorded.
    """
    is_night = campaign.judges_nodes and settings.launcher is Launcher.KUBERNETES and not campaign.is_drill
    is_fresh = not has_later and now - campaign.finished_at <= settings.fresh
    return settings.keep_away is not KeepAway.OFF and is_night and is_fresh


def mark_nodes(campaign: Campaign, settings: Settings, opened: Callable[[], Cluster]) -> Campaign:
    """The campaign with findings on its acts: well nodes are freed, red ones marked, and own marks taken off again
    where another campaign marked nodes at the same time. A task that runs again finds its acts on the nodes.
    """
    try:
        cluster = opened()
        nodes = gpu_nodes(cluster.nodes(), settings)
    except ClusterError as error:
        figures = {"item": campaign.campaign_id, "measured": "unknown", "expected": "the nodes' marks"}
        what = f"no node was marked or freed: the nodes could not be listed: {error}"
        return _with_findings(campaign, (_finding(NOT_MARKED, (), what, TRY_DOCTOR, **figures),), {})
    listed = {name: listed_node(node, settings) for name, node in nodes.items()}
    most = most_marked(len(nodes), settings.keep_away_max_pct)
    write = partial(_write, cluster, settings, listed)

    due = [(each, each.mark) for each in nodes_to_free(campaign, listed)]
    freeing = [(each, mark and mark.model_copy(update={"freed_by": campaign.campaign_id})) for each, mark in due]
    not_freed = {refusal.node: refusal.reason for refusal in write(freeing, nodes)}

    decision = decide_marks(campaign, listed, settings.instance, most)
    refused = [*decision.refused, *write(decision.to_mark, nodes)]
    failed = {refusal.node for refusal in refused}
    marked_now = [each.node for each, _ in decision.to_mark if not each.shape and each.node not in failed]
    now: Mapping[str, Node] = {}
    with suppress(ClusterError):  # the marked nodes are within the share of the listed ones
        now = gpu_nodes(cluster.nodes(), settings) if marked_now else {}
    num_marked = sum(listed_node(node, settings).shape is not None for node in now.values())
    for name in reversed(marked_now):
        if num_marked > most and name in now and not write([(listed[name], None)], now):
            num_marked -= 1
            refused.append(MarkRefusal(name, f"another run marked nodes at the same time ({CAP})", LOOK))

    findings = [*_on_marked(campaign, listed, not_freed), *not_marked(refused)]
    for name in decision.removed:
        summary = "was marked by this run, and somebody has removed the mark since"
        nothing = "nothing to do: it is marked again only if a later run confirms that it is red"
        findings.append(_finding(NOT_MARKED, [name], summary, nothing, expected="a mark", level=Level.INFO))
    shapes = {name: each.shape for name, each in listed.items() if each.shape}
    return _with_findings(campaign, findings, shapes).model_copy(update={"marks_are_known": True})


def _write(
    cluster: Cluster,
    settings: Settings,
    listed: dict[str, ListedNode],
    changes: Sequence[tuple[ListedNode, Mark | None]],
    nodes: Mapping[str, Node],
) -> list[MarkRefusal]:
    """Write the marks, `listed` too; return the reason of each that failed. Stops without the right or without an
    answer.
    """
    not_done: list[MarkRefusal] = []
    for number, (each, mark) in enumerate(changes):
        try:
            write_mark(cluster, nodes[each.node], mark, settings)
        except (ClusterError, Replaced) as error:
            reason, next_step, is_last = _explained(error)
            not_done.append(MarkRefusal(each.node, reason, next_step))
            if is_last:
                reason = reason if isinstance(error, Refused) else "not tried, the API server gave no answer before"
                not_done += [MarkRefusal(other.node, reason, next_step) for other, _ in changes[number + 1 :]]
                break
        else:
            changed: dict[str, Any] = {"shape": shape_of(settings), "mark": mark, "is_as_set": True}
            if mark is None or mark.freed_by:
                changed = {"shape": None, "mark": None, "freed": mark}
            listed[each.node] = each.model_copy(update=changed)
    return not_done


def _on_marked(campaign: Campaign, listed: Mapping[str, ListedNode], not_freed: Mapping[str, str]) -> Iterator[Finding]:
    """A finding on each node that is marked, and on each that this campaign freed."""
    reds = {verdict.node for verdict in campaign.red_nodes}
    for name, each in listed.items():
        if each.freed and each.freed.freed_by == campaign.campaign_id:
            summary = f"takes other work again: it is well, and its mark of {moment(each.freed.at)} was removed"
            yield _finding(FREED, [name], summary, "it takes other work again: nothing to do", level=Level.INFO)
        elif each.shape and each.mark is None:
            summary = f"is marked with {each.shape}, which this installation did not set and leaves alone"
            undo = f"ask who set it; `{UNDO} {name}` takes it off"
            yield _finding(MARKED, [name], summary, undo, measured=each.shape, level=Level.INFO)
        elif each.shape and each.mark:
            still = None
            if name in not_freed:
                still = f"it is well again and could not be freed: {not_freed[name]}"
            elif name not in reds and each.mark.campaign_id != campaign.campaign_id:
                still = why_marked(campaign, name, each.mark)
            yield marked(name, each.shape, each.mark, still)


def _finding(category: str, nodes: Sequence[str], summary: str, resolution: str, **more: Any) -> Finding:
    texts = {"level": Level.WARNING, "measured": NO_MARK, "expected": NO_MARK} | more
    return Finding(category=category, nodes=tuple(nodes), summary=summary, resolution=resolution, **texts)


def marked(node: str, shape: str, mark: Mark, still: str | None) -> Finding:
    """`still`: why it is not freed; None: it is red."""
    summary = f"is marked with {shape} since {moment(mark.at)}, so that other work keeps away: {mark.reason}"
    summary += f"; it stays so, because {still}" if still else ""
    resolution = f"repair it: a run that finds it well frees it; `{UNDO} {node}` undoes the mark at once"
    return _finding(MARKED, [node], summary, resolution, measured=shape)


def not_marked(refusals: Iterable[MarkRefusal]) -> tuple[Finding, ...]:
    """One for each reason, with all its nodes."""
    alike = grouped(((refusal.reason, refusal.next_step), refusal.node) for refusal in refusals)
    return tuple(
        _finding(
            NOT_MARKED,
            nodes,
            f"{'is' if len(nodes) == 1 else 'are'} red and not marked: {reason}",
            next_step,
            expected="a mark",
        )
        for (reason, next_step), nodes in alike.items()
    )


def with_marks(findings: Iterable[Finding], shapes: dict[str, str]) -> tuple[Finding, ...]:
    """The findings, each error on a marked node with the mark and its undoing as the first part of the next step.
    `shapes`: node -> what keeps work away from it.
    """
    told = []
    for finding in findings:
        node = finding.nodes[0] if len(finding.nodes) == 1 else None
        if finding.level is Level.ERROR and node in shapes:
            next_step = f"it is marked with {shapes[node]} (undo: `{UNDO} {node}`); {finding.resolution}"
            finding = finding.model_copy(update={"resolution": next_step})
        told.append(finding)
    return tuple(told)


def _explained(error: Exception) -> tuple[str, str, bool]:
    """(reason, next step, whether further nodes would fail too)"""
    if isinstance(error, Unreachable):
        return f"it is not known whether the mark was written, the API server gave no answer: {error}", TRY_DOCTOR, True
    if isinstance(error, Refused) and error.status == FORBIDDEN:
        return f"the right to patch nodes is missing: {error.message}", GRANT, True
    if isinstance(error, Refused) and error.status == GONE:
        return "the node is gone from the cluster", LOOK, False
    return str(error), TRY_DOCTOR, False


def _with_findings(campaign: Campaign, act_findings: Iterable[Finding], shapes: dict[str, str]) -> Campaign:
    known = with_marks(campaign.findings, shapes)
    return campaign.model_copy(update={"findings": by_level((*known, *act_findings))})
