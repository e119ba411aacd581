"""Samples GPUs and the host during the measured windows, in a thread that sleeps between them: CPU and memory use of
the whole machine, so that busy neighbours show, and what NVML says of each GPU.
"""

from __future__ import annotations

import contextlib
import os
import statistics
import threading
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import Any

import psutil

from bench_image.contract.result_sections import GpuTelemetry, HostTelemetry
from bench_image.contract.work import Device
from bench_image.telemetry import nvml as nvml_api
from bench_image.telemetry.unmeasured_gpus import TorchGpu, unmeasurable_reason

# NVML's clocks-event bits by class. Idle (0x1) and display clocks (0x100) are left out: they do not slow training.
THROTTLE_BITS = {
    "thermal": 0x20 | 0x40,
    "power_cap": 0x4,
    "power_brake": 0x80,
    "hw_slowdown": 0x8,
    "sync_boost": 0x10,
    "user_clocks": 0x2,
}


class GpuRecord:
    """Collects the readings of one GPU. A failed reading is skipped and its reason kept; the others continue."""

    def __init__(self, nvml: Any, index: int, uuid: str) -> None:
        self._nvml = nvml
        self._index = index
        self._uuid = uuid
        self._values: dict[str, list[Any]] = defaultdict(list)  # of all windows
        self._window: dict[str, list[Any]] = defaultdict(list)
        self._reasons: dict[str, str] = {}
        self._energy_before_mj: int | None = None

    def open_window(self) -> None:
        self._window = defaultdict(list)
        self._energy_before_mj = self._read(_ENERGY).get("energy_mj")

    def sample(self) -> None:
        self._window["sampled"].append(True)
        self._keep(_UNDER_LOAD)

    def close_window(self) -> None:
        before, after = self._energy_before_mj, self._read(_ENERGY).get("energy_mj")
        if before is not None and after is not None:
            self._window["energy_mj"].append(after - before)
        self._keep(_AT_WINDOW_END)
        for name, values in self._window.items():
            self._values[name] += values

    def glance(self) -> tuple[float | None, float | None]:
        """(utilisation in percent, temperature in degrees C) now; not recorded."""
        names = ("utilisation_pct", "temperature_c")
        seen, _ = nvml_api.read_each({name: _UNDER_LOAD[name] for name in names}, self._nvml, lambda: self._gpu)
        return seen.get(names[0]), seen.get(names[1])

    def summary(self, missing: dict[str, str]) -> GpuTelemetry:
        """The summary over all windows. Adds a reason for each null field to `missing`."""
        if "energy_mj" in self._reasons:
            self._values["energy_mj"].clear()  # energy of some windows only is not the run's energy
        fields: dict[str, Any] = {}
        reasons: dict[str, str] = {}
        for field, (reading, combine) in _FIELDS.items():
            values = self._values[reading]
            fields[field] = combine(values) if values else None
            if not values:
                reasons[field] = self._reasons.get(reading, "no measured window")
        nvml_api.drop_impossible(GpuTelemetry, fields, reasons)
        missing |= {f"gpus.{self._index}.{field}": reason for field, reason in reasons.items()}
        num_samples = len(self._values["sampled"])
        return GpuTelemetry(index=self._index, uuid=self._uuid, num_samples=num_samples, **fields)

    @cached_property
    def _gpu(self) -> Any:
        return self._nvml.nvmlDeviceGetHandleByUUID(self._uuid)

    def _keep(self, readings: Mapping[str, nvml_api.Reading]) -> None:
        for name, value in self._read(readings).items():
            self._window[name].append(value)

    def _read(self, readings: Mapping[str, nvml_api.Reading]) -> dict[str, Any]:
        values, reasons = nvml_api.read_each(readings, self._nvml, lambda: self._gpu)
        self._reasons |= reasons
        return values


def throttle_shares(bits: Sequence[int]) -> dict[str, float]:
    """Throttle class -> percent of the samples whose clocks-event bits have it set."""
    return {name: 100 * sum(bool(sample & mask) for sample in bits) / len(bits) for name, mask in THROTTLE_BITS.items()}


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


_ENERGY: dict[str, nvml_api.Reading] = {
    "energy_mj": lambda nvml, gpu: int(nvml.nvmlDeviceGetTotalEnergyConsumption(gpu))
}

# Sampled within the windows, because an idle GPU lowers its clocks and its PCIe generation.
_UNDER_LOAD: dict[str, nvml_api.Reading] = {
    "utilisation_pct": lambda nvml, gpu: nvml.nvmlDeviceGetUtilizationRates(gpu).gpu,
    "temperature_c": lambda nvml, gpu: nvml.nvmlDeviceGetTemperature(gpu, nvml.NVML_TEMPERATURE_GPU),
    "power_mw": lambda nvml, gpu: nvml.nvmlDeviceGetPowerUsage(gpu),
    "sm_clock_mhz": lambda nvml, gpu: nvml.nvmlDeviceGetClockInfo(gpu, nvml.NVML_CLOCK_SM),
    "clocks_event_bits": _clocks_event_bits,
    "pcie_generation": lambda nvml, gpu: nvml.nvmlDeviceGetCurrPcieLinkGeneration(gpu),
    "pcie_width": lambda nvml, gpu: nvml.nvmlDeviceGetCurrPcieLinkWidth(gpu),
}

_AT_WINDOW_END: dict[str, nvml_api.Reading] = {
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


def cpu_times(times: Any = None) -> dict[str, float]:
    """Seconds over all CPUs since boot by psutil: `total`, `idle` and, where the platform counts it, `steal`.

    Guest time is left out, because Linux counts it in user time; I/O wait is idle time.
    """
    times = times or psutil.cpu_times()
    counted = {name: value for name, value in times._asdict().items() if not name.startswith("guest")}
    idle = counted["idle"] + counted.get("iowait", 0.0)
    steal = {"steal": counted["steal"]} if "steal" in counted else {}
    return {"total": sum(counted.values()), "idle": idle, **steal}


class HostRecord:
    """Collects figures of the whole machine, also from inside a container, so that busy neighbours show."""

    def __init__(self) -> None:
        self._before: dict[str, float] = {}
        self._seconds: list[dict[str, float]] = []  # of each window
        self._memory_pct: list[float] = []  # of all windows
        self._memory_of_window: list[float] = []

    def open_window(self) -> None:
        self._memory_of_window = []
        self._before = self._cpu_times()

    def sample(self) -> None:
        with contextlib.suppress(OSError, psutil.Error):
            self._memory_of_window.append(float(psutil.virtual_memory().percent))

    def close_window(self) -> None:
        if self._before and (now := self._cpu_times()):
            self._seconds.append({name: seconds - self._before[name] for name, seconds in now.items()})
        self._memory_pct += self._memory_of_window

    def summary(self, missing: dict[str, str]) -> HostTelemetry:
        """The summary over all windows. Adds a reason for each null field to `missing`."""
        total_s = sum(window["total"] for window in self._seconds)
        idle_s = sum(window["idle"] for window in self._seconds)
        steals = [window["steal"] for window in self._seconds if "steal" in window]
        fields = {
            "cpu_utilisation_mean_pct": 100 * (1 - idle_s / total_s) if total_s > 0 else None,
            "cpu_steal_pct": 100 * sum(steals) / total_s if total_s > 0 and steals else None,
            "memory_used_pct": statistics.fmean(self._memory_pct) if self._memory_pct else None,
        }
        unknown = [name for name, value in fields.items() if value is None]
        reasons = dict.fromkeys(unknown, "no measured window, or the platform does not report it")
        nvml_api.drop_impossible(HostTelemetry, fields, reasons, "system")
        missing |= {f"host.{name}": reason for name, reason in reasons.items()}
        return HostTelemetry(**fields)

    def _cpu_times(self) -> dict[str, float]:
        """Empty where they cannot be read."""
        try:
            return cpu_times()
        except (OSError, psutil.Error):
            return {}


class Sampler:
    """Samples between `resume` and `pause`, every `interval_s`, and at least once per window.

    Never raises: `stop` returns None, with a reason, for what cannot be read. `GpuTelemetry.index` is the position in
    `torch_gpus`. Tests pass a fake `nvml`.
    """

    def __init__(self, device: Device, torch_gpus: Sequence[TorchGpu], interval_s: float, *, nvml: Any = None) -> None:
        self._interval_s = interval_s
        self._gpus: tuple[GpuRecord, ...] = ()
        self._host = HostRecord()
        self._records: tuple[GpuRecord | HostRecord, ...] = (self._host,)
        self._missing: dict[str, str] = {}
        self._lock = threading.Lock()
        self._open = threading.Event()
        self._stopped = threading.Event()
        self._sampled = False
        self._thread = threading.Thread(target=self._work, name="telemetry", daemon=True)
        if device is Device.CPU:
            self._missing["gpus"] = "the run uses no GPU"
            return
        if reason := unmeasurable_reason(torch_gpus):
            self._missing["gpus"] = reason
            return
        try:
            nvml = nvml_api.connect(nvml)
        except nvml_api.NvmlError as error:
            self._missing["gpus"] = str(error)
        else:
            self._gpus = tuple(GpuRecord(nvml, index, gpu.uuid) for index, gpu in enumerate(torch_gpus))
            self._records = (*self._gpus, self._host)

    def start(self) -> None:
        """Starts the thread; it waits for the first `resume`."""
        self._thread.start()

    def resume(self) -> None:
        """Begins a measured window."""
        with self._lock:
            if self._open.is_set():
                return
            self._sampled = False
            for record in self._records:
                record.open_window()
            self._open.set()

    def pause(self) -> None:
        """Ends the window; no sample is taken after this returns."""
        with self._lock:
            if not self._open.is_set():
                return
            self._open.clear()
            if not self._sampled:
                self._sample()
            for record in self._records:
                record.close_window()

    def forget(self) -> None:
        """Ends the window, if one is open; what it saw counts nowhere."""
        with self._lock:
            self._open.clear()

    def glance(self) -> dict[str, float]:
        """The lowest utilisation and highest temperature of the GPUs now, for the log; empty where unreadable."""
        with self._lock:
            seen = [gpu.glance() for gpu in self._gpus]
        used = [utilisation for utilisation, _ in seen if utilisation is not None]
        warm = [temperature for _, temperature in seen if temperature is not None]
        return ({"gpu_use_pct": min(used)} if used else {}) | ({"temperature_c": max(warm)} if warm else {})

    def stop(self) -> tuple[tuple[GpuTelemetry, ...], HostTelemetry, dict[str, str]]:
        """Ends the thread. Returns the summaries and a reason for each null (paths relative to `telemetry`)."""
        self.pause()
        self._stopped.set()
        self._open.set()  # wakes the thread, so that it ends
        if self._thread.is_alive():
            self._thread.join(timeout=5)
        missing = dict(self._missing)
        gpus = tuple(record.summary(missing) for record in self._gpus)
        return gpus, self._host.summary(missing), missing

    def _work(self) -> None:
        while True:
            self._open.wait()
            # Wait first, then sample: NVML's utilisation covers the time before the call.
            if self._stopped.wait(self._interval_s):
                return
            with self._lock:
                if self._open.is_set() and not self._stopped.is_set():
                    self._sample()

    def _sample(self) -> None:
        self._sampled = True
        for record in self._records:
            record.sample()
