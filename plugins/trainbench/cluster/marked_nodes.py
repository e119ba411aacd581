"""A node's mark in the Kubernetes API: read from its taints, label and annotation, and written by one PATCH.

The taints of a node are one atomic list that a patch replaces as a whole. Each patch therefore names the
`resourceVersion` of its list, and one that meets another writer's change is made anew from the node's present state.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from pydantic import ValidationError

from trainbench.cluster.kubernetes_api import Cluster, Permission, Refused
from trainbench.cluster.node_marks import ListedNode, Mark
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
    metadata, mark = node["metadata"], _mark(node)
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


def _mark(node: Node) -> Mark | None:
    """The node's mark; None: it has none, or another program's annotation."""
    text = (node["metadata"].get("annotations") or {}).get(KEPT_AWAY)
    try:
        return Mark.model_validate_json(text) if text else None
    except ValidationError:
        return None


def _taints(node: Node) -> Sequence[Mapping[str, str]]:
    return node.get("spec", {}).get("taints") or ()
