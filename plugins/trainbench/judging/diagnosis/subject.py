"""The subject of a diagnosis: a node or one GPU of it, with its runs and those of its peers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from bench_image.contract.result import RunResult, Status
from trainbench.core.verdicts import RED, GroupVerdict, NodeVerdict
from trainbench.judging import gpu_runs
from trainbench.judging.node_runs import GpuPlace, Key, choice_of, gpu_name
from trainbench.judging.peers.gpu_verdicts import badness

MAX_GPUS = 3  # of a node that get a finding each; the node's reason counts the others
MAX_PEERS = 100  # peers' runs to compare with: their median needs no more


class NodeContext(NamedTuple):
    """A node's group, the group's runs, and what the cluster reports of the node."""

    group: GroupVerdict
    runs: Sequence[RunResult]
    troubles: Sequence[str]


def by_gpu(node: NodeVerdict) -> Sequence[NodeVerdict]:
    """The node, or each of its GPUs in the node's state, the worst first, as a node of one GPU."""
    bad = [gpu for gpu in node.gpus if gpu.state is node.state]
    return [
        node.model_copy(
            update={
                "metrics": gpu.metrics,
                "reason": f"{gpu.name}: {gpu.reason}",
                "num_runs": gpu.num_runs,
                "confirmation": gpu.confirmation,
                "confirm_deviation_pct": gpu.confirm_deviation_pct,
                "is_unsteady": gpu.is_unsteady,
                "unsteady_factor": gpu.unsteady_factor,
                "gpus": (gpu,),
            }
        )
        for gpu in sorted(bad, key=badness)[:MAX_GPUS]
    ] or [node]


def runs_beside(node: NodeVerdict, scene: NodeContext) -> tuple[list[RunResult], list[RunResult]]:
    """The valid runs of the node and of its peers. Drilled peers are left out; red ones too, while others are left."""
    group = scene.group
    place = GpuPlace(node.gpus[0].index, node.gpus[0].uuid) if node.gpus else None
    own_key = Key(node.node, place)
    valid = [
        (key, run)
        for key, run in _judged_runs(scene.runs)
        if run.status is Status.OK and gpu_name(run) == group.gpu_name and group.choice in (None, choice_of(run))
    ]
    red = {Key(other.node) for other in group.nodes if other.state in RED and not other.gpus}
    red |= {Key(n.node, GpuPlace(gpu.index, gpu.uuid)) for n in group.nodes for gpu in n.gpus if gpu.state in RED}
    peers = [(key, run) for key, run in valid if key != own_key and not run.spec.drill]
    peers = [(key, run) for key, run in peers if key.node != node.node] or peers
    healthy = [run for key, run in peers if key not in red] or [run for _, run in peers]
    return [run for key, run in valid if key == own_key], healthy[:: max(len(healthy) // MAX_PEERS, 1)]


def _judged_runs(runs: Sequence[RunResult]) -> list[tuple[Key, RunResult]]:
    """Each run with its subject: its node, or each GPU with its part of the run."""
    judged: list[tuple[Key, RunResult]] = []
    for run in runs:
        parts = gpu_runs.by_gpu(run)
        judged += [(Key(run.spec.identity.node, place), part) for place, part in parts.items()] or [
            (Key(run.spec.identity.node), run)
        ]
    return judged
