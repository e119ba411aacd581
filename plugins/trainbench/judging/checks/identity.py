"""Mistaken identities: a run with two results, one GPU under two node names, two machines under one node name.

A node is identified by the UUIDs of its GPUs.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from bench_image.contract.result import RunResult
from trainbench.core.formats import listing
from trainbench.core.grouping import grouped
from trainbench.core.natural_order import natural
from trainbench.core.verdicts import Finding, Level
from trainbench.planning.nodes import GpuNode
from trainbench.results.setups import gpu_uuids

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
    of_nodes = grouped((r.spec.identity.node, gpu_uuids(r)) for r in results if r.spec.placement.nodes == 1)
    for node, of_runs in of_nodes.items():
        apart: list[frozenset[str]] = []  # the sets of GPUs, of which none has one in common with another
        for uuids in filter(None, of_runs):
            touching = [other for other in apart if other & uuids]
            apart = [other for other in apart if other not in touching] + [uuids.union(*touching)]
        if len(apart) < 2 or len(frozenset[str]().union(*apart)) <= capacity.get(node, 0):
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
