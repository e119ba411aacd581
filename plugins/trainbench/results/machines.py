"""Which runs ran on one machine: by node name and by GPU UUID, for a name alone may be given to several machines."""

from __future__ import annotations

from collections.abc import Sequence

from bench_image.contract.result import RunResult


def gpu_uuids(result: RunResult) -> frozenset[str]:
    """Of all GPUs of all nodes of the run; empty where not every one was reported."""
    own = [gpu.uuid for gpu in result.context.gpus] if result.context else []
    known = frozenset(filter(None, (*own, *(rank.gpu_uuid for rank in result.ranks))))
    return known if len(known) >= result.spec.placement.world_size else frozenset()


class Machines:
    """The machines that `results` ran on. GPUs that one run on a single node used together belong to one machine."""

    def __init__(self, results: Sequence[RunResult]) -> None:
        self._parents: dict[str, str] = {}
        for result in results:
            if result.spec.placement.nodes == 1 and (uuids := sorted(gpu_uuids(result))):
                for uuid in uuids:
                    self._parents[self._root(uuid)] = self._root(uuids[0])

    def share(self, one: RunResult, other: RunResult) -> bool:
        """Whether a machine was used by both. Node names decide only where the GPUs of one are not known."""
        mine, its = ({self._root(uuid) for uuid in gpu_uuids(run)} for run in (one, other))
        if mine and its:
            return not mine.isdisjoint(its)
        return not nodes_of(one).isdisjoint(nodes_of(other))

    def _root(self, uuid: str) -> str:
        parent = self._parents.setdefault(uuid, uuid)
        while parent != self._parents[parent]:
            parent = self._parents[parent]
        self._parents[uuid] = parent
        return parent


def nodes_of(result: RunResult) -> frozenset[str]:
    return frozenset((result.spec.identity.node, *result.spec.identity.peers))
