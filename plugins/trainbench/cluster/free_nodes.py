"""Lists the marks on a cluster's nodes, and removes them by hand."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import replace
from enum import StrEnum
from typing import Any

from bench_image.contract.frozen import Frozen
from trainbench.cluster.kubernetes_api import Cluster, ClusterError
from trainbench.cluster.marked_nodes import Node, Replaced, listed_node, write_mark
from trainbench.cluster.node_marks import ListedNode
from trainbench.core.natural_order import natural
from trainbench.core.tables import Table, make_table, text
from trainbench.core.user_error import UserError
from trainbench.settings.environment import Settings


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


def marked_nodes(cluster: Cluster, settings: Settings) -> tuple[NodeOutcome, ...]:
    """All marked nodes of the cluster. Raises ClusterError."""
    return tuple(
        NodeOutcome(listed=each, outcome=Outcome.MARKED) for each, _ in _nodes(cluster, settings) if each.shape
    )


def free_nodes(
    cluster: Cluster, settings: Settings, names: Collection[str] | None, dry_run: bool = False
) -> Iterator[NodeOutcome]:
    """Remove the marks from the nodes with these names, whoever set them; None: from all nodes that this installation
    marked. Raises UserError for a name that the cluster does not list, ClusterError where it lists none.
    """
    nodes = _nodes(cluster, settings)
    known = {each.node for each, _ in nodes}
    if unknown := sorted(set(names or ()) - known, key=natural):
        raise UserError(f"the cluster has no node '{unknown[0]}'; `trainbench nodes list` names the marked ones")
    for each, node in nodes:
        if each.node in names if names is not None else each.shape:
            yield _freed(cluster, settings, each, node, dry_run=dry_run, is_named=names is not None)


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


def _nodes(cluster: Cluster, settings: Settings) -> list[tuple[ListedNode, Node]]:
    """All nodes of the cluster, since the installation's selector may have changed after a node was marked."""
    nodes = replace(cluster, node_selector=None).nodes()
    return sorted(((listed_node(node, settings), node) for node in nodes), key=lambda item: natural(item[0].node))


def _freed(
    cluster: Cluster, settings: Settings, each: ListedNode, node: Node, *, dry_run: bool, is_named: bool
) -> NodeOutcome:
    if each.shape is None:
        return NodeOutcome(listed=each, outcome=Outcome.NOT_MARKED)
    if not is_named and not each.is_ours:
        return NodeOutcome(listed=each, outcome=Outcome.LEFT)
    if dry_run:
        return NodeOutcome(listed=each, outcome=Outcome.WOULD_FREE)
    try:
        write_mark(cluster, node, None, settings)
    except (ClusterError, Replaced) as error:
        return NodeOutcome(listed=each, outcome=Outcome.FAILED, fault=str(error))
    return NodeOutcome(listed=each, outcome=Outcome.FREED)
