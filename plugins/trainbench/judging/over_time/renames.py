"""Renamed nodes: nodes with the GPUs, by UUID, of another node that is gone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta

from bench_image.contract.frozen import Frozen
from trainbench.core.formats import day, listing
from trainbench.core.verdicts import Finding, Level
from trainbench.judging.over_time.node_history import NodeRecord

CATEGORY = "renamed_node"
REPORTED_FOR = timedelta(days=7)


class Rename(Frozen):
    node: str
    was: str
    until: datetime  # when it was last measured under the old name
    gpu_uuids: tuple[str, ...]  # shared by both names


def find(now: Sequence[NodeRecord], earlier: Sequence[NodeRecord]) -> tuple[Rename, ...]:
    """The renames: the old name is not among tonight's nodes and never ran beside the new one."""
    here = {record.node for record in now}
    owners: dict[str, NodeRecord] = {}  # GPU -> its last record under a name that is gone
    first_seen: dict[str, datetime] = {}
    for record in sorted(earlier, key=lambda record: record.at):
        first_seen.setdefault(record.node, record.at)
        if record.node not in here:
            owners |= dict.fromkeys(record.setup.gpu_uuids, record)
    renames: dict[str, Rename] = {}
    for record in now:
        for uuid in sorted(record.setup.gpu_uuids & owners.keys()):
            old = owners[uuid]
            if old.at < first_seen.get(record.node, record.at) and record.node not in renames:
                shared = tuple(sorted(gpu for gpu in record.setup.gpu_uuids if owners.get(gpu) is old))
                renames[record.node] = Rename(node=record.node, was=old.node, until=old.at, gpu_uuids=shared)
    return tuple(renames.values())


def names(renames: Sequence[Rename]) -> Mapping[str, str]:
    """Old name -> name of today."""
    return {rename.was: rename.node for rename in renames}


def rename_findings(renames: Sequence[Rename], at: datetime) -> tuple[Finding, ...]:
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
        for rename in renames
        if at - rename.until <= REPORTED_FOR
    )
