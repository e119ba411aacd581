"""Mistaken identities: a run with two results, one GPU under two node names, two machines under one node name.

A node is identified by the UUIDs of its GPUs.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from bench_image.contract.result import RunResult
from trainbench.core.formats import listing
from trainbench.core.grouping import grouped
from trainbench.core.natural_order import natural
from trainbench.core.verdicts import Finding, Level
from trainbench.planning.nodes import GpuNode
from trainbench.results.same_machine import gpu_uuids

SEVERAL_MACHINES = "several_machines"  # category


def identity_findings(results: Sequence[RunResult], known: Sequence[GpuNode] = ()) -> tuple[Finding, ...]:
    """Findings on GPUs under two node names, and machines under one. `known`: the cluster's nodes."""
    return (*_twice(results), *_two_names(results), *_one_name(results, known))


def _twice(results: Sequence[RunResult]) -> tuple[Finding, ...]:
    times = Counter(
        (result.spec.identity.campaign_id, result.spec.identity.node, result.spec.identity.run_id) for result in results
    )
    return tuple(
        Finding(
            level=Level.WARNING,
            category="duplicate_run",
            item=run_id,
            nodes=(node,),
            measured=f"{num} results",
            expected="one",
            summary=f"has {num} results; the one that finished last is judged",
            resolution="find the source of the other result: a folder read twice, or a pod that ran again",
        )
        for (_, node, run_id), num in times.items()
        if num > 1
    )


def _two_names(results: Sequence[RunResult]) -> tuple[Finding, ...]:
    """Findings on GPUs that ran under two node names: such a machine would be its own peer."""
    nodes_of: dict[str, dict[str, None]] = {}
    for result in results:
        for gpu in result.context.gpus if result.context else ():
            if gpu.uuid:
                nodes_of.setdefault(gpu.uuid, {})[result.spec.identity.node] = None
    shared = grouped((tuple(sorted(nodes, key=natural)), uuid) for uuid, nodes in nodes_of.items() if len(nodes) > 1)
    return tuple(
        Finding(
            level=Level.WARNING,
            category="same_gpu",
            nodes=(nodes[-1],),
            measured=f"{listing(uuids)} on {listing(nodes)}",
            expected="a GPU on one node only",
            summary=f"has the same GPU as {listing(nodes[:-1])}: one machine under {len(nodes)} names, compared with "
            "itself",
            resolution="was the node renamed while the check ran? Take the old name out of the list, and repeat",
        )
        for nodes, uuids in shared.items()
    )


def _one_name(results: Sequence[RunResult], known: Sequence[GpuNode]) -> tuple[Finding, ...]:
    """Findings on names under which several machines ran: their GPUs never occur in one run, and exceed the node's
    count.
    """
    sets: dict[str, list[frozenset[str]]] = {}
    for result in results:
        if result.spec.placement.nodes == 1 and (uuids := gpu_uuids(result)):
            sets.setdefault(result.spec.identity.node, []).append(uuids)
    capacity = gpu_capacities(known)
    return tuple(
        _several(node, apart)
        for node, of_runs in sets.items()
        if len(apart := _disjoint(of_runs)) > 1 and len(frozenset[str]().union(*apart)) > capacity.get(node, 0)
    )


def gpu_capacities(known: Sequence[GpuNode]) -> dict[str, int]:
    """Node -> its number of GPUs, unhealthy ones included; nodes of unknown size are left out."""
    return {node.name: node.num_gpus + node.num_gpus_lost for node in known if node.num_gpus is not None}


def _disjoint(sets: Sequence[frozenset[str]]) -> list[frozenset[str]]:
    """Join the sets that share a GPU; the result is disjoint."""
    apart: list[frozenset[str]] = []
    for uuids in sets:
        touching = [other for other in apart if other & uuids]
        apart = [other for other in apart if other not in touching] + [uuids.union(*touching)]
    return sorted(apart, key=sorted)


def _several(node: str, apart: Sequence[frozenset[str]]) -> Finding:
    return Finding(
        level=Level.WARNING,
        category=SEVERAL_MACHINES,
        nodes=(node,),
        measured=listing((" + ".join(sorted(uuids, key=natural)) for uuids in apart), most=len(apart)),
        expected="the GPUs of one machine under one name",
        summary=f"ran on {len(apart)} sets of GPUs that have none in common: several machines under one name, or pods "
        "that were given other GPUs of a node of unknown size; their figures are not repeats of one measurement",
        resolution="give each machine a name of its own, or take all GPUs of the node; then repeat the runs",
    )
