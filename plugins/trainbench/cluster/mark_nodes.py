"""Frees nodes that are well again and marks those that are confirmed to be red, with a finding on each.

It never fails: a refusal or a missing answer of the cluster is a finding, and the campaign stays judged.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from typing import Any

from pydantic import TypeAdapter, ValidationError

from trainbench.cluster.kubernetes_api import Cluster, ClusterError, Refused, Unreachable
from trainbench.cluster.marked_nodes import Node, Replaced, gpu_nodes, listed_node, shape_of, write_mark
from trainbench.cluster.node_marks import (
    CAP,
    LOOK,
    ListedNode,
    Mark,
    MarkRefusal,
    decide_marks,
    most_marked,
    nodes_to_free,
    why_marked,
)
from trainbench.core.grouping import grouped
from trainbench.core.verdicts import FREED, MARKED, NOT_MARKED, Finding, Level, by_level
from trainbench.results.artefacts import MARKS_FILE, Store
from trainbench.results.campaign import Campaign
from trainbench.results.store_files import StoreError
from trainbench.settings.environment import KeepAway, Launcher, Settings

_ACTS = TypeAdapter(tuple[Finding, ...])
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


def mark_nodes(
    campaign: Campaign,
    settings: Settings,
    opened: Callable[[], Cluster],
    store_acts: Callable[[Sequence[Finding]], None],
    earlier: Sequence[Finding] = (),
) -> Campaign:
    """The campaign with findings on its acts. `earlier`: acts of an earlier try of the same task. `store_acts` keeps
    acts for the next try: before nodes are freed, since a freed node carries no trace, and once more when all is done.
    """
    try:
        acts = _Acts(campaign, settings, opened())
        if acts.due:
            store_acts((*earlier, *_freed(acts.due)))
    except (ClusterError, StoreError) as error:
        what = "the nodes could not be listed" if isinstance(error, ClusterError) else "the acts could not be stored"
        figures = {"item": campaign.campaign_id, "measured": "unknown", "expected": "the nodes' marks"}
        unread = _finding(NOT_MARKED, (), f"no node was marked or freed: {what}: {error}", TRY_DOCTOR, **figures)
        return _with_findings(campaign, (unread, *earlier), {})
    acts.free()
    acts.mark({node for finding in earlier if finding.category == MARKED for node in finding.nodes})
    acts.stay_within_share()
    known = acts.shapes().keys() | {each.node for each in acts.freed}
    freed_before = [f for f in earlier if f.category == FREED and not known & {*f.nodes}]
    act_findings = (*acts.findings(), *freed_before)
    if act_findings:
        with suppress(StoreError):  # the report holds them too, if it can be written
            store_acts(act_findings)
    return _with_findings(campaign, act_findings, acts.shapes()).model_copy(update={"marks_are_known": True})


def acts_before(store: Store, campaign_id: str) -> tuple[Finding, ...]:
    """The acts that an earlier try of the campaign's task stored; empty without one. Raises StoreError."""
    text = store.read_node_marks(campaign_id)
    try:
        return _ACTS.validate_json(text) if text else ()
    except ValidationError:
        address = store.summary_address(campaign_id, MARKS_FILE)
        raise StoreError(f"{address} holds no acts on nodes: move it away, and run the task again") from None


def store_acts(store: Store, campaign_id: str, acts: Sequence[Finding]) -> None:
    """Store the acts for the next try of the task, in place of those stored before. Raises StoreError."""
    store.write_summary(campaign_id, {MARKS_FILE: _ACTS.dump_json(tuple(acts), indent=1)})


class _Acts:
    """The acts on nodes, in this order: `free`, `mark`, `stay_within_share`. `listed`: as each node is after them."""

    def __init__(self, campaign: Campaign, settings: Settings, cluster: Cluster) -> None:
        """Raises ClusterError."""
        self.campaign, self.settings, self.cluster = campaign, settings, cluster
        self.nodes = gpu_nodes(cluster.nodes(), settings)
        self.listed = {name: listed_node(node, settings) for name, node in self.nodes.items()}
        self.most = most_marked(len(self.nodes), settings.keep_away_max_pct)
        self.due = nodes_to_free(campaign, self.listed)
        self.freed: list[ListedNode] = []
        self.not_freed: dict[str, str] = {}
        self.refused: list[MarkRefusal] = []
        self.removed: Sequence[str] = ()
        self.marked: list[str] = []

    def free(self) -> None:
        self.not_freed = {refusal.node: refusal.reason for refusal in self._write([(each, None) for each in self.due])}
        self.freed = [each for each in self.due if each.node not in self.not_freed]

    def mark(self, earlier: set[str]) -> None:
        decision = decide_marks(self.campaign, self.listed, self.settings.instance, self.most, earlier)
        not_done = self._write(decision.to_mark)
        self.refused, self.removed = [*decision.refused, *not_done], decision.removed
        failed = {refusal.node for refusal in not_done}
        self.marked = [each.node for each, _ in decision.to_mark if not each.shape and each.node not in failed]

    def stay_within_share(self) -> None:
        """Remove own marks, the last one first, where another campaign marked nodes at the same time."""
        try:
            now = gpu_nodes(self.cluster.nodes(), self.settings) if self.marked else {}
        except ClusterError:
            return  # the marked nodes are within the share of the listed ones
        num_marked = sum(listed_node(node, self.settings).shape is not None for node in now.values())
        for name in reversed(self.marked):
            if num_marked <= self.most or name not in now:
                break
            if not self._write([(self.listed[name], None)], now):
                num_marked -= 1
                self.refused.append(MarkRefusal(name, f"another run marked nodes at the same time ({CAP})", LOOK))

    def shapes(self) -> dict[str, str]:
        """Node -> the kind of its present mark."""
        return {name: each.shape for name, each in self.listed.items() if each.shape}

    def findings(self) -> Iterator[Finding]:
        reds = {verdict.node for verdict in self.campaign.red_nodes}
        for name, shape in self.shapes().items():
            if (mark := self.listed[name].mark) is None:
                summary = f"is marked with {shape}, which this installation did not set and leaves alone"
                undo = f"ask who set it; `{UNDO} {name}` takes it off"
                yield _finding(MARKED, [name], summary, undo, measured=shape, level=Level.INFO)
                continue
            if name in self.not_freed:
                still = f"it is well again and could not be freed: {self.not_freed[name]}"
            elif name in reds or mark.campaign_id == self.campaign.campaign_id:
                still = None
            else:
                still = why_marked(self.campaign, name, mark)
            yield marked(name, shape, mark, still)
        yield from _freed(self.freed)
        yield from not_marked(self.refused)
        for name in self.removed:
            summary = "was marked by this run, and somebody has removed the mark since"
            nothing = "nothing to do: it is marked again only if a later run confirms that it is red"
            yield _finding(NOT_MARKED, [name], summary, nothing, expected="a mark", level=Level.INFO)

    def _write(
        self, changes: Sequence[tuple[ListedNode, Mark | None]], nodes: Mapping[str, Node] | None = None
    ) -> list[MarkRefusal]:
        """The reason of each change that failed. Stops without the right or without an answer."""
        not_done: list[MarkRefusal] = []
        for number, (each, mark) in enumerate(changes):
            try:
                write_mark(self.cluster, (nodes or self.nodes)[each.node], mark, self.settings)
            except (ClusterError, Replaced) as error:
                reason, next_step, is_last = _explained(error)
                not_done.append(MarkRefusal(each.node, reason, next_step))
                if is_last:
                    reason = reason if isinstance(error, Refused) else "not tried, the API server gave no answer before"
                    not_done += [MarkRefusal(other.node, reason, next_step) for other, _ in changes[number + 1 :]]
                    break
            else:
                changed = {"shape": shape_of(self.settings) if mark else None, "mark": mark, "is_as_set": True}
                self.listed[each.node] = each.model_copy(update=changed)
        return not_done


def _finding(category: str, nodes: Sequence[str], summary: str, resolution: str, **more: Any) -> Finding:
    texts = {"level": Level.WARNING, "measured": NO_MARK, "expected": NO_MARK} | more
    return Finding(category=category, nodes=tuple(nodes), summary=summary, resolution=resolution, **texts)


def marked(node: str, shape: str, mark: Mark, still: str | None) -> Finding:
    """`still`: why it is not freed; None: it is red."""
    summary = f"is marked with {shape} since {_moment(mark.at)}, so that other work keeps away: {mark.reason}"
    summary += f"; it stays so, because {still}" if still else ""
    resolution = f"repair it: a run that finds it well frees it; `{UNDO} {node}` undoes the mark at once"
    return _finding(MARKED, [node], summary, resolution, measured=shape)


def freed(node: str, shape: str, mark: Mark) -> Finding:
    summary = f"takes other work again: it is well, and {shape} of {_moment(mark.at)} was removed"
    return _finding(FREED, [node], summary, "it takes other work again: nothing to do", level=Level.INFO)


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


def _moment(at: datetime) -> str:
    return f"{at:%d %b %Y %H:%M} UTC"


def _freed(nodes: Iterable[ListedNode]) -> tuple[Finding, ...]:
    """A finding on each node that is freed, from what it was before. One whose mark somebody took off is not named."""
    return tuple(freed(each.node, each.shape, each.mark) for each in nodes if each.shape and each.mark)


def _explained(error: Exception) -> tuple[str, str, bool]:
    """(reason, next step, whether further nodes would fail too)"""
    if isinstance(error, Unreachable):
        return f"it is not known whether the mark was written, the API server gave no answer: {error}", TRY_DOCTOR, True
    if isinstance(error, Refused) and error.status == FORBIDDEN:
        return f"the right to patch nodes is missing: {error.message}", GRANT, True
    if isinstance(error, Refused) and error.status == GONE:
        return "the node is gone from the cluster", LOOK, False
    return str(error), TRY_DOCTOR, False


def _with_findings(campaign: Campaign, act_findings: Sequence[Finding], shapes: dict[str, str]) -> Campaign:
    known = with_marks(campaign.findings, shapes)
    return campaign.model_copy(update={"findings": by_level((*known, *act_findings))})
