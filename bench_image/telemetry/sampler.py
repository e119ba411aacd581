"""Samples GPUs and host during the measured windows, in a thread that sleeps between them."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any

from bench_image.contract.result_sections import GpuTelemetry, HostTelemetry
from bench_image.contract.work import Device
from bench_image.telemetry import nvml as nvml_api
from bench_image.telemetry.gpu_record import GpuRecord
from bench_image.telemetry.host_record import HostRecord
from bench_image.telemetry.unmeasured_gpus import TorchGpu, unmeasurable_reason


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
        """Ends the window, if one is open, and forgets what it saw."""
        with self._lock:
            if self._open.is_set():
                self._open.clear()
                for record in self._records:
                    record.forget_window()

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
