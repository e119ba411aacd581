"""Identifies runs of one machine by node name and GPU UUID, since several machines may share a name."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from bench_image.contract.result import RunResult


def gpu_uuids(result: RunResult) -> frozenset[str]:
    """UUIDs of all GPUs of the run; empty where one was not reported."""
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

    def beside(self, runs: Iterable[RunResult]) -> Callable[[RunResult], list[RunResult]]:
        """A function from a run to those of `runs` on one of its machines. Node names decide only where the GPUs of
        either are unknown. An index avoids comparing each pair of a fleet's runs.
        """
        by_machine: dict[str, list[RunResult]] = {}
        by_node: dict[str, list[tuple[RunResult, bool]]] = {}
        for run in runs:
            machines = self._machines(run)
            for machine in machines:
                by_machine.setdefault(machine, []).append(run)
            for node in nodes_of(run):
                by_node.setdefault(node, []).append((run, bool(machines)))

        def of(result: RunResult) -> list[RunResult]:
            own = self._machines(result)
            same = {id(run): run for machine in own for run in by_machine.get(machine, ())}
            for node in nodes_of(result):
                same |= {id(run): run for run, is_known in by_node.get(node, ()) if not (own and is_known)}
            return list(same.values())

        return of

    def _machines(self, result: RunResult) -> frozenset[str]:
        """The run's machines, each as the UUID of one GPU; empty where the GPUs are unknown."""
        return frozenset(map(self._root, gpu_uuids(result)))

    def _root(self, uuid: str) -> str:
        parent = self._parents.setdefault(uuid, uuid)
        while parent != self._parents[parent]:
            parent = self._parents[parent]
        self._parents[uuid] = parent
        return parent


def nodes_of(result: RunResult) -> frozenset[str]:
    return frozenset((result.spec.identity.node, *result.spec.identity.peers))
