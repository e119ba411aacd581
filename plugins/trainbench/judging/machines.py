"""Renamed nodes (the GPUs, by UUID, of another node that is gone), other machines under a known name, swapped GPUs."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from itertools import islice

from bench_image.contract.frozen import Frozen
from trainbench.core.formats import count, day, listing
from trainbench.core.grouping import grouped
from trainbench.core.natural_order import natural
from trainbench.core.verdicts import Finding, Level
from trainbench.judging.checks.identity import gpu_capacities
from trainbench.judging.past import NodeRecord
from trainbench.planning.nodes import GpuNode

RENAMED, OTHER_MACHINE, SWAPPED = "renamed_node", "other_machine", "swapped_gpu"
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


def rename_findings(renames: Sequence[Rename], at: datetime) -> tuple[Finding, ...]:
    return tuple(
        Finding(
            level=Level.INFO,
            category=RENAMED,
            nodes=(rename.node,),
            measured=listing(rename.gpu_uuids),
            expected=f"on {rename.was}, as until {day(rename.until)}",
            summary=f"was {rename.was} until {day(rename.until)}: it has the same GPUs, and is compared with that past",
            resolution="nothing to do if the node was renamed; if its GPUs were moved, watch it as a new node",
        )
        for rename in renames
        if at - rename.until <= REPORTED_FOR
    )


def replaced_gpu_findings(
    now: Sequence[NodeRecord], earlier: Sequence[NodeRecord], at: datetime, known: Sequence[GpuNode] = ()
) -> tuple[Finding, ...]:
    """Findings on nodes of `now` with other GPUs than in a campaign of the last REPORTED_FOR. `known`: the cluster's
    nodes; where a node's size is known, GPUs that merely were not used before are no replacement.
    """
    capacity = gpu_capacities(known)
    past = grouped((record.node, record) for record in earlier if at - record.at <= REPORTED_FOR)
    found = []
    for node, records in grouped((record.node, record) for record in now).items():
        has = frozenset[str]().union(*(record.setup.gpu_uuids for record in records))
        campaigns: dict[str, tuple[datetime, frozenset[str]]] = {}  # time, and GPUs of all works
        for record in past.get(node, ()):
            when, had = campaigns.get(record.campaign_id, (record.at, frozenset[str]()))
            campaigns[record.campaign_id] = (max(when, record.at), had | record.setup.gpu_uuids)
        changed = (
            (when, had)
            for when, had in sorted(campaigns.values(), key=lambda campaign: campaign[0], reverse=True)
            if has and had and has != had and len(has | had) > capacity.get(node, max(len(has), len(had)))
        )
        found += [_changed(node, has, had, when) for when, had in islice(changed, 1)]
    return tuple(found)


def _changed(node: str, has: frozenset[str], had: frozenset[str], when: datetime) -> Finding:
    def named(uuids: frozenset[str]) -> str:
        return listing(sorted(uuids, key=natural))

    new, gone = has - had, had - has
    is_other = new == has
    if is_other:
        summary = (
            f"has other GPUs than on {day(when)}, none of them the same: its earlier figures are those of "
            "another machine under its name, or of the removed GPUs"
        )
    else:
        had_not = f"has {count(len(new), 'GPU')} that it did not have on {day(when)}"
        summary = had_not if new else f"lacks {named(gone)}"
    return Finding(
        level=Level.WARNING if is_other else Level.INFO,
        category=OTHER_MACHINE if is_other else SWAPPED,
        nodes=(node,),
        measured=named(new) if new else f"{len(has)} of {len(had)} GPUs",
        expected=f"{named(gone)}, as on {day(when)}" if gone else f"the {len(had)} GPUs of {day(when)}",
        summary=summary,
        resolution="give a new machine a name of its own; if its GPUs were replaced, accept its new level as baseline"
        if is_other
        else "nothing to do if it was swapped on purpose; its history includes the old GPUs",
    )
