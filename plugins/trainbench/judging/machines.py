"""Machines by the UUIDs of their GPUs: a run with two results, one GPU under two node names, two machines under one;
against the past: renamed nodes (with the GPUs of another node that is gone), other machines and swapped GPUs.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta
from itertools import islice

from bench_image.contract.frozen import Frozen
from bench_image.contract.result import RunResult
from trainbench.core.formats import count, day, listing
from trainbench.core.grouping import grouped
from trainbench.core.natural_order import natural
from trainbench.core.verdicts import Finding, Level
from trainbench.judging.past import NodeRecord
from trainbench.planning.nodes import GpuNode
from trainbench.results.setups import Machines

SEVERAL_MACHINES = "several_machines"  # category


def identity_findings(results: Sequence[RunResult], known: Sequence[GpuNode] = ()) -> tuple[Finding, ...]:
    """Findings on GPUs under two node names, and machines under one. `known`: the cluster's nodes."""
    return (*_twice(results), *_two_names(results), *_one_name(results, known))


def _twice(results: Sequence[RunResult]) -> Iterator[Finding]:
    runs = (result.spec.identity for result in results)
    for (_, node, run_id), num in Counter((run.campaign_id, run.node, run.run_id) for run in runs).items():
        if num > 1:
            yield Finding(
                level=Level.WARNING,
                category="duplicate_run",
                item=run_id,
                nodes=(node,),
                measured=f"{num} results",
                expected="one",
                summary=f"has {num} results; the one that finished last is judged",
                resolution="find the source of the other result: a folder read twice, or a pod that ran again",
            )


def _two_names(results: Sequence[RunResult]) -> Iterator[Finding]:
    """Findings on GPUs that ran under two node names: such a machine would be its own peer."""
    gpus = ((gpu.uuid, run.spec.identity.node) for run in results if run.context for gpu in run.context.gpus)
    nodes_of = {uuid: sorted(set(nodes), key=natural) for uuid, nodes in grouped(gpus).items() if uuid}
    shared = grouped((tuple(nodes), uuid) for uuid, nodes in nodes_of.items() if len(nodes) > 1)
    for nodes, uuids in shared.items():
        yield Finding(
            level=Level.WARNING,
            category="same_gpu",
            nodes=(nodes[-1],),
            measured=f"{listing(uuids)} on {listing(nodes)}",
            expected="a GPU on one node only",
            summary=f"has the same GPU as {listing(nodes[:-1])}: one machine under {len(nodes)} names, compared with "
            "itself",
            resolution="was the node renamed while the check ran? Take the old name out of the list, and repeat",
        )


def _one_name(results: Sequence[RunResult], known: Sequence[GpuNode]) -> Iterator[Finding]:
    """Findings on names under which several machines ran: their GPUs never occur in one run, and exceed the node's
    count.
    """
    capacity = gpu_capacities(known)
    alone = grouped((run.spec.identity.node, run) for run in results if run.spec.placement.nodes == 1)
    for node, runs in alone.items():
        apart = Machines(runs).gpus
        if len(apart) < 2 or sum(map(len, apart)) <= capacity.get(node, 0):
            continue
        names = (" + ".join(sorted(uuids, key=natural)) for uuids in sorted(apart, key=sorted))
        yield Finding(
            level=Level.WARNING,
            category=SEVERAL_MACHINES,
            nodes=(node,),
            measured=listing(names, most=len(apart)),
            expected="the GPUs of one machine under one name",
            summary=f"ran on {len(apart)} sets of GPUs that have none in common: several machines under one name, or "
            "pods that were given other GPUs of a node of unknown size; their figures are not repeats of one "
            "measurement",
            resolution="give each machine a name of its own, or take all GPUs of the node; then repeat the runs",
        )


def gpu_capacities(known: Sequence[GpuNode]) -> dict[str, int]:
    """Node -> its number of GPUs, unhealthy ones included; nodes of unknown size are left out."""
    return {node.name: node.num_gpus + node.num_gpus_lost for node in known if node.num_gpus is not None}


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
    summary = f"has {count(len(new), 'GPU')} that it did not have on {day(when)}" if new else f"lacks {named(gone)}"
    if is_other:
        summary = (
            f"has other GPUs than on {day(when)}, none of them the same: its earlier figures are those of "
            "another machine under its name, or of the removed GPUs"
        )
    return Finding(
        level=Level.WARNING if is_other else Level.INFO,
        category=OTHER_MACHINE if is_other else SWAPPED,
        nodes=(node,),
        measured=named(new),
        expected=f"{named(gone)}, as on {day(when)}",
        summary=summary,
        resolution="give a new machine a name of its own; if its GPUs were replaced, accept its new level as baseline"
        if is_other
        else "nothing to do if it was swapped on purpose; its history includes the old GPUs",
    )
