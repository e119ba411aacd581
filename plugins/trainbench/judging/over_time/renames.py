"""A node under a new name: the same GPUs, by their UUIDs, that another node had, which is gone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta

from bench_image.contract.frozen import Frozen
from trainbench.core.formats import day, listing
from trainbench.core.verdicts import Finding, Level
from trainbench.judging.over_time.node_history import Point

CATEGORY = "renamed_node"
TOLD_FOR = timedelta(days=7)


class Rename(Frozen):
    node: str
    was: str
    until: datetime  # when it was last measured under the old name
    gpu_uuids: tuple[str, ...]  # that prove it


def find(now: Sequence[Point], earlier: Sequence[Point]) -> tuple[Rename, ...]:
    """The old name is not among tonight's nodes, and never was used beside the new one."""
    here = {point.node for point in now}
    owners: dict[str, Point] = {}  # GPU -> its last point under a name that is not used any more
    first_seen: dict[str, datetime] = {}
    for point in sorted(earlier, key=lambda point: point.at):
        first_seen.setdefault(point.node, point.at)
        if point.node not in here:
            owners |= dict.fromkeys(point.setup.gpu_uuids, point)
    found: dict[str, Rename] = {}
    for point in now:
        for uuid in sorted(point.setup.gpu_uuids & owners.keys()):
            old = owners[uuid]
            if old.at < first_seen.get(point.node, point.at) and point.node not in found:
                shared = tuple(sorted(gpu for gpu in point.setup.gpu_uuids if owners.get(gpu) is old))
                found[point.node] = Rename(node=point.node, was=old.node, until=old.at, gpu_uuids=shared)
    return tuple(found.values())


def names(found: Sequence[Rename]) -> Mapping[str, str]:
    """Old name -> name of today."""
    return {rename.was: rename.node for rename in found}


def findings(found: Sequence[Rename], at: datetime) -> tuple[Finding, ...]:
    return tuple(
        Finding(
            level=Level.INFO,
            category=CATEGORY,
            nodes=(rename.node,),
            measured=listing(rename.gpu_uuids),
            expected=f"on {rename.was}, as until {day(rename.until)}",
            summary=f"was {rename.was} until {day(rename.until)}: it has the same GPUs, and is compared with that past",
            resolution="nothing to do if the node was renamed; if its GPUs were moved, watch it as a new node",
        )
        for rename in found
        if at - rename.until <= TOLD_FOR
    )
