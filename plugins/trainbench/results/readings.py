"""Figures over all GPUs of a run, None where no GPU reported the figure; and whether others used them meanwhile, for
then its speed says nothing about the machine.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from bench_image.contract.gpu_specs import peak_tflops
from bench_image.contract.options import Precision
from bench_image.contract.result import RunResult, Status
from bench_image.contract.result_sections import OTHERS_MEMORY_GB, GpuTelemetry
from bench_image.contract.spec import RunSpec
from bench_image.contract.work import Device
from trainbench.core.formats import count, figure, listing
from trainbench.core.grouping import grouped
from trainbench.core.known_values import known_max, known_sum
from trainbench.pods.gangs import failed_rank, is_refusal
from trainbench.pods.pod_end import NOT_FREE


def is_measured(result: RunResult) -> bool:
    """Whether the run's throughput counts: it ended well and was no drill. A run that failed after its first window
    (NaN loss, SIGTERM, time-out) has a rate too, of unfinished work.
    """
    return result.status is Status.OK and result.spec.drill is None


def impossible_works(results: Iterable[RunResult]) -> Mapping[str, Sequence[RunResult]]:
    """Group id -> its refused runs, of each work that the program refused on every node before it used a GPU: the model
    cannot be built, its weights cannot be read, the command is not there. Then the campaign is at fault, and no node. A
    gang that one of its nodes refused is no such work.
    """
    ran = [run for run in results if not (run.error and run.error.kind in NOT_FREE)]
    works = grouped((run.spec.identity.group_id, run) for run in ran)
    return {group_id: runs for group_id, runs in works.items() if all(map(_is_refused, runs))}


def _is_refused(run: RunResult) -> bool:
    return run.error is not None and is_refusal(run.error) and failed_rank(run) is None


def mfu_bf16_pct(result: RunResult) -> float | None:
    """MFU in percent of the GPU's bf16 peak whatever the precision, so that precisions can be compared."""
    name, precision = gpu_name(result), result.spec.work.precision
    own, bf16 = (peak_tflops(name, each) if name else None for each in (precision, Precision.BF16))
    mfu_pct = result.performance.mfu_pct
    return mfu_pct * own / bf16 if mfu_pct is not None and own and bf16 else None


def throttle_pct(result: RunResult, reason: str) -> float | None:
    """Share of samples in which `reason` (thermal, power_cap, ...) was active, on the GPU where it is largest."""
    return known_max((gpu.throttle_share_pct or {}).get(reason) for gpu in result.telemetry.gpus)


def num_xids(result: RunResult) -> float | None:
    """Events of all codes on all GPUs; None where the driver tells of none."""
    return known_sum(None if gpu.xids is None else sum(gpu.xids.values()) for gpu in result.telemetry.gpus)


def other_memory_gb(result: RunResult) -> float | None:
    """Memory that others held on a GPU when the run began or when it had ended, on the GPU where it was largest."""
    gpus = result.telemetry.gpus
    return known_max(gb for gpu in gpus for gb in (gpu.other_memory_at_start_gb, gpu.other_memory_at_end_gb))


def peak_reserved_gb(result: RunResult) -> float | None:
    """Peak of the bytes reserved by torch's allocator, in 1e9 bytes."""
    reserved = result.memory.peak_reserved_bytes
    return None if reserved is None else reserved / 1e9


def startup_s(result: RunResult) -> float | None:
    """Seconds from process start to the end of the run, without the measured windows and other pods' turns."""
    total_s, measure_s, turns_s = result.startup.total_s, result.startup.measure_s, result.startup.turns_s
    return None if total_s is None or measure_s is None else total_s - measure_s - (turns_s or 0.0)


def gpu_name(result: RunResult) -> str | None:
    """NVML's name of the run's GPUs, "A + B" of two kinds; None on the CPU and for runs that failed early."""
    names = {gpu.name for gpu in result.context.gpus} if result.context else set()
    return " + ".join(sorted(names)) or None


def rank_noun(results: Iterable[RunResult]) -> str:
    """The noun for a rank of these runs: "process" where all ran on a CPU, else "GPU"."""
    devices = {result.spec.work.device for result in results}
    return (Device.CPU if devices == {Device.CPU} else Device.CUDA).rank_noun


ON_CPU = "CPU"


def hardware_name(spec: RunSpec, gpu_name: str | None) -> str:
    """ "CPU", the GPU's name, or "GPU unknown"."""
    return ON_CPU if spec.work.device is Device.CPU else gpu_name or "GPU unknown"


class SharedGpu(NamedTuple):
    """`num_processes`: of others, the most on one GPU; None: a container sees none but its own. `memory_gb`: of others
    at the run's start or end, the most on one GPU; None: not known. `gpus`: the indices of the shared ones.
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
    return shared_gpus(result.telemetry.gpus)


def shared_gpus(gpus: Iterable[GpuTelemetry]) -> SharedGpu | None:
    seen = [
        (
            gpu.index,
            known_max((gpu.num_other_processes, gpu.other_processes_at_start)),
            known_max((gpu.other_memory_at_start_gb, gpu.other_memory_at_end_gb)),
        )
        for gpu in gpus
    ]
    shared = [each for each in seen if each[1] or (each[2] or 0.0) > OTHERS_MEMORY_GB]
    if not shared:
        return None
    most = known_max(processes for _, processes, _ in shared)
    return SharedGpu(
        num_processes=None if most is None else int(most),
        memory_gb=known_max(memory_gb for _, _, memory_gb in shared),
        gpus=tuple(dict.fromkeys(index for index, _, _ in shared)),
    )
