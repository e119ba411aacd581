"""The machine of a run: which one it is, by the UUIDs of its GPUs, since several may share a name; and its setup:
versions of driver, image, kernel, VBIOS and libraries, power limit and pod template.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from bench_image.contract.frozen import Frozen
from bench_image.contract.result import RunResult
from bench_image.contract.result_sections import Context
from trainbench.core.grouping import grouped


class Setup(Frozen):
    """The setup of a run. None: not recorded; that is never a change."""

    driver: str | None = None
    image: str | None = None
    kernel: str | None = None
    vbios: str | None = None
    power_limit_w: float | None = None  # the lowest of the GPUs'
    libraries: Mapping[str, str] | None = None  # torch is one of them
    gpu_uuids: frozenset[str] = frozenset()
    pod_template: str | None = None  # its digest; "none": without one


def setup_of(context: Context | None) -> Setup:
    if context is None:
        return Setup()
    limits = [gpu.power_limit_w for gpu in context.gpus if gpu.power_limit_w is not None]
    return Setup(
        driver=context.driver,
        image=context.image,
        kernel=context.kernel,
        vbios=" + ".join(sorted({gpu.vbios for gpu in context.gpus if gpu.vbios})) or None,
        power_limit_w=min(limits, default=None),
        libraries=context.libraries,
        gpu_uuids=frozenset(gpu.uuid for gpu in context.gpus if gpu.uuid),
        pod_template=context.pod_template,
    )


def versions(setup: Setup) -> dict[str, str]:
    """Name -> value of each known version and limit, without the GPUs' UUIDs."""
    own: dict[str, str | None] = {
        "driver": setup.driver,
        "image": setup.image,
        "kernel": setup.kernel,
        "VBIOS": setup.vbios,
        "power limit": None if setup.power_limit_w is None else f"{setup.power_limit_w:g} W",
        "pod template": setup.pod_template,
    }
    return {name: value for name, value in own.items() if value is not None} | dict(setup.libraries or {})


def change_phrases(before: Sequence[Setup], after: Setup) -> tuple[str, ...]:
    """Phrases on the changes: "the driver went from 575.1 to 580.95". `before`: newest last; of each item the last
    recorded value counts, so that a run without it hides no change.
    """
    known: dict[str, str] = {}
    for setup in before:
        known |= versions(setup)
    now = versions(after)
    return tuple(
        f"{'' if name in (after.libraries or ()) else 'the '}{name} went from {was} to {now[name]}"
        for name, was in known.items()
        if now.get(name, was) != was
    )


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

    @property
    def gpus(self) -> list[frozenset[str]]:
        """The GPUs of each machine."""
        return [*map(frozenset, grouped((self._root(uuid), uuid) for uuid in [*self._parents]).values())]

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
            for node in run.spec.identity.nodes:
                by_node.setdefault(node, []).append((run, bool(machines)))

        def of(result: RunResult) -> list[RunResult]:
            own = self._machines(result)
            same = {id(run): run for machine in own for run in by_machine.get(machine, ())}
            for node in result.spec.identity.nodes:
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
