"""What GPUs and host do during the measured windows, sampled by a thread that sleeps while no window is open."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any

from bench_image.contract.result_sections import GpuTelemetry, HostTelemetry
from bench_image.contract.work import Device
from bench_image.telemetry import nvml as nvml_api
from bench_image.telemetry.gpu_record import GpuRecord
from bench_image.telemetry.host_record import HostRecord


class Sampler:
    """Samples between `resume` and `pause`, every `interval_s`, and at least once per window.

    Never raises: what cannot be read is None in the answer of `stop`, with a reason. `GpuTelemetry.index` is the
    position in `gpu_uuids`. `nvml` stands in for the real NVML module in tests.
    """

    def __init__(self, device: Device, gpu_uuids: Sequence[str], interval_s: float, *, nvml: Any = None) -> None:
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
        try:
            nvml = nvml_api.connect(nvml)
        except nvml_api.NvmlError as error:
            self._missing["gpus"] = str(error)
        else:
            self._gpus = tuple(GpuRecord(nvml, index, uuid) for index, uuid in enumerate(gpu_uuids))
            self._records = (*self._gpus, self._host)

    def start(self) -> None:
        """Starts the thread; it waits for the first `resume`."""
        self._thread.start()

    def resume(self) -> None:
        """A measured window begins."""
        with self._lock:
            if self._open.is_set():
                return
            self._sampled = False
            for record in self._records:
                record.open_window()
            self._open.set()

    def pause(self) -> None:
        """The window is over; no sample is taken after this returns."""
        with self._lock:
            if not self._open.is_set():
                return
            self._open.clear()
            if not self._sampled:
                self._sample()
            for record in self._records:
                record.close_window()

    def glance(self) -> dict[str, float]:
        """How the GPUs are right now: the least used one and the hottest one. Empty where nothing can be read."""
        with self._lock:
            seen = [gpu.glance() for gpu in self._gpus]
        used = [utilisation for utilisation, _ in seen if utilisation is not None]
        warm = [temperature for _, temperature in seen if temperature is not None]
        return ({"gpu_use_pct": min(used)} if used else {}) | ({"temperature_c": max(warm)} if warm else {})

    def stop(self) -> tuple[tuple[GpuTelemetry, ...], HostTelemetry, dict[str, str]]:
        """Everything seen, and why each null is null (paths relative to `telemetry`). Ends the thread."""
        self.pause()
        self._stopped.set()
        self._open.set()  # wakes the thread, which then sees that it is over
        if self._thread.is_alive():
            self._thread.join(timeout=5)
        missing = dict(self._missing)
        gpus = tuple(record.summary(missing) for record in self._gpus)
        return gpus, self._host.summary(missing), missing

    def _work(self) -> None:
        while True:
            self._open.wait()
            # First the pause, then the sample: NVML's utilisation looks back, over what was before the window.
            if self._stopped.wait(self._interval_s):
                return
            with self._lock:
                if self._open.is_set() and not self._stopped.is_set():
                    self._sample()

    def _sample(self) -> None:
        self._sampled = True
        for record in self._records:
            record.sample()
