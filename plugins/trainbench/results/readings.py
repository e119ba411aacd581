"""What a run says as one number, for all its GPUs together. None when no GPU reported it."""

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


def utilisation_mean_pct(result: RunResult) -> float | None:
    """Of the least used GPU."""
    return min(_known(result, lambda gpu: gpu.utilisation_mean_pct), default=None)


def throttle_pct(result: RunResult, reason: str) -> float | None:
    """Share of samples in which `reason` (thermal, power_cap, ...) was active, on the GPU where it is largest."""
    return max(_known(result, lambda gpu: (gpu.throttle_share_pct or {}).get(reason)), default=None)


def exposed_communication_pct(result: RunResult) -> float | None:
    """Share of the profiled steps' time in which communication was waited for."""
    return result.communication.exposed_pct


def gpu_name(result: RunResult) -> str | None:
    return result.context.gpus[0].name if result.context and result.context.gpus else None


def _known(result: RunResult, value: Callable[[GpuTelemetry], float | None]) -> Iterator[float]:
    return (number for gpu in result.telemetry.gpus if (number := value(gpu)) is not None)
