"""One number for all GPUs of a run; None where no GPU reported it."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from bench_image.contract.result import RunResult, Status
from bench_image.contract.result_sections import GpuTelemetry


def is_measured(result: RunResult) -> bool:
    """Whether its throughput counts: it ended well and was no drill. A run that failed after its first window (NaN
    loss, SIGTERM, time-out) has a rate too, of work that was not done.
    """
    return result.status is Status.OK and result.spec.drill is None


def temperature_mean_c(result: RunResult) -> float | None:
    """Mean of the hottest GPU."""
    return max(_known(result, lambda gpu: gpu.temperature_mean_c), default=None)


def temperature_max_c(result: RunResult) -> float | None:
    return max(_known(result, lambda gpu: gpu.temperature_max_c), default=None)


def power_mean_w(result: RunResult) -> float | None:
    """All GPUs together; None unless each of them reported."""
    watts = list(_known(result, lambda gpu: gpu.power_mean_w))
    return sum(watts) if watts and len(watts) == len(result.telemetry.gpus) else None


def sm_clock_mean_mhz(result: RunResult) -> float | None:
    """Of the slowest GPU."""
    return min(_known(result, lambda gpu: gpu.sm_clock_mean_mhz), default=None)


def sm_clock_min_mhz(result: RunResult) -> float | None:
    """Lowest single reading, of all GPUs."""
    return min(_known(result, lambda gpu: gpu.sm_clock_min_mhz), default=None)


def utilisation_mean_pct(result: RunResult) -> float | None:
    """Of the least used GPU."""
    return min(_known(result, lambda gpu: gpu.utilisation_mean_pct), default=None)


def throttle_pct(result: RunResult, reason: str) -> float | None:
    """Share of samples in which `reason` (thermal, power_cap, ...) was active, on the GPU where it is largest."""
    return max(_known(result, lambda gpu: (gpu.throttle_share_pct or {}).get(reason)), default=None)


def peak_reserved_gb(result: RunResult) -> float | None:
    """Most bytes that torch's allocator held, in 1e9 bytes."""
    reserved = result.memory.peak_reserved_bytes
    return None if reserved is None else reserved / 1e9


def startup_s(result: RunResult) -> float | None:
    """Process start to the end of the run, without the measured windows."""
    total_s, measure_s = result.startup.total_s, result.startup.measure_s
    return None if total_s is None or measure_s is None else total_s - measure_s


def gpu_name(result: RunResult) -> str | None:
    return result.context.gpus[0].name if result.context and result.context.gpus else None


def _known(result: RunResult, value: Callable[[GpuTelemetry], float | None]) -> Iterator[float]:
    return (number for gpu in result.telemetry.gpus if (number := value(gpu)) is not None)
