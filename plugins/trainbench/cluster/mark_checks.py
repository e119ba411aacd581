"""Facts and the doctor's check on whether red nodes can be marked."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from bench_image.contract.frozen import Frozen
from trainbench.cluster.doctor_check import Check, ok, warn
from trainbench.cluster.kubernetes_api import Cluster, Permission
from trainbench.cluster.mark_findings import UNDO
from trainbench.cluster.mark_nodes import GRANT
from trainbench.cluster.marked_nodes import NEEDED_TO_MARK, Node, gpu_nodes, listed_node, shape_of
from trainbench.cluster.node_marks import CAP, most_marked
from trainbench.core.formats import count, listing
from trainbench.settings.environment import KeepAway, Settings

NAME = "marks"


class MarkFacts(Frozen):
    """Facts of marks. `missing`: missing rights, read only where marks are set up. `marked`: this installation's."""

    missing: tuple[Permission, ...] = ()
    num_nodes: int
    marked: tuple[str, ...]


def mark_facts(cluster: Cluster, nodes: Sequence[Node], settings: Settings) -> MarkFacts:
    """The facts of marks. Raises ClusterError."""
    known: Mapping[str, Node] = gpu_nodes(nodes, settings)
    needed = () if settings.keep_away is KeepAway.OFF else NEEDED_TO_MARK
    return MarkFacts(
        missing=tuple(permission for permission in needed if not cluster.is_allowed(permission)),
        num_nodes=len(known),
        marked=tuple(name for name, node in known.items() if listed_node(node, settings).is_ours),
    )


def mark_checks(facts: MarkFacts, settings: Settings) -> Iterator[Check]:
    """The checks of marks; empty where no node is marked or to be marked."""
    marked = f"{count(len(facts.marked), 'node')} ({listing(facts.marked)})"
    if settings.keep_away is KeepAway.OFF:
        if facts.marked:
            summary = f"{marked} marked while red, and TRAINBENCH_KEEP_AWAY is off: no run frees them"
            yield warn(NAME, summary, f"`{UNDO} --all` frees them")
        return
    most = most_marked(facts.num_nodes, settings.keep_away_max_pct)
    if facts.missing:
        rights = listing(f"{each.name} (to {each.purpose})" for each in facts.missing)
        yield warn(NAME, f"TRAINBENCH_KEEP_AWAY is {settings.keep_away}, and not allowed is {rights}", GRANT)
    elif most == 0:
        share = f"{settings.keep_away_max_pct} % of {count(facts.num_nodes, 'node')}"
        yield warn(NAME, f"{share} is less than one node: none will be marked", f"raise {CAP}")
    else:
        now = f"; now {marked}" if facts.marked else ""
        yield ok(
            NAME, f"a node that is confirmed to be red gets {shape_of(settings)}, at most {count(most, 'node')}{now}"
        )
