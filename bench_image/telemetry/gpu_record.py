"""NVML readings of one GPU during the measured windows, and their summary."""

from __future__ import annotations

import os
import statistics
from collections import defaultdict
from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any

import psutil

from bench_image.contract.parse import implausible_reason
from bench_image.contract.result_sections import GpuTelemetry
from bench_image.telemetry import nvml as nvml_api

# NVML's clocks-event bits by class. Idle (0x1) and display clocks (0x100) are left out: they do not slow training.
THROTTLE_BITS = {
    "thermal": 0x20 | 0x40,
    "power_cap": 0x4,
    "power_brake": 0x80,
    "hw_slowdown": 0x8,
    "sync_boost": 0x10,
    "user_clocks": 0x2,
}

Reading = Callable[[Any, Any], Any]


class GpuRecord:
    """Collects the readings of one GPU. A failed reading is skipped and its reason kept; the others continue."""

    def __init__(self, nvml: Any, index: int, uuid: str) -> None:
        self._nvml = nvml
        self._index = index
        self._uuid = uuid
        self._num_samples = 0
        self._values: dict[str, list[Any]] = defaultdict(list)
        self._reasons: dict[str, str] = {}
        self._energy_before_mj: int | None = None
        self._before: tuple[int, dict[str, int]] = (0, {})  # numbers of samples and values before this window

    def open_window(self) -> None:
        self._before = self._num_samples, {name: len(values) for name, values in self._values.items()}
        self._energy_before_mj = self._read("energy_mj", _energy_mj)

    def forget_window(self) -> None:
        self._num_samples, before = self._before
        for name, values in self._values.items():
            del values[before.get(name, 0) :]

    def sample(self) -> None:
        self._num_samples += 1
        self._keep(_UNDER_LOAD)

    def close_window(self) -> None:
        before, after = self._energy_before_mj, self._read("energy_mj", _energy_mj)
        if before is not None and after is not None:
            self._values["energy_mj"].append(after - before)
        self._keep(_AT_WINDOW_END)

    def glance(self) -> tuple[float | None, float | None]:
        """(utilisation in percent, temperature in degrees C) now; not recorded."""
        reasons = dict(self._reasons)  # a failed glance must not add a reason
        seen = tuple(self._read(name, _UNDER_LOAD[name]) for name in ("utilisation_pct", "temperature_c"))
        self._reasons = reasons
        return seen[0], seen[1]

    def summary(self, missing: dict[str, str]) -> GpuTelemetry:
        """The summary over all windows. Adds a reason for each null field to `missing`."""
        if "energy_mj" in self._reasons:
            self._values["energy_mj"].clear()  # energy of some windows only is not the run's energy
        fields: dict[str, Any] = {}
        for field, (reading, combine) in _FIELDS.items():
            values = self._values[reading]
            fields[field] = combine(values) if values else None
            if not values:
                missing[f"gpus.{self._index}.{field}"] = self._reasons.get(reading, "no measured window")
            elif reason := implausible_reason(GpuTelemetry, field, fields[field]):
                fields[field] = None
                missing[f"gpus.{self._index}.{field}"] = f"the driver returned an impossible value: {reason}"
        return GpuTelemetry(index=self._index, uuid=self._uuid, num_samples=self._num_samples, **fields)

    @cached_property
    def _gpu(self) -> Any:
        return self._nvml.nvmlDeviceGetHandleByUUID(self._uuid)

    def _keep(self, readings: dict[str, Reading]) -> None:
        for name, reading in readings.items():
            value = self._read(name, reading)
            if value is not None:
                self._values[name].append(value)

    def _read(self, name: str, reading: Reading) -> Any:
        try:
            return nvml_api.query(lambda: reading(self._nvml, self._gpu))
        except nvml_api.NvmlError as error:
            self._reasons[name] = str(error)
            return None


def throttle_shares(bits: Sequence[int]) -> dict[str, float]:
    """Throttle class -> percent of the samples whose clocks-event bits have it set."""
    return {name: 100 * sum(bool(sample & mask) for sample in bits) / len(bits) for name, mask in THROTTLE_BITS.items()}


def _energy_mj(nvml: Any, gpu: Any) -> int:
    return int(nvml.nvmlDeviceGetTotalEnergyConsumption(gpu))


def _clocks_event_bits(nvml: Any, gpu: Any) -> int:
    try:
        return int(nvml.nvmlDeviceGetCurrentClocksEventReasons(gpu))
    except nvml.NVMLError:  # drivers before 535 have only the older name
        return int(nvml.nvmlDeviceGetCurrentClocksThrottleReasons(gpu))


def _ecc_errors(nvml: Any, gpu: Any, kind: int) -> int:
    return int(nvml.nvmlDeviceGetTotalEccErrors(gpu, kind, nvml.NVML_VOLATILE_ECC))


def _num_other_processes(nvml: Any, gpu: Any) -> int:
    """The number of processes on the GPU that do not belong to this run. Raises NvmlError where that is unknown."""
    listed = {process.pid for process in nvml.nvmlDeviceGetComputeRunningProcesses(gpu)}
    launcher = psutil.Process(os.getppid() or os.getpid())  # the process that started the ranks
    ours = {launcher.pid, os.getpid(), *(child.pid for child in launcher.children(recursive=True))}
    if not listed & ours:
        # The run itself uses the GPU. If it is not listed, NVML reports the pids of another namespace.
        raise nvml_api.NvmlError("NVML lists no process of this run: its pids are not those of this container")
    return len(listed - ours)


# Sampled within the windows, because an idle GPU lowers its clocks and its PCIe generation.
_UNDER_LOAD: dict[str, Reading] = {
    "utilisation_pct": lambda nvml, gpu: nvml.nvmlDeviceGetUtilizationRates(gpu).gpu,
    "temperature_c": lambda nvml, gpu: nvml.nvmlDeviceGetTemperature(gpu, nvml.NVML_TEMPERATURE_GPU),
    "power_mw": lambda nvml, gpu: nvml.nvmlDeviceGetPowerUsage(gpu),
    "sm_clock_mhz": lambda nvml, gpu: nvml.nvmlDeviceGetClockInfo(gpu, nvml.NVML_CLOCK_SM),
    "clocks_event_bits": _clocks_event_bits,
    "pcie_generation": lambda nvml, gpu: nvml.nvmlDeviceGetCurrPcieLinkGeneration(gpu),
    "pcie_width": lambda nvml, gpu: nvml.nvmlDeviceGetCurrPcieLinkWidth(gpu),
}

_AT_WINDOW_END: dict[str, Reading] = {
    "ecc_corrected": lambda nvml, gpu: _ecc_errors(nvml, gpu, nvml.NVML_MEMORY_ERROR_TYPE_CORRECTED),
    "ecc_uncorrected": lambda nvml, gpu: _ecc_errors(nvml, gpu, nvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED),
    "remapped_rows": lambda nvml, gpu: sum(nvml.nvmlDeviceGetRemappedRows(gpu)[:2]),  # corrected and uncorrected
    "other_processes": _num_other_processes,
}

# Field of GpuTelemetry -> its reading, and how the values are combined. ECC errors count from when the driver was
# loaded. A PCIe link reads lower when idle between copies, so the largest reading is its real generation and width.
_FIELDS: dict[str, tuple[str, Callable[[list[Any]], Any]]] = {
    "utilisation_mean_pct": ("utilisation_pct", statistics.fmean),
    "temperature_mean_c": ("temperature_c", statistics.fmean),
    "temperature_max_c": ("temperature_c", max),
    "power_mean_w": ("power_mw", lambda milliwatts: statistics.fmean(milliwatts) / 1000),
    "sm_clock_mean_mhz": ("sm_clock_mhz", statistics.fmean),
    "sm_clock_min_mhz": ("sm_clock_mhz", min),
    "throttle_share_pct": ("clocks_event_bits", throttle_shares),
    "energy_j": ("energy_mj", lambda millijoules: sum(millijoules) / 1000),
    "ecc_corrected": ("ecc_corrected", max),
    "ecc_uncorrected": ("ecc_uncorrected", max),
    "remapped_rows": ("remapped_rows", max),
    "pcie_generation": ("pcie_generation", max),
    "pcie_width": ("pcie_width", max),
    "num_other_processes": ("other_processes", max),
}
