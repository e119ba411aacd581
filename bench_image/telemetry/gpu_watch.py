"""What the GPUs of a node say over a whole run: read before its first process begins and after its last has ended.

The supervisor reads it, so it is known of ranks that were killed too. Memory in use is never that of the run: within a
container NVML may list no processes, or those of other numbers, but it always knows the memory.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any, NamedTuple

from bench_image.contract.result_sections import OTHERS_MEMORY_GB, GpuTelemetry
from bench_image.contract.work import Device
from bench_image.telemetry import nvml as nvml_api

XID_WAIT_MS = 100  # the listener's wait within NVML; a run ends at most so much later
MPS_SERVER = "nvidia-cuda-mps-server"  # it serves others, and does no work of its own


class Said(NamedTuple):
    """Of one GPU: fields of GpuTelemetry, and a reason for each null among them."""

    fields: dict[str, Any]
    reasons: dict[str, str]


class GpuWatch:
    """Begins to watch all GPUs that NVML lists; `end` says what was seen. Never raises. Tests pass a fake `nvml`."""

    def __init__(self, device: Device, nvml: Any = None) -> None:
        self._gpus: dict[str, Any] = {}
        self._before: dict[str, Said] = {}
        self._why_none = "the run uses no GPU"
        if device is Device.CPU:
            return
        try:
            self._nvml = nvml_api.connect(nvml)
            indices = range(nvml_api.query(self._nvml.nvmlDeviceGetCount))
            handles = [nvml_api.query(partial(self._nvml.nvmlDeviceGetHandleByIndex, index)) for index in indices]
            self._gpus = {str(nvml_api.query(partial(self._nvml.nvmlDeviceGetUUID, gpu))): gpu for gpu in handles}
        except nvml_api.NvmlError as error:
            self._why_none = str(error)
            return
        self._why_none = "NVML did not list the GPU when the run began"
        self._before = {uuid: self._read(gpu, _AT_START | _COUNTERS) for uuid, gpu in self._gpus.items()}
        self._xids = XidListener(self._nvml, self._gpus)
        self._xids.start()

    def end(self) -> Watched:
        """Stops. Returns a function from a GPU's UUID to what was seen of it."""
        said = {}
        if self._gpus:
            self._xids.stop()
            said = {uuid: self._of_run(uuid, gpu) for uuid, gpu in self._gpus.items()}
        nothing = Said(dict.fromkeys(FIELDS), dict.fromkeys(FIELDS, self._why_none))
        return lambda uuid: said.get(uuid or "", nothing)

    def _of_run(self, uuid: str, gpu: Any) -> Said:
        before, after = self._before[uuid], self._read(gpu, _AT_END | _COUNTERS)
        fields: dict[str, Any] = {name: before.fields[name] for name in _AT_START}
        fields |= {name: after.fields[name] for name in _AT_END}
        reasons = before.reasons | after.reasons
        for name in _COUNTERS:
            first, last = before.fields[name], after.fields[name]
            fields[name] = last - first if first is not None and last is not None and last >= first else None
            if fields[name] is None:
                reasons.setdefault(name, "the counter went back in the run, as it does when the driver is loaded again")
        fields["xids"] = self._xids.of(uuid)
        if fields["xids"] is None:
            reasons["xids"] = self._xids.reasons[uuid]
        if fields["other_processes_at_start"] == 0 and (fields["other_memory_at_start_gb"] or 0) > OTHERS_MEMORY_GB:
            fields["other_processes_at_start"] = None
            reasons["other_processes_at_start"] = "NVML lists none, but memory is in use: it sees this container only"
        return Said(fields, reasons)

    def _read(self, gpu: Any, readings: Mapping[str, nvml_api.Reading]) -> Said:
        values, reasons = nvml_api.read_each(readings, self._nvml, lambda: gpu)
        nvml_api.drop_impossible(GpuTelemetry, values, reasons)
        return Said(dict.fromkeys(readings) | values, reasons)


Watched = Callable[[str | None], Said]


def with_watch(gpus: Iterable[GpuTelemetry], watched: Watched, missing: dict[str, str]) -> tuple[GpuTelemetry, ...]:
    """The rows with what the watch saw of each GPU. Adds a reason for each null to `missing`, of the whole result."""
    rows = []
    for position, gpu in enumerate(gpus):
        said = watched(gpu.uuid)
        missing |= {f"telemetry.gpus.{position}.{name}": reason for name, reason in said.reasons.items()}
        rows.append(gpu.model_copy(update=said.fields))
    return tuple(rows)


class XidListener(threading.Thread):
    """Counts the Xids of each GPU until `stop`. `reasons`: UUID -> why its Xids are not known."""

    def __init__(self, nvml: Any, gpus: Mapping[str, Any]) -> None:
        super().__init__(name="xids", daemon=True)
        self.reasons: dict[str, str] = {}
        self._nvml, self._gpus = nvml, gpus
        self._seen: dict[str, Counter[str]] = {uuid: Counter() for uuid in gpus}
        self._stopping = threading.Event()
        try:
            self._events = nvml_api.query(nvml.nvmlEventSetCreate)
        except nvml_api.NvmlError as error:
            self.reasons = dict.fromkeys(gpus, str(error))
            return
        for uuid, gpu in gpus.items():
            try:
                nvml_api.query(
                    lambda gpu=gpu: nvml.nvmlDeviceRegisterEvents(gpu, nvml.nvmlEventTypeXidCriticalError, self._events)  # type: ignore[misc]
                )
            except nvml_api.NvmlError as error:
                self.reasons[uuid] = str(error)

    def of(self, uuid: str) -> dict[str, int] | None:
        """Code -> how often it came; None: not known."""
        return None if uuid in self.reasons else dict(self._seen[uuid])

    def run(self) -> None:
        if len(self.reasons) < len(self._gpus):
            # What came before the end is still read after it.
            while self._wait() or not self._stopping.is_set():
                pass

    def stop(self) -> None:
        self._stopping.set()
        self.join(timeout=2)

    def _wait(self) -> bool:
        """Waits for one event, and counts it; False when none came."""
        try:
            event = self._nvml.nvmlEventSetWait_v2(self._events, XID_WAIT_MS)
        except Exception as error:
            if getattr(error, "value", None) != self._nvml.NVML_ERROR_TIMEOUT:
                self.reasons |= {uuid: f"NVML: {error}" for uuid in self._gpus if not self._seen[uuid]}
                self._stopping.set()
            return False
        uuid = self._uuid(event.device)
        # A GPU that is lost has no UUID any more: then it is one of those that do not answer.
        sources = [uuid] if uuid in self._gpus else [known for known, gpu in self._gpus.items() if not self._uuid(gpu)]
        for source in sources:
            self._seen[str(source)][str(event.eventData)] += 1
        return True

    def _uuid(self, gpu: Any) -> str | None:
        try:
            return str(nvml_api.query(partial(self._nvml.nvmlDeviceGetUUID, gpu)))
        except nvml_api.NvmlError:
            return None


def _used_gb(nvml: Any, gpu: Any) -> float:
    """Memory in use without what the driver keeps for itself; older drivers count that as well."""
    try:
        used = nvml.nvmlDeviceGetMemoryInfo(gpu, version=nvml.nvmlMemory_v2).used
    except (nvml.NVMLError, TypeError):
        used = nvml.nvmlDeviceGetMemoryInfo(gpu).used
    return float(used) / 1e9


def used_bytes(uuid: str, nvml: Any = None) -> int | None:
    """Memory in use on a GPU now; None where NVML does not tell."""
    try:
        nvml = nvml_api.connect(nvml)
        return int(1e9 * nvml_api.query(lambda: _used_gb(nvml, nvml.nvmlDeviceGetHandleByUUID(uuid))))
    except nvml_api.NvmlError:
        return None


def _num_processes(nvml: Any, gpu: Any) -> int:
    names = []
    for process in nvml.nvmlDeviceGetComputeRunningProcesses(gpu):
        try:
            names.append(str(nvml.nvmlSystemGetProcessName(process.pid)))
        except nvml.NVMLError:  # no permission
            names.append("")
    return sum(MPS_SERVER not in name for name in names)


def _field_sum(*names: str) -> nvml_api.Reading:
    """The sum of some of NVML's field values."""

    def read(nvml: Any, gpu: Any) -> int:
        values = nvml.nvmlDeviceGetFieldValues(gpu, [getattr(nvml, f"NVML_FI_DEV_NVLINK_{name}") for name in names])
        for value in values:
            if value.nvmlReturn != nvml.NVML_SUCCESS:
                raise nvml.NVMLError(value.nvmlReturn)
        return sum(int(value.value.ullVal) for value in values)

    return read


def _ecc_errors(kind: str) -> nvml_api.Reading:
    return lambda nvml, gpu: nvml.nvmlDeviceGetTotalEccErrors(
        gpu, getattr(nvml, f"NVML_MEMORY_ERROR_TYPE_{kind}"), nvml.NVML_VOLATILE_ECC
    )


_AT_START: dict[str, nvml_api.Reading] = {
    "other_processes_at_start": _num_processes,
    "other_memory_at_start_gb": _used_gb,
}
_AT_END: dict[str, nvml_api.Reading] = {
    "other_memory_at_end_gb": _used_gb,
    "row_remap_pending": lambda nvml, gpu: bool(nvml.nvmlDeviceGetRemappedRows(gpu)[2]),
    "row_remap_failed": lambda nvml, gpu: bool(nvml.nvmlDeviceGetRemappedRows(gpu)[3]),
}
# The run has their growth.
_COUNTERS: dict[str, nvml_api.Reading] = {
    "ecc_corrected_in_run": _ecc_errors("CORRECTED"),
    "ecc_uncorrected_in_run": _ecc_errors("UNCORRECTED"),
    "rows_remapped_in_run": lambda nvml, gpu: sum(nvml.nvmlDeviceGetRemappedRows(gpu)[:2]),
    "nvlink_crc_errors": _field_sum("CRC_FLIT_ERROR_COUNT_TOTAL", "CRC_DATA_ERROR_COUNT_TOTAL"),
    "nvlink_replays": _field_sum("REPLAY_ERROR_COUNT_TOTAL", "RECOVERY_ERROR_COUNT_TOTAL"),
    "pcie_replays": lambda nvml, gpu: nvml.nvmlDeviceGetPcieReplayCounter(gpu),
}
FIELDS = (*_AT_START, *_AT_END, *_COUNTERS, "xids")
