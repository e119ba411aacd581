"""A node's mark in the Kubernetes API: read from its taints, label and annotation, written by one PATCH, and removed by
hand.

The taints of a node are one atomic list that a patch replaces as a whole. Each patch therefore names the
`resourceVersion` of its list, and one that meets another writer's change is made anew from the node's present state.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import datetime
from enum import StrEnum
from typing import Any

from pydantic import ValidationError

from bench_image.contract.frozen import Frozen
from trainbench.cluster.kubernetes_api import Cluster, ClusterError, Permission, Refused
from trainbench.cluster.node_marks import ListedNode, Mark
from trainbench.core.natural_order import natural
from trainbench.core.tables import Table, make_table, text
from trainbench.core.user_error import UserError
from trainbench.planning.nodes import HOSTNAME, KEPT_AWAY, fleet_of
from trainbench.pods.manifests import label_value
from trainbench.settings.environment import KeepAway, Settings

MAX_TRIES = 5  # of one patch, when other writers change the node
CONFLICT = 409
NEEDED_TO_MARK = (
    Permission(verb="patch", resource="nodes", is_cluster_wide=True, purpose="mark a red node, and free it"),
    Permission(verb="get", resource="nodes", is_cluster_wide=True, purpose="mark it while others change it too"),
)
Node = Mapping[str, Any]  # as the API's JSON


class Replaced(RuntimeError):
    """Another machine has taken the node's name."""


class Outcome(StrEnum):
    MARKED = "marked"  # only listed
    FREED = "freed"
    WOULD_FREE = "would be freed"
    NOT_MARKED = "not marked"
    LEFT = "left alone: set by another installation or by hand; name the node to free it"
    FAILED = "not freed"


class NodeOutcome(Frozen):
    """A marked node with the outcome. `fault`: why it could not be freed."""

    listed: ListedNode
    outcome: Outcome
    fault: str | None = None

    @property
    def document(self) -> dict[str, Any]:
        mark = self.listed.mark.model_dump(mode="json") if self.listed.mark else None
        known = {"node": self.listed.node, "shape": self.listed.shape, "mark": mark}
        return {**known, "outcome": self.outcome.name.lower(), "fault": self.fault}


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
        mark=mark if mark is not None and mark.instance == settings.instance else None,
    )


def shape_of(settings: Settings) -> str:
    """The name of the settings' kind of mark."""
    if settings.keep_away is KeepAway.LABEL:
        return f"the label {KEPT_AWAY}"
    return f"the taint {KEPT_AWAY}:{settings.keep_away_effect}"


def write_mark(cluster: Cluster, node: Node, mark: Mark | None, settings: Settings) -> None:
    """Set the settings' mark; None removes everything under our key. Others' taints, labels and annotations stay.
    Raises ClusterError, and Replaced.
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
    is_tainted = mark is not None and settings.keep_away is KeepAway.TAINT
    is_labelled = mark is not None and settings.keep_away is KeepAway.LABEL
    value = label_value(mark.campaign_id) if mark else ""
    ours = [{"key": KEPT_AWAY, "value": value, "effect": settings.keep_away_effect.value}] if is_tainted else []
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
    return tuple(NodeOutcome(listed=each, outcome=Outcome.MARKED) for each in listed if each.shape)


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
                write_mark(cluster, node, None, settings)
            except (ClusterError, Replaced) as error:
                outcome, fault = Outcome.FAILED, str(error)
        yield NodeOutcome(listed=listed, outcome=outcome, fault=fault)


def _all_nodes(cluster: Cluster) -> list[Node]:
    """Whatever the installation's selector is: it may have changed after a node was marked."""
    return sorted(replace(cluster, node_selector=None).nodes(), key=lambda node: natural(name_of(node)))


def outcomes_table(outcomes: Collection[NodeOutcome]) -> Table:
    return make_table(
        sorted(outcomes, key=lambda each: natural(each.listed.node)),
        (
            text("node", lambda each: each.listed.node),
            text("mark", lambda each: each.listed.shape or "none"),
            text("since", lambda each: f"{each.listed.mark.at:%Y-%m-%d %H:%M} UTC" if each.listed.mark else ""),
            text("why", lambda each: each.listed.mark.reason if each.listed.mark else "not by this installation"),
            text("outcome", lambda each: each.outcome.value + (f": {each.fault}" if each.fault else "")),
        ),
    )


def _taints(node: Node) -> Sequence[Mapping[str, str]]:
    return node.get("spec", {}).get("taints") or ()
