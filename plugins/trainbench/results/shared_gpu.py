"""Whether others used a run's GPUs: then its speed says nothing about the machine."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from bench_image.contract.result import RunResult
from bench_image.contract.shared_gpus import OTHERS_MEMORY_GB
from trainbench.core.formats import count, figure, listing
from trainbench.core.known_values import known_max


class SharedGpu(NamedTuple):
    """`num_processes`: of others, the most on one GPU; None: a container sees none but its own. `memory_gb`: of others
    at the run's start or end, the most on one GPU; None: not known. `gpus`: the positions of the shared ones.
    """

    num_processes: int | None
    memory_gb: float | None
    gpus: tuple[int, ...]

    @property
    def size(self) -> tuple[int, float]:
        return self.num_processes or 0, self.memory_gb or 0.0

    @property
    def sentence(self) -> str:
        """ "1 other process, 41.3 GB in use beside the run on GPU 0"."""
        parts = []
        if self.num_processes:
            parts.append(count(self.num_processes, "other process"))
        if self.memory_gb:
            parts.append(f"{figure(self.memory_gb, 3)} GB in use beside the run")
        gpus = "GPU" if len(self.gpus) == 1 else "GPUs"
        return f"{', '.join(parts)} on {gpus} {listing(map(str, self.gpus))}"


def shared_by(result: RunResult) -> SharedGpu | None:
    """Who else used the run's GPUs: another process at its start or in its windows, or memory in use before its first
    process began or after its last had ended. None: nobody, as far as is known (a MIG slice is nobody else's).
    """
    seen = [
        (
            position,
            known_max((gpu.num_other_processes, gpu.other_processes_at_start)),
            known_max((gpu.other_memory_at_start_gb, gpu.other_memory_at_end_gb)),
        )
        for position, gpu in enumerate(result.telemetry.gpus)
    ]
    shared = [each for each in seen if each[1] or (each[2] or 0.0) > OTHERS_MEMORY_GB]
    if not shared:
        return None
    most = known_max(processes for _, processes, _ in shared)
    return SharedGpu(
        num_processes=None if most is None else int(most),
        memory_gb=known_max(memory_gb for _, _, memory_gb in shared),
        gpus=tuple(position for position, _, _ in shared),
    )


def most_shared(runs: Iterable[RunResult]) -> SharedGpu | None:
    """Of the run that shared its GPU with the most processes, or with the most memory of others."""
    return max((shared for run in runs if (shared := shared_by(run))), key=lambda shared: shared.size, default=None)
