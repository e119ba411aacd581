"""Which runs ran on one machine: by node name and by GPU UUID, for a name alone may be given to several machines."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

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

    def beside(self, runs: Iterable[RunResult]) -> Callable[[RunResult], list[RunResult]]:
        """A run -> those of `runs` that used a machine of its own. Node names decide only where the GPUs of one of
        the two are not known. Indexed, so that a fleet's runs are not compared each with each.
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
        """By one GPU of each; empty where its GPUs are not known."""
        return frozenset(map(self._root, gpu_uuids(result)))

    def _root(self, uuid: str) -> str:
        parent = self._parents.setdefault(uuid, uuid)
        while parent != self._parents[parent]:
            parent = self._parents[parent]
        self._parents[uuid] = parent
        return parent


def nodes_of(result: RunResult) -> frozenset[str]:
    return frozenset((result.spec.identity.node, *result.spec.identity.peers))
