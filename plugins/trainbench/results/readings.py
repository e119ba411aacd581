"""Figures over all GPUs of a run; None where no GPU reported the figure."""

from __future__ import annotations

from collections.abc import Iterable

from bench_image.contract.gpu_specs import peak_tflops
from bench_image.contract.options import Precision
from bench_image.contract.result import RunResult, Status
from bench_image.contract.spec import RunSpec
from bench_image.contract.work import Device
from trainbench.core.known_values import known_max, known_sum


def is_measured(result: RunResult) -> bool:
    """Whether the run's throughput counts: it ended well and was no drill. A run that failed after its first window
    (NaN loss, SIGTERM, time-out) has a rate too, of unfinished work.
    """
    return result.status is Status.OK and result.spec.drill is None


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
    return result.context.gpus[0].name if result.context and result.context.gpus else None


def rank_noun(results: Iterable[RunResult]) -> str:
    """The noun for a rank of these runs: "process" where all ran on a CPU, else "GPU"."""
    devices = {result.spec.work.device for result in results}
    return (Device.CPU if devices == {Device.CPU} else Device.CUDA).rank_noun


def hardware_name(spec: RunSpec, gpu_name: str | None) -> str:
    """ "CPU", the GPU's name, or "GPU unknown"."""
    return "CPU" if spec.work.device is Device.CPU else gpu_name or "GPU unknown"
