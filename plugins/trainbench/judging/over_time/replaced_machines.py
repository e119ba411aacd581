"""Nodes with other GPUs than before: another machine under the same name, or a swapped GPU."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime

from trainbench.core.formats import count, day, listing
from trainbench.core.grouping import grouped
from trainbench.core.natural_order import natural
from trainbench.core.verdicts import Finding, Level
from trainbench.judging.checks.identity import gpu_capacities
from trainbench.judging.over_time.node_history import NodeRecord
from trainbench.judging.over_time.renames import REPORTED_FOR
from trainbench.planning.nodes import GpuNode

OTHER_MACHINE, SWAPPED = "other_machine", "swapped_gpu"


def replaced_gpu_findings(
    now: Sequence[NodeRecord], earlier: Sequence[NodeRecord], at: datetime, known: Sequence[GpuNode] = ()
) -> tuple[Finding, ...]:
    """Findings on nodes of `now` with other GPUs than in a campaign of the last REPORTED_FOR. `known`: the cluster's
    nodes; where a node's size is known, GPUs that merely were not used before are no replacement.
    """
    capacity, mine, past = gpu_capacities(known), _by_node(now), _by_node(earlier)
    changed = []
    for node, campaigns in mine.items():
        has = frozenset[str]().union(*(record.setup.gpu_uuids for record in campaigns))
        recent = _campaigns([record for record in past.get(node, ()) if at - record.at <= REPORTED_FOR])
        for when, had in recent if has else ():
            if has != had and len(has | had) > capacity.get(node, max(len(has), len(had))):
                changed.append(_swapped(node, has, had, when) if has & had else _moved(node, has, had, when))
                break
    return tuple(changed)


def _by_node(records: Sequence[NodeRecord]) -> Mapping[str, list[NodeRecord]]:
    return grouped((record.node, record) for record in records)


def _campaigns(records: Sequence[NodeRecord]) -> list[tuple[datetime, frozenset[str]]]:
    """(time, GPUs of all works) of each campaign with known GPUs, the latest first."""
    of: dict[str, tuple[datetime, frozenset[str]]] = {}
    for record in records:
        when, had = of.get(record.campaign_id, (record.at, frozenset[str]()))
        of[record.campaign_id] = (max(when, record.at), had | record.setup.gpu_uuids)
    return sorted((campaign for campaign in of.values() if campaign[1]), key=lambda campaign: campaign[0], reverse=True)


def _moved(node: str, has: frozenset[str], had: frozenset[str], when: datetime) -> Finding:
    return Finding(
        level=Level.WARNING,
        category=OTHER_MACHINE,
        nodes=(node,),
        measured=_named(has),
        expected=f"{_named(had)}, as on {day(when)}",
        summary=f"has other GPUs than on {day(when)}, none of them the same: its earlier figures are those of "
        "another machine under its name, or of the removed GPUs",
        resolution="give a new machine a name of its own; if its GPUs were replaced, accept its new level as baseline",
    )


def _swapped(node: str, has: frozenset[str], had: frozenset[str], when: datetime) -> Finding:
    new, gone = has - had, had - has
    summary = f"has {count(len(new), 'GPU')} that it did not have on {day(when)}" if new else f"lacks {_named(gone)}"
    return Finding(
        level=Level.INFO,
        category=SWAPPED,
        nodes=(node,),
        measured=_named(new) if new else f"{len(has)} of {len(had)} GPUs",
        expected=f"{_named(gone)}, as on {day(when)}" if gone else f"the {len(had)} GPUs of {day(when)}",
        summary=summary,
        resolution="nothing to do if it was swapped on purpose; its history includes the old GPUs",
    )


def _named(uuids: frozenset[str]) -> str:
    return listing(sorted(uuids, key=natural))
